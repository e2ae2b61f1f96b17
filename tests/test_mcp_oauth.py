"""Logging in to a remote MCP server, against a real authorization server on this machine."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from callgate import mcp
from callgate.errors import ConfigError, Unreachable
from patience import until

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

GUARDED = str(Path(__file__).parent / "mcp_servers" / "guarded.py")


@contextmanager
def guarded(*options: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, GUARDED, str(port), *options], stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), 20)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    return tmp_path / "callgate" / "mcp"


class Browser:
    """Follows a login page to its end, as a person's browser would."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def __call__(self, url: str) -> None:
        self.pages.append(url)
        threading.Thread(target=self.follow, args=(url,), daemon=True).start()

    def follow(self, url: str) -> None:
        with urllib.request.urlopen(url, timeout=10) as page:
            page.read()


def count(server: mcp.Server) -> dict[str, int]:
    found: dict[str, int] = asyncio.run(server.tools["count"].prepare({})())
    return found


def test_a_login_is_kept_for_its_owner_only(state: Path) -> None:
    browser = Browser()
    with guarded() as url:
        with mcp.connect(url, oauth=browser) as server:
            assert count(server) == {"registered": 1, "authorized": 1, "refreshed": 0}
        asked = parse_qs(urlsplit(browser.pages[0]).query)
        assert asked["code_challenge_method"] == ["S256"]
        (file,) = state.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        with mcp.connect(url, oauth=browser) as server:
            assert count(server) == {"registered": 1, "authorized": 1, "refreshed": 0}
        assert len(browser.pages) == 1


def test_an_expired_login_is_refreshed_without_the_person(state: Path) -> None:
    browser = Browser()
    with guarded("3600") as url:
        mcp.connect(url, oauth=browser).open().close()
        (file,) = state.iterdir()
        file.write_text(json.dumps({**json.loads(file.read_text()), "expires": time.time() - 5}))
        with mcp.connect(url, oauth=browser) as server:
            assert count(server) == {"registered": 1, "authorized": 1, "refreshed": 1}


def test_only_the_redirect_that_is_waited_for_ends_a_login() -> None:
    class Disturbed(Browser):
        def follow(self, url: str) -> None:
            (target,) = parse_qs(urlsplit(url).query)["redirect_uri"]
            for wrong in (f"{target}?code=x&state=wrong", f"{target}?code=x", target.replace("callback", "other")):
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    urllib.request.urlopen(wrong, timeout=10)
            super().follow(url)

    with guarded() as url, mcp.connect(url, oauth=Disturbed()) as server:
        assert count(server)["authorized"] == 1


def test_a_refused_login_is_an_error_that_says_so() -> None:
    class Refusing(Browser):
        def follow(self, url: str) -> None:
            asked: Any = parse_qs(urlsplit(url).query)
            super().follow(f"{asked['redirect_uri'][0]}?error=access_denied&state={asked['state'][0]}")

    with guarded() as url, pytest.raises(Unreachable, match="the login was refused: 'access_denied'"):
        mcp.connect(url, oauth=Refusing()).open()


def test_without_a_login_a_guarded_server_is_an_error() -> None:
    with guarded() as url, pytest.raises(Unreachable):
        mcp.connect(url).open()


def test_only_a_server_with_a_url_asks_for_a_login() -> None:
    with pytest.raises(ConfigError, match="oauth"):
        mcp.connect("some-server", oauth=True)
