"""What stands before every route: whose request it is, whether it may come in, and what it may cost.

Law: nothing of a request is read, and nothing is done for it, before it is known that it may come in.
(tests/test_gateway_access.py::test_what_may_not_come_in_is_not_read)

Theory of operation. A request passes these, in this order: (1) a head that two readers could read differently is
refused: two `Host`s, two lengths, a length beside chunks (RFC 9112, 6.3; request smuggling). (2) `Host` must name this
server, or a page of the web could reach a server on its reader's machine under a name of its own (DNS rebinding). (3)
`Origin`, which browsers send with every request that a page of another site makes, must be one that was allowed. (4)
The key. (5) Its limits: answers at once, requests and tokens in a span of time. (6) The size of its body and the time
it may take. Only then a route sees it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from callgate.apps.gateway.asgi import AsgiApp, Message, Receive, Scope, Send, Visit
from callgate.apps.gateway.gate import CALLER, RECORD_ID
from callgate.apps.gateway.keyring import Caller, Keyring
from callgate.apps.gateway.refusals import Refusal, too_many
from callgate.apps.gateway.settings import LOOPBACK_NAMES, Settings

LOGGER = logging.getLogger("callgate.gateway")
FREE = frozenset({"/healthz", "/readyz"})
"""Paths that need no key: whoever starts and watches a server has none."""
ONCE = frozenset({b"host", b"origin", b"authorization", b"x-api-key", b"content-length", b"transfer-encoding"})
"""Headers of which a second one makes a request ambiguous."""
_TOKENS = re.compile(r"[\w\-, ]{0,2000}")
DEFAULT_PORTS = {"http": 80, "https": 443}
SHOWN_HEADERS = "x-request-id, retry-after, x-callgate-mended, x-callgate-backend, x-callgate-protocol"


@dataclass(slots=True)
class Head:
    """The headers that decide about a request."""

    host: str | None = None
    origin: str | None = None
    key: str | None = None
    length: int | None = None
    site: str = ""
    """`Sec-Fetch-Site`: what a browser says of where the request comes from."""
    mode: str = ""
    forwarded: dict[bytes, str] = field(default_factory=dict)


class Access:
    """The application behind its checks."""

    def __init__(self, app: AsgiApp, settings: Settings, keys: Keyring) -> None:
        self._app = app
        self._settings = settings
        self.keys = keys
        self.visits: dict[str, Visit] = {}
        """The requests that are being answered, by their ids."""
        self.observers: list[Callable[[Visit], None]] = []
        """Each is told of every visit when it is over."""
        self._networks = [ipaddress.ip_network(proxy, strict=False) for proxy in settings.proxies]
        self._origins = frozenset(origin.lower() for origin in settings.origins)
        self._hosts = frozenset(name.lower().rstrip(".") for name in settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        loop = asyncio.get_running_loop()
        visit = Visit(scope, loop.time())
        self.visits[visit.id] = visit
        answer = Answer(visit, send, loop.time)
        try:
            head = self._admitted(visit, answer)
            if head is None:
                await answer.send_whole(204, b"", preflight(scope["headers"]))
            else:
                await self._app(scope, Body(receive, self._settings, head.length), answer)
        except asyncio.CancelledError:
            # Only the end of the server cancels: what has no answer yet gets one, what has is cut off, for a cut must
            # not look complete.
            await answer.refuse(Refusal(503, "the server is shutting down"), scope["path"])
        except Refusal as refusal:
            await answer.refuse(refusal, scope["path"])
        except HTTPException as error:
            await answer.refuse(Refusal(error.status_code, error.detail, error.headers or {}), scope["path"])
        except Exception:
            LOGGER.exception("request %s failed", visit.id)
            await answer.refuse(Refusal(500, f"callgate failed; its log says more under {visit.id}"), scope["path"])
        finally:
            if (caller := scope.get(CALLER)) is not None:
                caller.usage.active -= 1
            del self.visits[visit.id]
            visit.left = not visit.ended
            for observer in self.observers:
                observer(visit)

    def _admitted(self, visit: Visit, answer: Answer) -> Head | None:
        """Rules 1 to 5. None: it only asks whether it may ask (a preflight). Raises Refusal."""
        scope = visit.scope
        head = read_head(scope["headers"])
        self._behind_proxy(scope, head)
        self._check_host(scope, head)
        answer.origin = self._check_origin(scope, head)
        if answer.origin and scope["method"] == "OPTIONS":
            return None
        if scope["path"] not in FREE:
            caller = self._identified(head)
            visit.caller = caller
            self._check_limits(scope["method"], caller)
            caller.usage.active += 1
            scope[CALLER] = caller
        scope[RECORD_ID] = visit.id
        return head

    # --- the checks -------------------------------------------------------------------------------------------------

    def _behind_proxy(self, scope: Scope, head: Head) -> None:
        """What a proxy that we were told to trust says of its client stands for the connection's own."""
        if not self._networks or not head.forwarded:
            return
        client = scope.get("client")
        if client is not None and not self._is_proxy(client[0]):
            return
        chain = [part.strip() for part in head.forwarded.get(b"x-forwarded-for", "").split(",") if part.strip()]
        # From the right: what stands left of the first that is no proxy of ours, anybody may have written.
        for address in reversed(chain):
            scope["client"] = (address[:64], 0)
            if not self._is_proxy(address):
                break
        proto = head.forwarded.get(b"x-forwarded-proto", "").split(",")[-1].strip()
        if proto in DEFAULT_PORTS:
            scope["scheme"] = proto
        host = head.forwarded.get(b"x-forwarded-host", "").split(",")[-1].strip()
        if host:
            head.host = host

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address.strip("[]"))
        except ValueError:
            return False
        return any(found in network for network in self._networks)

    def _check_host(self, scope: Scope, head: Head) -> None:
        if head.host is None:
            # RFC 9112, 3.2. No browser leaves it out, so an old client may.
            if scope["http_version"] != "1.0":
                raise Refusal(400, "the Host header is missing")
            return
        name = host_name(head.host)
        if name is None:
            raise Refusal(400, "the Host header is no host")
        if self._settings.unix_socket is not None or self._knows(name):
            return
        raise Refusal(421, f"this server is not called {name[:100]!r}; start it with --allow-host to allow the name")

    def _knows(self, name: str) -> bool:
        if name in self._hosts or name == self._settings.host.strip("[]").lower():
            return True
        if is_address(name):  # an address is no name that somebody could point here
            return not self._settings.is_local or ipaddress.ip_address(name).is_loopback
        if name in LOOPBACK_NAMES or name.endswith(".localhost"):
            return True
        # Where others are let in a key is needed, which no page has; a list of names makes it strict.
        return not self._settings.is_local and not self._hosts

    def _check_origin(self, scope: Scope, head: Head) -> str:
        """The origin that an answer may be shown to; "": none is named, or it is our own."""
        if head.origin is None:
            if head.site == "cross-site" and head.mode != "navigate":
                raise Refusal(403, "requests from pages of other sites are refused; allow them with --origin")
            return ""
        origin = head.origin.lower()
        if head.host is not None and same_origin(origin, scope["scheme"], head.host):
            return ""
        if origin in self._origins or "*" in self._origins:
            return head.origin
        raise Refusal(403, f"pages of {head.origin[:200]!r} may not use this server; allow them with --origin")

    def _identified(self, head: Head) -> Caller:
        if self.keys.anybody is not None:
            return self.keys.anybody
        found = self.keys.find(head.key) if head.key else None
        if found is None:
            wanted = "a key is needed" if not head.key else "the key is not known here"
            raise Refusal(
                401, f"{wanted}: send it as Authorization: Bearer KEY, or as x-api-key", {"www-authenticate": "Bearer"}
            )
        return found

    def _check_limits(self, method: str, caller: Caller) -> None:
        if caller.usage.active >= (caller.streams or self._settings.max_streams):
            raise too_many("too many requests of this key are being answered", 1.0)
        if method != "POST":  # to look costs nothing
            return
        if caller.tokens is not None and (wait := caller.tokens.wait()):
            raise too_many("the tokens of this key are used up", wait)
        if caller.rate is not None:
            if wait := caller.rate.wait():
                raise too_many("too many requests with this key", wait)
            caller.rate.add(1)

    # --- what is no longer wanted -------------------------------------------------------------------------------------

    def cut_slow(self, now: float) -> None:
        """Breaks the connections of clients that take nothing of their answers."""
        for visit in tuple(self.visits.values()):
            if visit.stuck_since is not None and now - visit.stuck_since > self._settings.slow_client:
                visit.abort()


