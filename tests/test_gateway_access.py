"""Who may come in, and what a key allows."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx
import ollama
import openai
import pytest

from callgate.apps.gateway import keyring
from callgate.apps.gateway.access import host_name, read_head, same_origin
from callgate.apps.gateway.keyring import Keyring, Window
from callgate.apps.gateway.metrics import MAX_VALUES, Metrics
from callgate.apps.gateway.refusals import Refusal
from callgate.errors import ConfigError
from gateway_process import Gateway, gateway, talk

KEY = "cg-top-secret-0001"
HASHED = "cg-top-secret-0002"
FILE = f"""
[[keys]]
name = "alice"
key = "{KEY}"
grants = ["orders.read"]
models = ["small*"]
rate = "3/min"

[[keys]]
name = "ops"
sha256 = "{hashlib.sha256(HASHED.encode()).hexdigest()}"
operator = true
"""


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A server with keys, an allowed origin and an access log."""
    home = tmp_path_factory.mktemp("gateway")
    (home / "keys.toml").write_text(FILE)
    words = ["--keys", "keys.toml", "--origin", "https://chat.example.org", "--access-log", "access.log"]
    with gateway(home, *words, "--max-body", "1k") as found:
        yield found


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A server without keys."""
    with gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


def test_without_a_key_or_with_a_wrong_one_nothing_is_opened(served: Gateway) -> None:
    for headers in ({}, bearer("cg-top-secret-9999"), {"x-api-key": ""}, {"authorization": f"Basic {KEY}"}):
        answer = httpx.get(f"{served.url}/metrics", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    for headers in (bearer(KEY), {"x-api-key": KEY}, bearer(HASHED), {"authorization": f"bearer {HASHED}"}):
        assert httpx.get(f"{served.url}/metrics", headers=headers).status_code == 200
    assert httpx.get(f"{served.url}/healthz").status_code == 200  # whoever watches a server has no key


def test_official_clients_read_a_refusal_as_their_own_error(served: Gateway) -> None:
    message = {"role": "user", "content": "hi"}
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="wrong", max_retries=0) as of_openai:
        with pytest.raises(openai.AuthenticationError) as first:
            of_openai.models.list()
    assert first.value.code == "invalid_api_key"
    with anthropic.Anthropic(base_url=served.url, api_key="wrong", max_retries=0) as of_anthropic:
        with pytest.raises(anthropic.AuthenticationError) as second:
            of_anthropic.messages.create(model="m", max_tokens=10, messages=[message])  # type: ignore[list-item]
    assert second.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    with ollama.Client(host=served.url) as of_ollama:
        with pytest.raises(ollama.ResponseError) as third:
            of_ollama.chat(model="m", messages=[message])
    assert third.value.status_code == 401
    assert "key" in third.value.error


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:8088", 200),
        ("app.localhost", 200),
        ("evil.example", 421),
        ("evil.example:8088", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("192.168.0.7", 421),
        ("a b", 400),
        ("x@localhost", 400),
        ("", 400),
    ],
)
def test_a_page_under_a_name_of_its_own_does_not_reach_it(opened: Gateway, host: str, status: int) -> None:
    assert httpx.get(f"{opened.url}/healthz", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "https://chat.example.org.evil.example"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://chat.example.org"}, 200),
    ],
)
def test_a_page_of_another_site_may_not_ask_anything(served: Gateway, headers: dict[str, str], status: int) -> None:
    answer = httpx.get(f"{served.url}/metrics", headers={**bearer(KEY), **headers})
    assert answer.status_code == status
    shown = headers["origin"] if status == 200 and "origin" in headers else None
    assert answer.headers.get("access-control-allow-origin") == shown


def test_its_own_page_and_an_allowed_origin_may(served: Gateway) -> None:
    own = httpx.get(f"{served.url}/metrics", headers={**bearer(KEY), "origin": served.url})
    assert own.status_code == 200
    asked = {
        "origin": "https://chat.example.org",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
    }
    before = httpx.options(f"{served.url}/v1/chat/completions", headers=asked)
    assert before.status_code == 204
    assert before.headers["access-control-allow-headers"] == asked["access-control-request-headers"]
    assert "access-control-allow-credentials" not in before.headers
    refused = httpx.options(f"{served.url}/v1/chat/completions", headers={**asked, "origin": "https://evil.example"})
    assert refused.status_code == 403


def test_requests_of_a_key_have_a_rate(served: Gateway) -> None:
    seen = [httpx.post(f"{served.url}/nowhere", headers=bearer(KEY)).status_code for _ in range(5)]
    assert seen == [404, 404, 404, 429, 429]
    answer = httpx.post(f"{served.url}/v1/messages", headers=bearer(KEY))
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(answer.headers["retry-after"]) <= 61
    assert httpx.post(f"{served.url}/nowhere", headers=bearer(HASHED)).status_code == 404


def test_what_may_not_come_in_is_not_read(served: Gateway) -> None:
    """A body that is too large is refused by its length, before a byte of it is sent."""
    head = f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\nX-Api-Key: {HASHED}\r\n"
    answer = talk(served.port, f"{head}Expect: 100-continue\r\n\r\n".encode(), until=b"request_too_large")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_no_key_is_told_anywhere(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(FILE)
    with gateway(tmp_path, "--keys", "keys.toml", "--access-log", "access.log") as served:
        told = [
            httpx.get(f"{served.url}/metrics?key={KEY}", headers=bearer(KEY)).text,
            httpx.get(f"{served.url}/nowhere", headers=bearer(KEY)).text,
            httpx.get(f"{served.url}/nowhere", headers=bearer(KEY + "x")).text,
            httpx.get(f"{served.url}/nowhere", headers={**bearer(KEY), "host": "evil.example"}).text,
        ]
        (tmp_path / "keys.toml").write_text(FILE.replace(f'"{KEY}"', f"'{KEY}"))  # broken just behind the key
        served.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert httpx.get(f"{served.url}/metrics", headers=bearer(KEY)).status_code == 200  # the old ones hold
        served.stop()
    log = (tmp_path / "access.log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["status"] for line in lines] == [200, 404, 401, 421, 200]
    assert {line["key"] for line in lines} == {"alice", None}
    assert "keys.toml" in served.stderr
    assert KEY not in "".join([*told, log, served.stderr])


def test_a_hangup_reads_the_keys_again_and_usage_counts_on(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(FILE)
    with gateway(tmp_path, "--keys", "keys.toml") as served:
        for _ in range(3):
            httpx.post(f"{served.url}/nowhere", headers=bearer(KEY))
        file.write_text(FILE.replace(HASHED, "-").split('[[keys]]\nname = "ops"')[0])
        served.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 5
        while httpx.get(f"{served.url}/metrics", headers=bearer(HASHED)).status_code != 401:
            assert time.monotonic() < deadline
        assert httpx.post(f"{served.url}/nowhere", headers=bearer(KEY)).status_code == 429


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "no key in it"),
        ("x = 1", "[[keys]]"),
        ("[[keys]]\nname='a'\nkey='tiny'", "8 to 512"),
        ("[[keys]]\nname='a'\nsha256='zz'", "64 hexadecimal"),
        ("[[keys]]\nname='a'", "either key or sha256"),
        ("[[keys]]\nname='a'\nkey='12345678'\nrate='fast'", "rate"),
        ("[[keys]]\nname='a'\nkey='12345678'\nrole='x'", "role is unknown"),
        ("[[keys]]\nname='a'\nkey='12345678'\nstreams=0", "streams"),
        ("[[keys]]\nname='a'\nkey='12345678'\nmodels='all'", "models"),
        ("[[keys]]\nname='a'\nkey='12345678'\n[[keys]]\nname='a'\nkey='12345679'", "given twice"),
        ("[[keys]]\nname='a'\nkey='12345678'\n[[keys]]\nname='b'\nkey='12345678'", "the same key"),
        ("[[keys]]\nname='a'\nkey='12345678'\n[keys.policy.nothing]", "no rule"),
        ("[[keys]]\nname='a\\nb'\nkey='12345678'", "name"),
        ("[[keys", "not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_of_keys_is_told_without_the_keys(tmp_path: Path, text: str, wanted: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as found:
        keyring.make((), str(file))
    assert wanted in str(found.value)
    assert "12345678" not in str(found.value)


def test_a_key_allows_what_its_table_says(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(FILE)
    ring = keyring.make((), str(file))
    alice, ops = ring.find(KEY), ring.find(HASHED)
    assert alice is not None
    assert ops is not None
    assert alice.principal is not None
    assert alice.principal.grants == {"orders.read"}
    assert alice.may_use("small-1")
    assert not alice.may_use("large")
    assert alice.sees("alice")
    assert not alice.sees("ops")
    assert not alice.sees(None)
    assert ops.sees("alice")
    assert ops.may_use("large")
    assert Keyring().find(KEY) is None


def test_a_window_opens_again_as_what_was_used_grows_old() -> None:
    now = [0.0]
    window = Window(10, 100.0, lambda: now[0])
    window.add(6)
    now[0] = 50.0
    assert window.wait() == 0
    window.add(6)
    assert window.wait() == 50.0
    assert window.left == 0
    now[0] = 100.0
    assert window.wait() == 0
    assert window.left == 4
    for _ in range(10_000):  # many small ones are one
        window.add(0)
    assert len(window._used) <= 2
    assert Window(0, 60.0).wait() == 60.0


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"a"), (b"host", b"b")],
        [(b"content-length", b"1"), (b"content-length", b"2")],
        [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"+1")],
        [(b"content-length", b"1_0")],
        [(b"transfer-encoding", b"chunked, identity")],
        [(b"transfer-encoding", b"xchunked")],
        [(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")],
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Refusal) as found:
        read_head(headers)
    assert found.value.status == 400


def test_hosts_and_origins_are_compared_as_what_they_are() -> None:
    assert host_name("LocalHost.:80") == "localhost"
    assert host_name("[::1]") == "::1"
    assert host_name("a/b") is None
    assert host_name("localhost:80:80") is None
    assert same_origin("http://a", "http", "a:80")
    assert same_origin("https://a:8443", "https", "A:8443")
    assert not same_origin("https://a", "http", "a")
    assert not same_origin("http://a", "http", "a:8080")
    assert not same_origin("http://a:x", "http", "a")
    assert not same_origin("null", "http", "null")


def test_metrics_count_what_happened_and_stay_small(served: Gateway) -> None:
    httpx.get(f"{served.url}/nowhere", headers=bearer(HASHED))
    text = httpx.get(f"{served.url}/metrics", headers=bearer(HASHED)).text
    assert 'callgate_requests_total{route="none",status="404"}' in text
    assert "callgate_requests_running 1" in text
    metrics = Metrics()
    for number in range(1000):
        metrics.count("callgate_calls_total", tool=f'a"\n\\{number}' + "x" * 1000, outcome="passed")
    lines = metrics.text().splitlines()
    calls = [line for line in lines if line.startswith("callgate_calls_total{")]
    assert len(calls) == MAX_VALUES + 1
    assert all(line.count('"') - line.count('\\"') == 4 and len(line) < 200 for line in calls)
    assert 'callgate_calls_total{tool="other",outcome="passed"} 800' in calls


def test_a_trusted_proxy_tells_of_its_client_and_nobody_else_does(tmp_path: Path) -> None:
    told = {"x-forwarded-for": "6.6.6.6, 1.2.3.4", "x-forwarded-proto": "https", "x-forwarded-host": "chat.example.org"}
    words = ["--access-log", "access.log", "--allow-host", "chat.example.org"]
    with gateway(tmp_path, *words, "--proxy", "127.0.0.0/8") as served:
        origin = {"origin": "https://chat.example.org"}
        assert httpx.get(f"{served.url}/healthz", headers={**told, **origin}).status_code == 200
        served.stop()
    line = json.loads((tmp_path / "access.log").read_text())
    assert line["client"] == "1.2.3.4"  # what stands left of it, anybody may have written
    with gateway(tmp_path, *words, "--proxy", "10.0.0.1") as served:
        assert httpx.get(f"{served.url}/healthz", headers=told).status_code == 200
        assert httpx.get(f"{served.url}/healthz", headers={**told, **origin}).status_code == 403
        served.stop()
    assert json.loads((tmp_path / "access.log").read_text().splitlines()[-1])["client"] == "127.0.0.1"
