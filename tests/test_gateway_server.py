"""The process behind `callgate serve`: how it begins, listens and ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gateway_process import NOWHERE, PATIENCE, gateway


def _serve(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "callgate", "serve", *words, NOWHERE],
        cwd=home,
        env={**os.environ, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_first_line_is_the_address_and_it_answers_there(tmp_path: Path) -> None:
    with gateway(tmp_path) as served:
        assert served.line == f"callgate http://127.0.0.1:{served.port}"
        assert httpx.get(f"{served.url}/healthz").json()["status"] == "ok"
        assert httpx.get(f"{served.url}/readyz").status_code == 200
        assert served.stop() == 0
    assert "Traceback" not in served.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_at_once(tmp_path: Path, number: int) -> None:
    with gateway(tmp_path) as served, httpx.Client() as client:
        assert client.get(f"{served.url}/healthz").status_code == 200  # leaves an idle connection behind
        assert served.stop(number) == 0
    assert "Traceback" not in served.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--host", "0.0.0.0"], "--key"),
        (["--host", "::"], "--key"),
        (["--certificate", "none.pem"], "none.pem"),
        (["--proxy", "somewhere"], "somewhere"),
        (["--origin", "example.org"], "https://"),
        (["--origin", "*"], "--key"),
        (["--key", "short"], "8 to 512"),
        (["--key", "with spaces in it"], "8 to 512"),
        (["--heartbeat", "0"], "--heartbeat"),
        (["--max-body", "much"], "--max-body"),
        (["--unix-socket", "."], "--unix-socket"),
    ],
)
def test_a_wrong_option_is_one_line_and_nothing_is_opened(tmp_path: Path, words: list[str], wanted: str) -> None:
    done = _serve(tmp_path, "--port", "0", *words)
    assert done.returncode in {1, 2}
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert wanted in done.stderr
    assert "with spaces in it" not in done.stderr


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = _serve(tmp_path, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "--port" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_unix_socket_is_the_users_own_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "gate"
    with gateway(tmp_path, "--unix-socket", str(path)) as served:
        assert served.line == f"callgate unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://localhost/healthz").status_code == 200
        assert served.stop() == 0
    assert not path.exists()


def test_a_unix_socket_that_a_killed_server_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "gate"
    with gateway(tmp_path, "--unix-socket", str(path)) as served:
        served.stop(signal.SIGKILL)
    assert path.exists()
    with gateway(tmp_path, "--unix-socket", str(path)) as served:
        again = _serve(tmp_path, "--unix-socket", str(path))
        assert "another process" in again.stderr
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://localhost/healthz").status_code == 200


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')")
    done = subprocess.run(
        [sys.executable, "-m", "callgate", "serve", "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == 'callgate: the gateway needs the extra "gateway": pip install "callgate[gateway]"'


def test_health_is_told_and_unknown_paths_are_errors_in_form(tmp_path: Path) -> None:
    with gateway(tmp_path) as served:
        assert httpx.get(f"{served.url}/nowhere").status_code == 404