class Answer:
    """The way of an answer to its client, watched. An ASGI `send`."""

    __slots__ = ("_clock", "_send", "_visit", "origin")

    def __init__(self, visit: Visit, send: Send, clock: Callable[[], float]) -> None:
        self._visit = visit
        self._send = send
        self._clock = clock
        self.origin = ""
        """Who may read it, beside our own pages."""

    async def __call__(self, message: Message) -> None:
        visit = self._visit
        if message["type"] == "http.response.start":
            visit.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers()]
        else:
            body = message.get("body")
            if body:
                visit.sent += len(body)
            if not message.get("more_body"):
                visit.ended = True
        visit.stuck_since = self._clock()
        await self._send(message)
        visit.stuck_since = None

    def _headers(self) -> list[tuple[bytes, bytes]]:
        found = [(b"x-request-id", self._visit.id.encode())]
        if self.origin:
            found += [
                (b"access-control-allow-origin", self.origin.encode("latin-1", "replace")),
                (b"access-control-expose-headers", SHOWN_HEADERS.encode()),
                (b"vary", b"Origin"),
            ]
        return found

    async def send_whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """A whole answer."""
        lines = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
        if status != 204:  # RFC 9110, 8.6: none there
            lines.append((b"content-length", str(len(body)).encode()))
        await self({"type": "http.response.start", "status": status, "headers": lines})
        await self({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal, path: str) -> None:
        """The refusal as the answer; an answer that has begun is cut off instead, so that it never looks complete."""
        if self._visit.ended:
            return
        if self._visit.status:
            self._visit.abort()
            return
        headers = {"content-type": "application/json", "cache-control": "no-store", **refusal.headers}
        await self.send_whole(refusal.status, refusal.body(path, self._visit.id), headers)


class Body:
    """The way of a request's body to its route, within its limits. An ASGI `receive`."""

    __slots__ = ("_done", "_receive", "_seen", "_settings")

    def __init__(self, receive: Receive, settings: Settings, length: int | None) -> None:
        if length is not None and length > settings.max_body:
            raise _too_large(settings)
        self._receive = receive
        self._settings = settings
        self._seen = 0
        self._done = False

    async def __call__(self) -> Message:
        if self._done:  # what now comes is that the client left
            return await self._receive()
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                message = await self._receive()
        except TimeoutError:
            raise Refusal(408, "the body of the request did not come in time", {"connection": "close"}) from None
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._done = not message.get("more_body")
            if self._seen > self._settings.max_body:
                raise _too_large(self._settings)
        return message


def _too_large(settings: Settings) -> Refusal:
    return Refusal(413, f"the body of a request is at most {settings.max_body} bytes (--max-body)")


# --- heads ------------------------------------------------------------------------------------------------------------


def read_head(headers: Iterable[tuple[bytes, bytes]]) -> Head:
    """What decides about a request. Raises Refusal for a head that two readers could read differently (rule 1)."""
    head = Head()
    seen: set[bytes] = set()
    for name, value in headers:
        if name in ONCE:
            if name in seen:
                raise _ambiguous(name)
            seen.add(name)
        if (read := _READ.get(name)) is not None:
            read(head, name, value.decode("latin-1"))
    if b"transfer-encoding" in seen and head.length is not None:
        raise _ambiguous(b"content-length")
    return head


def _host(head: Head, name: bytes, value: str) -> None:
    head.host = value.strip()


def _origin(head: Head, name: bytes, value: str) -> None:
    head.origin = value.strip()


def _bearer(head: Head, name: bytes, value: str) -> None:
    scheme, _, key = value.strip().partition(" ")
    head.key = key.strip() if scheme.lower() == "bearer" else head.key


def _key(head: Head, name: bytes, value: str) -> None:
    """Anthropic's clients; Authorization wins if both come."""
    head.key = head.key or value.strip()


def _length(head: Head, name: bytes, value: str) -> None:
    if not (value.isascii() and value.isdigit()):
        raise _ambiguous(name)
    head.length = int(value[:20])


def _encoding(head: Head, name: bytes, value: str) -> None:
    if value.strip().lower() != "chunked":
        raise _ambiguous(name)


def _site(head: Head, name: bytes, value: str) -> None:
    head.site = value


def _mode(head: Head, name: bytes, value: str) -> None:
    head.mode = value


def _forwarded(head: Head, name: bytes, value: str) -> None:
    head.forwarded[name] = f"{head.forwarded[name]},{value}" if name in head.forwarded else value


_READ: Mapping[bytes, Callable[[Head, bytes, str], None]] = {
    b"host": _host,
    b"origin": _origin,
    b"authorization": _bearer,
    b"x-api-key": _key,
    b"content-length": _length,
    b"transfer-encoding": _encoding,
    b"sec-fetch-site": _site,
    b"sec-fetch-mode": _mode,
    b"x-forwarded-for": _forwarded,
    b"x-forwarded-proto": _forwarded,
    b"x-forwarded-host": _forwarded,
}
"""What is read of a head, by the names of its fields."""


def _ambiguous(name: bytes) -> Refusal:
    return Refusal(400, f"the header {name.decode()} can be read in two ways", {"connection": "close"})


def host_name(host: str) -> str | None:
    """The name or address in a `Host`, without its port; None: it is none."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._\-]+)(?::\d{0,5})?", host)
    return found[1].strip("[]").lower().rstrip(".") if found else None


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def same_origin(origin: str, scheme: str, host: str) -> bool:
    """Whether the origin (RFC 6454) is the server itself, as the request names it."""
    try:
        parts = urlsplit(origin)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
        own = urlsplit(f"{scheme}://{host}")
        return (parts.scheme, parts.hostname, port) == (scheme, own.hostname, own.port or DEFAULT_PORTS.get(scheme))
    except ValueError:  # a port that is none
        return False


def preflight(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """What a browser is told before it sends what a page of another site wants (CORS)."""
    asked = {name: value.decode("latin-1") for name, value in headers if name.startswith(b"access-control-request-")}
    wanted = asked.get(b"access-control-request-headers", "")
    found = {
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
        "access-control-allow-headers": wanted if _TOKENS.fullmatch(wanted) else "authorization, content-type",
        "access-control-max-age": "600",
    }
    if asked.get(b"access-control-request-private-network") == "true":
        found["access-control-allow-private-network"] = "true"
    return found
