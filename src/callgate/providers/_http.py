"""The one mouth through which providers speak HTTP; the only file that knows aiohttp.

One law: nothing is asked twice once a byte of the answer has come, and a key is never in an error, a log or a record.

Theory of operation.
1. A request is tried again (with growing pauses, or when the server says so) only before the first byte of its answer,
   and only for failures that pass: no connection, 408, 429, 500 to 599. A parser that failed (500 with such words)
   fails again, so it is not asked again.
2. Three clocks: `connect`, `first` (until the answer begins: a cold model loads, a long prompt is read) and `idle`
   (between two pieces); `total` is off unless set.
3. Leaving the stream early closes the connection; reading to its end gives it back for the next request.
4. Sessions belong to their event loop. `aclose` closes that of the running one; a loop that ends (`asyncio.run`) closes
   its own, because an async generator that holds the session is closed with the loop.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import random
import re
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from callgate.errors import (
    ConfigError,
    EndedEarly,
    Overloaded,
    ProtocolBroken,
    ProviderError,
    RateLimited,
    Unreachable,
)
from callgate.providers._failures import hide, refusal

MAX_BODY = 8 * 1024 * 1024
"""Bytes of an answer that is read whole (lists of models, error pages)."""
_GRACE = 0.25
"""Seconds that a server gets to end a stream whose last record has come; then the connection is closed."""
_PROBE = 3.0
"""Seconds for a probe to be answered."""
_LOOK = 1.0
"""Seconds between two looks at a stream's clocks."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529, 530})
_PARSER = re.compile(r"pars|tool call|unmarshal|invalid character|grammar|template", re.IGNORECASE)


@dataclass(slots=True, frozen=True)
class Timeouts:
    """Seconds; None: no limit."""

    connect: float | None = 10.0
    first: float | None = 300.0
    """Until the answer begins."""
    idle: float | None = 120.0
    """Between two pieces of a stream."""
    total: float | None = None


@dataclass(slots=True, frozen=True)
class Network:
    """How a server is reached."""

    timeout: Timeouts = Timeouts()
    retries: int = 2
    backoff: float = 0.5
    """Seconds before the first retry; each further one waits twice as long."""
    max_wait: float = 30.0
    """The longest `Retry-After` that is waited for; a longer one is raised as it is."""
    proxy: str | None = None
    """An address, or "" for none at all; None: what the environment says (never for this machine itself)."""
    verify: bool | str = True
    """False: no check of certificates; a path: the certificates to trust."""
    cert: tuple[str, str] | None = None
    """Files of the client's own certificate and its key."""


