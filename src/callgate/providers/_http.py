"""The one client through which providers speak HTTP; the only file that knows aiohttp.

Law: this package asks once: nothing is asked again here once a byte of the answer has come. The run may ask again after
its event `Retrying`, which makes the text before it void for every view.
(tests/test_providers_limits.py::test_an_answer_that_broke_off_is_asked_for_again_by_the_run_only)
Law: a key is never in an error, a log or a record. (tests/test_providers_http.py::test_the_key_is_nowhere)

Theory of operation.
1. A request is tried again (with growing pauses, or when the server says so) only before the first byte of its answer,
   and only for failures that pass: no connection, 408, 429, 500 to 599. A parser that failed (500 with such words)
   fails again, so it is not asked again.
2. Three clocks: `connect`, `first` (until the first token: a cold model loads, a long prompt is read; headers and
   comments that keep the connection alive are none) and `idle` (between two records); `total` is off unless set. A 503
   that says "loading" is asked again as long as `first` lasts.
3. Leaving the stream early closes the connection; reading to its end gives it back for the next request.
4. Sessions belong to their event loop. `aclose` closes that of the running one; a loop that ends (`asyncio.run`) closes
   its own, because an async generator that holds the session is closed with the loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from callgate import masking
from callgate.errors import (
    ConfigError,
    EndedEarly,
    LimitExceeded,
    ProtocolBroken,
    ProviderError,
    Unreachable,
)
from callgate.providers._body import SURROGATES, Body, beginning, dump, whole
from callgate.providers._failures import hide, passing, refusal, retry_after
from callgate.types import EMPTY

MAX_BODY = 8 * 1024 * 1024
"""Bytes of an answer that is read whole (lists of models, error pages)."""
_GRACE = 0.25
"""Seconds that a server gets to end a stream whose last record has come; then the connection is closed."""
_PROBE = 3.0
"""Seconds for a probe to be answered."""
_LOOK = 1.0
"""Seconds between two looks at a stream's clocks."""
_LOADING = re.compile(r"\bloading|still load|starting up|warming up", re.IGNORECASE)
_LOADING_PAUSE = 2.0
"""The longest pause between two looks whether a model is loaded."""


@dataclass(slots=True, frozen=True)
class Timeouts:
    """Seconds; None: no limit."""

    connect: float | None = 10.0
    first: float | None = 300.0
    """Until the first token."""
    idle: float | None = 120.0
    """Between two records of a stream."""
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


class HttpClient:
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
        return f"HttpClient({self.shown!r})"

    @property
    def secret(self) -> str:
        """The key, for those who must keep it out of what they write."""
        return self._secret

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key and the headers that hold one, for those who must keep them out of what they write.

        Keys that local servers ask for and do not look at ("ollama", "EMPTY") are none: they are words.
        """
        known = [self._secret]
        for name, value in self._headers.items():
            if masking.is_secret_name(name):
                known += [value, value.rpartition(" ")[2]]
        return tuple(text for text in known if len(text) >= 8 and any(char.isdigit() for char in text))

    def _sent(self, more: Mapping[str, str], *, body: bool) -> dict[str, str]:
        """The headers of one request; a key that is a function is asked for each."""
        if callable(self._key):
            self._secret = self._key()
        out = {**more, "Content-Type": "application/json"} if body else dict(more)
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

    def warm(self) -> None:
        """Loads what the first request needs. Takes a quarter of a second, in any thread."""
        _aiohttp()

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
                auto_decompress=False,  # Body does it, in bounded pieces
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
        """Closes the connections of this event loop; the client may be used again."""
        _, held = self._sessions.pop(asyncio.get_running_loop(), (None, None))
        if held is not None:
            await held.aclose()

    # --- one exchange ---------------------------------------------------------------------------------------------

    async def ask(self, method: str, path: str, body: Any = None, *, model: str = "", probe: bool = False) -> Any:
        """One whole exchange of JSON, for what is not streamed. A `probe` is for what is nice to know: one try, soon
        given up; its path is from the root of the server if it begins with two slashes."""
        url = f"{self._root}{path[1:]}" if path.startswith("//") else f"{self.base_url}{path}"
        data = None if body is None else dump(body)[0]
        response = await self._answer(method, url + self._query, data, model, probe=probe)
        try:
            async with asyncio.timeout(_PROBE if probe else self._network.timeout.idle):
                answer = await whole(response, MAX_BODY)
            return json.loads(answer)
        except LimitExceeded as error:
            text = f"{self.name}: {self.shown}{path} gave more than MAX_BODY = {MAX_BODY} bytes"
            raise ProtocolBroken(text, provider=self.name) from error
        except (ValueError, RecursionError) as error:
            raise ProtocolBroken(f"{self.name}: {self.shown}{path} gave no JSON", provider=self.name) from error
        except TimeoutError as error:
            raise EndedEarly(f"{self.name}: {self.shown}{path} went silent", provider=self.name) from error
        except _aiohttp().ClientError as error:
            raise EndedEarly(f"{self.name}: {self._words(error)}", provider=self.name) from error
        finally:
            response.close()

    @asynccontextmanager
    async def stream(
        self, path: str, body: Mapping[str, Any], *, model: str = "", headers: Mapping[str, str] = EMPTY
    ) -> AsyncIterator[Stream]:
        """The bytes of an answer; `headers` of this request beside those of the client. What fails before the first
        byte is raised here."""
        data, mended = dump(body)
        response = await self._answer("POST", f"{self.base_url}{path}{self._query}", data, model, headers=headers)
        try:
            stream = Stream(response, self)
            stream.notes = (SURROGATES,) if mended else ()
        except ValueError as error:
            response.close()
            raise ProtocolBroken(f"{self.name}: {self.shown} sent {error}", provider=self.name) from error
        try:
            yield stream
        finally:
            stream.close()

    async def _answer(
        self,
        method: str,
        url: str,
        data: bytes | None,
        model: str,
        *,
        probe: bool = False,
        headers: Mapping[str, str] = EMPTY,
    ) -> Any:
        """Rule 1: the response, its status fine and its body not yet read."""
        attempt, pause, began = 0, 0.25, asyncio.get_running_loop().time()
        first = _PROBE if probe else self.timeout.first
        while True:
            try:
                return await self._once(method, url, data, model, first=first, headers=headers)
            except ProviderError as error:
                if not probe and self._loads(error, began):
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LOADING_PAUSE)
                    continue
                attempt += 1
                error.tries = attempt
                if probe or attempt > self._network.retries or not passing(error):
                    raise
                wait = self._network.backoff * 2 ** (attempt - 1) * (0.75 + random.random() / 2)  # noqa: S311
                asked = getattr(error, "retry_after", None)
                if asked is not None:
                    if asked > self._network.max_wait:
                        raise
                    wait = max(asked, 0.0)
            await asyncio.sleep(wait)

    def _loads(self, error: ProviderError, began: float) -> bool:
        """Whether the server is loading its model, and there is time to wait for it."""
        if error.status != 503 or not _LOADING.search(str(error)):
            return False
        return self.timeout.first is None or asyncio.get_running_loop().time() - began < self.timeout.first

    async def _once(
        self, method: str, url: str, data: bytes | None, model: str, *, first: float | None, headers: Mapping[str, str]
    ) -> Any:
        aiohttp = _aiohttp()
        try:
            async with asyncio.timeout(first):
                session = await self._session()
                response = await session.request(
                    method,
                    url,
                    data=data,
                    headers=self._sent(headers, body=data is not None),
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
            text = self.hide(" ".join(error.message.split())[:200])
            return ProtocolBroken(f"{self.name}: what {self.shown} sent is not HTTP: {text}", provider=self.name)
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
                body = await beginning(response, 64 * 1024)
        except (_aiohttp().ClientError, OSError, TimeoutError, ValueError):
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
            retry_after=retry_after(response.headers),
            key_hint=self._key_hint,
            secrets=(self._secret, *self._given),
        )

    def hide(self, text: str) -> str:
        """The text without this client's keys and whatever looks like one."""
        return hide(text, self._secret, *self._given)

    def _words(self, error: BaseException) -> str:
        return self.hide(" ".join((str(error) or type(error).__name__).split())[:300])

    def early(self, error: BaseException) -> EndedEarly:
        """The error for a stream that broke."""
        return EndedEarly(f"{self.name}: the connection broke: {self._words(error)}", provider=self.name)

    @property
    def timeout(self) -> Timeouts:
        """The clocks of this client."""
        return self._network.timeout


