"""Logging in to a remote server: OAuth with an authorization code and PKCE, by the official SDK, in the browser.

Law: tokens are written where only their owner reads them, and only the redirect that this login waits for ends it.
(tests/test_mcp_oauth.py::test_a_login_is_kept_for_its_owner_only)
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from callgate.errors import ConfigError

LOGIN: Final = 300.0
"""Seconds that a person has to log in."""
MAX_REQUEST: Final = 16_000
"""Bytes of the browser's request that are read."""
PAGE: Final = b"<!doctype html><title>callgate</title><p>You are logged in. This page can be closed."

OpenPage = Callable[[str], object]
"""Shows a page to the person; by default in the browser."""


class Login:
    """The login to one server: where it is kept, and how a person makes it."""

    def __init__(self, url: str, show: OpenPage | None = None, folder: Path | None = None) -> None:
        name = hashlib.sha256(url.encode()).hexdigest()[:24]
        self.path = (folder or _state_folder()) / "mcp" / f"{name}.json"
        self.url = url
        self._show = show or webbrowser.open
        self._state = ""
        self._socket: socket.socket | None = None
        self._port = 0
        self._provider: Any = None

    def auth(self) -> object:
        """The SDK's authentication of an HTTP client."""
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata
        from pydantic import AnyUrl

        port = self._listen()
        metadata = OAuthClientMetadata(
            client_name="callgate", redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}/callback")]
        )
        self._provider = OAuthClientProvider(self.url, metadata, self, self._open, self._redirected)
        return self._provider

    def close(self) -> None:
        """Nobody waits for a redirect any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _listen(self) -> int:
        """A port of this machine: the one that was registered, if it is free, else another registration."""
        self.close()
        kept = self._read()
        try:
            self._socket = socket.create_server(("127.0.0.1", int(kept.get("port") or 0)))
        except OSError:
            self._socket = socket.create_server(("127.0.0.1", 0))
        self._port = self._socket.getsockname()[1]
        if self._port != kept.get("port"):
            self._write({**kept, "port": self._port, "client": None})
        return self._port

    # --- the person -----------------------------------------------------------------------------------------------

    async def _open(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")):
            raise ConfigError(f"the server's login page is not https: {parts.scheme}://{parts.hostname}")
        (self._state,) = parse_qs(parts.query)["state"]
        await asyncio.to_thread(self._show, url)

    async def _redirected(self) -> Any:
        """What the authorization server sends the browser back with."""
        from mcp.shared.auth import AuthorizationCodeResult

        found: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
                line = (await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)).decode("latin-1")
                parts = urlsplit(line.split(" ")[1])
                values = {name: each[0] for name, each in parse_qs(parts.query).items()}
                known = parts.path == "/callback" and values.get("state") == self._state  # else somebody else's page
                head = "200 OK" if known else "404 Not Found"
                body = PAGE if known else b""
                writer.write(f"HTTP/1.1 {head}\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n".encode() + body)
                await writer.drain()
                if known and not found.done():
                    found.set_result(values)
            writer.close()

        waiting = self._socket or socket.create_server(("127.0.0.1", self._port))  # None after an earlier login
        server = await asyncio.start_server(serve, sock=waiting, limit=MAX_REQUEST)
        self._socket = None  # the server closes it
        async with server:
            try:
                values = await asyncio.wait_for(found, LOGIN)
            except TimeoutError:
                raise ConfigError(f"nobody logged in within {LOGIN:g} s") from None
        if "code" not in values:
            raise ConfigError(f"the login was refused: {values.get('error', 'no code')[:200]!r}")
        return AuthorizationCodeResult(code=values["code"], state=values["state"], iss=values.get("iss"))

    # --- the SDK's storage ----------------------------------------------------------------------------------------

    async def get_tokens(self) -> Any:
        """The tokens that are kept, or None."""
        from mcp.shared.auth import OAuthToken

        kept = self._read()
        if not kept.get("tokens"):
            return None
        self._provider.context.token_expiry_time = kept.get("expires")  # an expired one is refreshed, not tried
        return OAuthToken.model_validate(kept["tokens"])

    async def set_tokens(self, tokens: Any) -> None:
        """Keeps them."""
        expires = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._write({**self._read(), "tokens": tokens.model_dump(mode="json"), "expires": expires})

    async def get_client_info(self) -> Any:
        """The registration that is kept, or None."""
        from mcp.shared.auth import OAuthClientInformationFull

        kept = self._read().get("client")
        return None if not kept else OAuthClientInformationFull.model_validate(kept)

    async def set_client_info(self, client_info: Any) -> None:
        """Keeps it."""
        self._write({**self._read(), "client": client_info.model_dump(mode="json", exclude_none=True)})

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) and kept.get("url") == self.url else {}

    def _write(self, kept: dict[str, Any]) -> None:
        """Whole or not at all, and readable for its owner only from the first byte on."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_suffix(f".{os.getpid()}.{time.monotonic_ns()}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({**kept, "url": self.url}, file)
        os.replace(draft, self.path)


def _state_folder() -> Path:
    """The user's folder for what programs keep."""
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "callgate"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "callgate"