class Mouth:
    """One server, as seen by one provider."""

    def __init__(
        self,
        base_url: str,
        *,
        name: str,
        headers: Mapping[str, str],
        key: str | Callable[[], str] = "",
        key_header: str = "Authorization",
        key_hint: str = "",
        network: Network | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"base_url {base_url!r}: write http://host:port/path")
        if parts.fragment:
            raise ConfigError(f"base_url {base_url!r}: the model's name belongs into the model, after #")
        self._root = f"{parts.scheme}://{parts.netloc}"
        self.base_url = f"{self._root}{parts.path.rstrip('/')}"
        self._query = f"?{parts.query}" if parts.query else ""  # Azure's api-version
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self.name = name
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "callgate", **headers}
        self._key = key
        self._key_header = key_header
        self._secret = "" if callable(key) else key
        self._given = tuple(value for value in headers.values() if len(value) >= 8)
        self._key_hint = key_hint
        self._network = network or Network()
        self._local = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
        self._proxy = self._find_proxy(parts.scheme, parts.hostname)
        self._sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[None, None]]]
        self._sessions = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Mouth({self.shown!r})"

    @property
    def secret(self) -> str:
        """The key, for those who must keep it out of what they write."""
        return self._secret

    @property
    def _secrets(self) -> tuple[str, ...]:
        return (self._secret, *self._given)

    def _sent(self, *, body: bool) -> dict[str, str]:
        """The headers of one request; a key that is a function is asked for each."""
        if callable(self._key):
            self._secret = self._key()
        out = {"Content-Type": "application/json"} if body else {}
        if self._secret:
            bearer = self._key_header == "Authorization"
            out[self._key_header] = f"Bearer {self._secret}" if bearer else self._secret
        return out

    def _find_proxy(self, scheme: str, host: str) -> str | None:
        if self._network.proxy is not None:
            return self._network.proxy or None
        if self._local:
            return None
        from urllib.request import getproxies, proxy_bypass

        return None if proxy_bypass(host) else getproxies().get(scheme)

    async def _session(self) -> Any:
        loop = asyncio.get_running_loop()
        session, _ = self._sessions.get(loop, (None, None))
        if session is None or session.closed:
            aiohttp = _aiohttp()
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._tls(), limit=0, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._network.timeout.connect),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                auto_decompress=True,
                read_bufsize=2**18,
            )
            held = _hold(session)
            await anext(held)
            self._sessions[loop] = session, held  # rule 4
        return session

    def _tls(self) -> Any:
        network = self._network
        if network.verify is True and network.cert is None:
            return True
        ssl = import_module("ssl")
        try:
            context = ssl.create_default_context(cafile=network.verify if isinstance(network.verify, str) else None)
            if network.verify is False:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if network.cert is not None:
                context.load_cert_chain(*network.cert)
        except OSError as error:
            raise ConfigError(f"verify or cert: {error}") from error
        return context

    async def aclose(self) -> None:
        """Closes the connections of this event loop; the mouth may be used again."""
        _, held = self._sessions.pop(asyncio.get_running_loop(), (None, None))
        if held is not None:
            await held.aclose()

    # --- one exchange ---------------------------------------------------------------------------------------------

    async def ask(self, method: str, path: str, body: Any = None, *, model: str = "", probe: bool = False) -> Any:
        """One whole exchange of JSON, for what is not streamed. A `probe` is for what is nice to know: one try, soon
        given up; its path is from the root of the server if it begins with two slashes."""
        url = f"{self._root}{path[1:]}" if path.startswith("//") else f"{self.base_url}{path}"
        response = await self._answer(method, url + self._query, body, model, probe=probe)
        try:
            async with asyncio.timeout(_PROBE if probe else self._network.timeout.idle):
                data = await _whole(response, MAX_BODY)
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ProtocolBroken(f"{self.name}: {self.shown}{path} gave no JSON", provider=self.name) from error
        except TimeoutError as error:
            raise EndedEarly(f"{self.name}: {self.shown}{path} went silent", provider=self.name, sent=True) from error
        except _aiohttp().ClientError as error:
            raise EndedEarly(f"{self.name}: {self._words(error)}", provider=self.name, sent=True) from error
        finally:
            response.close()

    @asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, Any], *, model: str = "") -> AsyncIterator[Stream]:
        """The bytes of an answer. What fails before the first of them is raised here."""
        response = await self._answer("POST", f"{self.base_url}{path}{self._query}", body, model)
        stream = Stream(response, self)
        try:
            yield stream
        finally:
            stream.close()

    async def _answer(self, method: str, url: str, body: Any, model: str, *, probe: bool = False) -> Any:
        """Rule 1: the response, its status fine and its body not yet read."""
        data = None if body is None else _dump(body)
        attempt = 0
        while True:
            try:
                return await self._once(method, url, data, model, first=_PROBE if probe else self.timeout.first)
            except ProviderError as error:
                attempt += 1
                error.tries = attempt
                if probe or attempt > self._network.retries or not _passing(error):
                    raise
                wait = self._network.backoff * 2 ** (attempt - 1) * (0.75 + random.random() / 2)  # noqa: S311
                asked = getattr(error, "retry_after", None)
                if asked is not None:
                    if asked > self._network.max_wait:
                        raise
                    wait = max(asked, 0.0)
            await asyncio.sleep(wait)

    async def _once(self, method: str, url: str, data: bytes | None, model: str, *, first: float | None) -> Any:
        aiohttp = _aiohttp()
        try:
            async with asyncio.timeout(first):
                session = await self._session()
                response = await session.request(
                    method,
                    url,
                    data=data,
                    headers=self._sent(body=data is not None),
                    proxy=self._proxy,
                    allow_redirects=False,
                )
        except TimeoutError as error:
            raise Unreachable(
                f"{self.name}: {self.shown} did not answer in time; is the model still loading? (timeout.first, "
                "timeout.connect)",
                provider=self.name,
            ) from error
        except (aiohttp.InvalidURL, aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unreachable(error) from error
        if response.status == 200 and response.content_type != "text/html":
            return response
        try:
            raise await self._refused(response, model)
        finally:
            response.close()

    def _unreachable(self, error: Any) -> ProviderError:
        aiohttp = _aiohttp()
        words = self._words(error)
        if isinstance(error, aiohttp.ClientResponseError):
            said = self.hide(" ".join(error.message.split())[:200])
            return ProtocolBroken(f"{self.name}: what {self.shown} sent is not HTTP: {said}", provider=self.name)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return Unreachable(f"{self.name}: {self.shown}: no such host ({words})", provider=self.name)
        if isinstance(error, aiohttp.ClientSSLError):
            return Unreachable(f"{self.name}: {self.shown}: TLS failed: {words} (see `verify`)", provider=self.name)
        if isinstance(error, aiohttp.ClientConnectorError):
            hint = "; is the server running?" if self._local else ""
            words = os.strerror(error.os_error.errno) if error.os_error.errno else self._words(error.os_error)
            return Unreachable(f"{self.name}: cannot connect to {self.shown}: {words}{hint}", provider=self.name)
        return Unreachable(f"{self.name}: {self.shown} broke off before it answered: {words}", provider=self.name)

    async def _refused(self, response: Any, model: str) -> ProviderError:
        try:
            async with asyncio.timeout(10):
                body = await _whole(response, 64 * 1024)
        except (_aiohttp().ClientError, OSError, TimeoutError):
            body = b""
        if response.status == 200:
            body = body or b"an HTML page"
        if 300 <= response.status < 400:
            target = self.hide(str(response.headers.get("Location", "?")))
            body = f"it redirects to {target}; use that address as base_url".encode()
        return refusal(
            response.status,
            body,
            provider=self.name,
            model=model,
            retry_after=_retry_after(response.headers),
            key_hint=self._key_hint,
            secrets=self._secrets,
        )

    def hide(self, text: str) -> str:
        """The text without this mouth's keys and whatever looks like one."""
        return hide(text, *self._secrets)

    def _words(self, error: BaseException) -> str:
        text = str(error) or type(error).__name__
        return self.hide(" ".join(text.split())[:300])

    def early(self, error: BaseException) -> EndedEarly:
        """The error for a stream that broke."""
        return EndedEarly(f"{self.name}: the connection broke: {self._words(error)}", provider=self.name, sent=True)

    @property
    def timeout(self) -> Timeouts:
        """The clocks of this mouth."""
        return self._network.timeout


class Stream:
    """The bytes of one answer, as they come.

    The idle clock is one timer for the whole stream, moved by looking at the time of the last piece (rule 2).
    """

    def __init__(self, response: Any, mouth: Mouth) -> None:
        self._response = response
        self._mouth = mouth
        self._loop = asyncio.get_running_loop()
        self._last = self._started = self._loop.time()
        self._expired = ""
        self._waiting = False
        self._timer: asyncio.TimerHandle | None = None
        self.taps: list[Callable[[bytes], None]] = []
        """Each is given every piece as it comes (recording)."""
        self._arm()

    def _arm(self) -> None:
        timeout = self._mouth.timeout
        ends = [t for t in (_sum(self._last, timeout.idle), _sum(self._started, timeout.total)) if t is not None]
        self._timer = self._loop.call_at(min([*ends, self._loop.time() + _LOOK]), self._check)

    def _check(self) -> None:
        now, timeout = self._loop.time(), self._mouth.timeout
        if timeout.total is not None and now - self._started >= timeout.total:
            self._expired = f"no end within timeout.total = {timeout.total:g} s"
        elif timeout.idle is not None and now - self._last >= timeout.idle:
            self._expired = f"silence for timeout.idle = {timeout.idle:g} s"
        elif self._waiting and self._lost():
            self._expired = "bytes that are not HTTP"
        if self._expired:
            self._response.close()
        else:
            self._arm()

    def _lost(self) -> bool:
        """Whether the connection is gone without the reader having been told (aiohttp, after a broken chunk)."""
        connection, content = self._response.connection, self._response.content
        if connection is None or content.is_eof() or content.exception() is not None:
            return False
        return connection.transport is None or connection.transport.is_closing()

    async def read(self) -> bytes:
        """The next piece; b"" at the end. Raises EndedEarly if the connection breaks or goes silent."""
        self._waiting = True
        try:
            piece: bytes = await self._response.content.readany()
        except (_aiohttp().ClientError, OSError) as error:
            if self._expired:
                text = f"{self._mouth.name}: the stream was given up after {self._expired}"
                raise EndedEarly(text, provider=self._mouth.name, sent=True) from error
            raise self._mouth.early(error) from error
        self._waiting = False
        self._last = self._loop.time()
        for tap in self.taps:
            tap(piece)
        return piece

    async def drain(self) -> None:
        """The last record has come: waits a moment for the end, so that the connection can be used again."""
        try:
            async with asyncio.timeout(_GRACE):
                while await self.read():
                    pass
        except (EndedEarly, TimeoutError):
            self._response.close()

    def close(self) -> None:
        """Rule 3."""
        if self._timer is not None:
            self._timer.cancel()
        self._response.close()


def _sum(start: float, seconds: float | None) -> float | None:
    return None if seconds is None else start + seconds


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _dump(body: Any) -> bytes:
    try:
        return _encode(body).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the request cannot be written as JSON: {error}") from error


def _passing(error: ProviderError) -> bool:
    """Whether the failure may pass by itself."""
    if isinstance(error, Unreachable):
        return not re.search("no such host|TLS failed|in time", str(error))
    if isinstance(error, (RateLimited, Overloaded)):
        return error.status in _AGAIN and not (error.status == 500 and _PARSER.search(str(error)))
    return False


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from `retry-after-ms` or `Retry-After` (a number or a date)."""
    try:
        if (value := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(value) / 1000)
        if (value := headers.get("Retry-After")) is None:
            return None
        try:
            seconds = float(value)
        except ValueError:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError):
        return None
    return max(0.0, seconds) if seconds == seconds else None  # noqa: PLR0124 - not NaN


async def _whole(response: Any, limit: int) -> bytes:
    """The body, as far as the limit allows."""
    pieces, size = [], 0
    while size < limit and (piece := await response.content.readany()):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


async def _hold(session: Any) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await session.close()


@cache
def _aiohttp() -> Any:
    """aiohttp, on first use: it costs 100 ms to import."""
    return import_module("aiohttp")