Mouth = HttpClient
"""The client's former name: programs outside this repository, the public field cases among them, still import it."""


class Stream:
    """The bytes of one answer, as they come.

    The idle clock is one timer for the whole stream, moved by looking at the time of the last piece (rule 2).
    """

    def __init__(self, response: Any, client: HttpClient) -> None:
        self._response = response
        self._body = Body(response)
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._last = self._started = self._loop.time()
        self._expired = ""
        self._waiting = False
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self.notes: tuple[str, ...] = ()
        """What had to be changed in the request."""
        self.taps: list[Callable[[bytes], None]] = []
        """Each is given every piece as it comes (recording)."""
        self._arm()

    def _arm(self) -> None:
        timeout = self._client.timeout
        silent = _sum(self._last, timeout.idle if self._begun else timeout.first)
        ends = [t for t in (silent, _sum(self._started, timeout.total)) if t is not None]
        self._timer = self._loop.call_at(min([*ends, self._loop.time() + _LOOK]), self._check)

    def _check(self) -> None:
        now, timeout = self._loop.time(), self._client.timeout
        if timeout.total is not None and now - self._started >= timeout.total:
            self._expired = f"no end within timeout.total = {timeout.total:g} s"
        elif not self._begun and timeout.first is not None and now - self._last >= timeout.first:
            self._expired = f"no token within timeout.first = {timeout.first:g} s"
        elif self._begun and timeout.idle is not None and now - self._last >= timeout.idle:
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
            piece = await self._body.read()
        except (_aiohttp().ClientError, OSError) as error:
            if self._expired:
                text = f"{self._client.name}: the stream was given up after {self._expired}"
                raise EndedEarly(text, provider=self._client.name) from error
            raise self._client.early(error) from error
        except LimitExceeded as error:
            raise LimitExceeded(f"{self._client.name}: {error}; the answer was given up") from error
        except ValueError as error:
            raise self._client.early(error) from error
        self._waiting = False
        for tap in self.taps:
            tap(piece)
        return piece

    def progress(self, *, begun: bool, records: int) -> None:
        """What the last piece held: tokens, or records at least (rule 2)."""
        if not self._begun and begun:
            self._begun = True
            self._last = self._loop.time()
            if self._timer is not None:
                self._timer.cancel()
            self._arm()
        elif self._begun and records:
            self._last = self._loop.time()

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


async def _hold(session: Any) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await session.close()


@cache
def _aiohttp() -> Any:
    """aiohttp, on first use: it costs 100 ms to import."""
    return import_module("aiohttp")
