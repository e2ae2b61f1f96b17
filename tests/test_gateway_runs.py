"""Agent mode: runs over HTTP, with real processes that are killed, clients that leave, and people who decide."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_model import Model, calls, model, results, text
from gateway_process import Gateway, gateway
from patience import until

TOOLS = """
import pathlib, time
from callgate import tool

@tool(effect="read")
def look(name: str) -> str:
    "Looks."
    return f"{name} is there"

@tool(effect="write", confirm=True)
def pay(to: str, amount: int) -> str:
    "Pays."
    with pathlib.Path("paid.txt").open("a") as file:
        file.write(f"{to} {amount}\\n")
    return f"paid {amount} to {to}"

@tool(effect="write")
def slow(name: str) -> str:
    "Takes its time."
    with pathlib.Path("slow.txt").open("a") as file:
        file.write(f"{name}\\n")
    time.sleep(30)
    return "done"

@tool(effect="read")
def wait(name: str) -> str:
    "Waits until a file is there."
    end = time.monotonic() + 15
    while not pathlib.Path(name).exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    return "there"
"""
PATIENCE = 15.0
# Every test here starts a process or two, on a machine that may be busy.
pytestmark = pytest.mark.timeout(90)


def script(messages: list[dict[str, Any]]) -> Any:
    """The model: it does what the prompt says, and tells the results."""
    prompt = next(m["content"] for m in reversed(messages) if m["role"] == "user")
    done = results(messages)
    words = prompt.split() if isinstance(prompt, str) else []
    if len(words) < 2 or words[0] not in ("hang", "look", "pay", "say", "slow", "wait"):
        return text("What?")
    if words[0] == "say":
        return text(*[f"{word} " for word in words[1:]])
    if words[0] == "hang":
        return [*text("half ", "an answer")[:-3], "hang"]
    if done:
        return text("so: ", *[f"{one}; " for one in done])
    if words[0] == "pay":
        return calls(*[("pay", {"to": to, "amount": 5}) for to in words[1:]], content="I will pay.")
    return calls((words[0], {"name": words[1]}))


@contextmanager
def server(home: Path, *words: str, ledger: str | None = "sqlite:runs.db") -> Iterator[tuple[Gateway, Model]]:
    """A gateway with tools, in front of the scripted model."""
    (home / "tools.py").write_text(TOOLS)
    more = ["--ledger", ledger] if ledger else []
    with model(script) as found, gateway(home, "--tools", "tools.py", *more, *words, backend=found.url) as served:
        yield served, found


class Client:
    """Whoever uses the API."""

    def __init__(self, served: Gateway, key: str | None = None) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.http = httpx.Client(base_url=served.url, headers=headers, timeout=PATIENCE)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def begin(self, prompt: Any, **more: Any) -> str:
        found = self.http.post("/runs", json={"prompt": prompt, **more})
        assert found.status_code == 201, found.text
        assert found.headers["location"] == f"/runs/{found.json()['id']}"
        return str(found.json()["id"])

    def get(self, path: str, **query: Any) -> Any:
        found = self.http.get(path, params=query)
        assert found.status_code == 200, found.text
        return found.json()

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        found = self.http.post(path, json=body)
        assert found.status_code == status, found.text
        return found.json()

    def until(self, run_id: str, state: str) -> Any:
        """The run when it is in this state."""
        end = time.monotonic() + PATIENCE
        while (found := self.get(f"/runs/{run_id}"))["run"]["state"] != state:
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def events(
        self, run_id: str, last: str = "", until: Callable[[dict[str, Any]], bool] | None = None
    ) -> list[dict[str, Any]]:
        """The records of the event stream, to its end or until one of them."""
        headers = {"last-event-id": last} if last else {}
        found: list[dict[str, Any]] = []
        with self.http.stream("GET", f"/runs/{run_id}/events", headers=headers) as answer:
            if answer.status_code == 204:
                return []
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            for record in records(answer.iter_lines()):
                found.append(record)
                if until is not None and until(record):
                    break
        return found


def records(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events: id, event and data."""
    record: dict[str, Any] = {}
    for line in lines:
        if not line:
            if "data" in record:
                yield record
            record = {}
            continue
        name, _, value = line.partition(": ")
        if name:
            record[name] = json.loads(value) if name == "data" else value


def entries_in(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record["data"] for record in found if "seq" in record["data"]]


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return [entry["seq"] for entry in entries_in(found)]


def ended(record: dict[str, Any]) -> bool:
    return record["event"] == "run_finished" and record["data"]["data"]["reason"] != "waiting"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with server(tmp_path_factory.mktemp("runs")) as (found, _):
        yield found


@pytest.fixture
def client(served: Gateway) -> Iterator[Client]:
    with Client(served) as found:
        yield found


# --- a run ------------------------------------------------------------------------------------------------------------


def test_a_run_is_begun_followed_and_told(client: Client) -> None:
    run_id = client.begin("look globe")
    found = client.events(run_id)
    assert numbers(found) == list(range(1, len(numbers(found)) + 1))
    assert ended(found[-1])
    shown = client.get(f"/runs/{run_id}")
    assert shown["run"]["state"] == "ended"
    assert shown["run"]["reason"] == "answered"
    assert shown["text"] == "so: globe is there; "
    assert [m["role"] for m in shown["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert shown["run"]["entries"] == numbers(found)[-1]
    assert [run["id"] for run in client.get("/runs", tool="look", text="globe")["runs"]] == [run_id]
    [call] = client.get("/calls", run=run_id)["calls"]
    assert (call["tool"], call["status"], call["unknown"]) == ("look", "ok", False)
    whole = client.get(f"/runs/{run_id}/calls/{call['call_id']}")
    assert whole["result"]["value"] == "globe is there"


def test_the_text_comes_while_it_is_written_and_then_as_a_whole(client: Client, served: Gateway) -> None:
    run_id = client.begin("hang on")
    found = client.events(run_id, until=lambda record: "an" in record["data"].get("text", ""))
    assert "".join(r["data"]["text"] for r in found if r["event"] == "text").strip() == "half an answer"
    client.post(f"/runs/{run_id}/cancel")
    assert client.until(run_id, "ended")["run"]["reason"] == "cancelled"
    run_id = client.begin("say one two three")
    client.until(run_id, "ended")
    assert [r["event"] for r in client.events(run_id) if r["event"] == "text"] == []  # the entries tell it
    assert client.get(f"/runs/{run_id}")["text"] == "one two three "


def test_a_conversation_goes_on_after_a_run(client: Client) -> None:
    first = client.begin("look lamp")
    client.until(first, "ended")
    second = client.begin("say more", after=first)
    found = client.until(second, "ended")
    assert [m["role"] for m in found["messages"]] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    waiting = client.begin("pay bob")
    client.until(waiting, "waiting")
    client.post("/runs", {"prompt": "x", "after": waiting}, 409)
    client.post(f"/runs/{waiting}/cancel")


def test_a_request_that_is_sent_twice_begins_one_run(client: Client) -> None:
    run_id = client.begin("look lamp", id="mine-0001")
    assert run_id == "mine-0001"
    client.post("/runs", {"prompt": "look lamp", "id": "mine-0001"}, 409)


@pytest.mark.parametrize(
    ("body", "status", "wanted"),
    [
        ({}, 422, "prompt"),
        ({"prompt": ""}, 422, "prompt"),
        ({"prompt": "x", "principal": "root"}, 422, "principal"),
        ({"prompt": "x", "grants": ["all"]}, 422, "grants"),
        ({"prompt": "x", "id": "../../etc"}, 422, "id"),
        ({"prompt": "x", "tools": ["none_such"]}, 422, "none_such"),
        ({"prompt": "x", "model": "none-such"}, 404, "none-such"),
        ({"prompt": "x", "protocol": "none-such"}, 422, "none-such"),
        ({"prompt": "x", "after": "none-such"}, 404, "no such run"),
        ({"prompt": "x", "after": "a", "history": [{"role": "user", "content": "x"}]}, 422, "history"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    client: Client, body: dict[str, Any], status: int, wanted: str
) -> None:
    before = client.get("/runs")
    assert wanted in client.post("/runs", body, status)["error"]["message"]
    assert client.get("/runs") == before


def test_a_body_that_is_no_json_is_told_so(client: Client) -> None:
    assert client.http.post("/runs", content=b"{").status_code == 400
    assert client.http.post("/runs", content=b"\xff\xfe").status_code == 400
    assert client.http.get("/runs", params={"limit": "many"}).status_code == 422
    assert client.http.get("/runs", params={"nonsense": "1"}).status_code == 422
    assert client.http.put("/runs").status_code == 405
    assert client.http.get("/runs/none-such").status_code == 404


# --- whoever leaves and comes back ------------------------------------------------------------------------------------


def test_a_run_goes_on_when_its_client_leaves(tmp_path: Path) -> None:
    with server(tmp_path) as (served, _):
        with Client(served) as client:
            run_id = client.begin("wait go.txt")
            first = client.events(run_id, until=lambda record: record["event"] == "call_started")
        (tmp_path / "go.txt").touch()
        with Client(served) as client:
            assert client.until(run_id, "ended")["text"] == "so: there; "
            rest = client.events(run_id, last=first[-1]["id"])
            assert numbers(first) + numbers(rest) == list(range(1, numbers(rest)[-1] + 1))
            assert client.events(run_id, last=rest[-1]["id"]) == []  # 204: there is nothing more


def test_a_client_that_leaves_at_any_event_misses_nothing(client: Client) -> None:
    run_id = client.begin("look lamp")
    whole = client.events(run_id)
    for place, record in enumerate(whole):
        if "id" in record and "seq" in record["data"]:
            rest = client.events(run_id, last=record["id"])
            assert numbers(whole[: place + 1]) + numbers(rest) == numbers(whole)


def test_a_killed_server_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    with server(tmp_path) as (served, _), Client(served) as client:
        ended_run = client.begin("look lamp")
        client.until(ended_run, "ended")
        before = client.get(f"/runs/{ended_run}")
        waiting = client.begin("pay bob eve")
        client.until(waiting, "waiting")
        cut = client.begin("slow lamp")
        first = client.events(cut, until=lambda record: record["event"] == "call_started")
        began = tmp_path / "slow.txt"
        until(lambda: began.exists() and began.read_text())  # the event comes a moment before the function begins
        served.stop(signal.SIGKILL)
    with server(tmp_path) as (served, _), Client(served) as client:
        assert client.get(f"/runs/{ended_run}") == before
        assert client.get(f"/runs/{cut}")["run"]["state"] == "interrupted"
        [unknown] = client.get("/calls", unknown=True)["calls"]
        assert (unknown["run_id"], unknown["tool"]) == (cut, "slow")

        # The questions stand, and are answered by whoever comes.
        questions = client.get("/questions")["questions"]
        assert [one["question"]["arguments"]["to"] for one in questions] == ["bob", "eve"]
        ids = [one["question"]["call_id"] for one in questions]
        client.post(f"/runs/{waiting}/answers", {"answers": {ids[0]: {"allow": True}}})
        assert [one["question"]["call_id"] for one in client.get("/questions")["questions"]] == ids[1:]
        client.post(f"/runs/{waiting}/answers", {"answers": {ids[1]: {"allow": False}}})
        assert client.until(waiting, "ended")["run"]["reason"] == "answered"
        assert (tmp_path / "paid.txt").read_text() == "bob 5\n"

        # The one that was cut off goes on when somebody says so; its write is not started again.
        path = f"/runs/{cut}/calls/{unknown['call_id']}"
        settled = client.post(f"{path}/settle", {"outcome": "ok", "result": "it was done", "note": "I looked"})
        assert settled["call"]["unknown"] is False
        client.post(f"{path}/settle", {"outcome": "failed"}, 409)
        client.post(f"/runs/{cut}/resume")
        rest = client.events(cut, last=first[-1]["id"])
        assert numbers(first) + numbers(rest) == list(range(1, numbers(rest)[-1] + 1))
        assert client.get(f"/runs/{cut}")["text"] == "so: it was done; "
        assert (tmp_path / "slow.txt").read_text() == "lamp\n"
        client.post(f"/runs/{cut}/resume", status=409)
        assert served.stop() == 0
    assert "Traceback" not in served.stderr


def test_a_server_that_ends_leaves_its_runs_to_be_resumed(tmp_path: Path) -> None:
    with server(tmp_path, "--grace", "0.3") as (served, _), Client(served) as client:
        run_id = client.begin("hang on")
        told: list[dict[str, Any]] = []
        seen = threading.Event()

        def follow() -> None:
            told.extend(client.events(run_id, until=lambda record: seen.set()))  # type: ignore[func-returns-value]

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(follow)
            assert seen.wait(PATIENCE)
            assert served.stop() == 0
            done.result()
        assert told[-1]["event"] == "closing"
    assert "Traceback" not in served.stderr
    with server(tmp_path) as (served, _), Client(served) as client:
        assert client.get(f"/runs/{run_id}")["run"]["state"] == "interrupted"
        assert [run["id"] for run in client.get("/runs", reason="open")["runs"]] == [run_id]


def test_runs_in_memory_need_no_ledger(tmp_path: Path) -> None:
    with server(tmp_path, ledger=None) as (served, _), Client(served) as client:
        run_id = client.begin("pay bob")
        [question] = client.until(run_id, "waiting")["waiting"]
        client.post(f"/runs/{run_id}/answers", {"answers": {question["call_id"]: {"allow": True}}})
        assert client.until(run_id, "ended")["text"] == "so: paid 5 to bob; "
        assert served.stop() == 0


# --- people -----------------------------------------------------------------------------------------------------------


def test_of_two_who_decide_at_once_the_first_counts(client: Client) -> None:
    for _ in range(5):
        run_id = client.begin("pay bob")
        [question] = client.until(run_id, "waiting")["waiting"]
        call_id = question["call_id"]
        assert (question["tool"], question["arguments"]) == ("pay", {"to": "bob", "amount": 5})

        def decide(allow: bool, run_id: str = run_id, call_id: str = call_id) -> httpx.Response:
            return client.http.post(f"/runs/{run_id}/answers", json={"answers": {call_id: {"allow": allow}}})

        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(decide, [True, False]))
        first, second = sorted(found, key=lambda answer: answer.status_code)
        assert (first.status_code, second.status_code) == (200, 409), (first.text, second.text)
        [counted] = first.json()["answers"]
        assert second.json()["error"]["decided"]["allow"] is counted["allow"]
        shown = client.until(run_id, "ended")
        assert ("paid 5 to bob" in shown["text"]) is counted["allow"]
        assert [one["allow"] for one in shown["decided"]] == [counted["allow"]]


def test_a_question_that_nobody_asked_is_not_answered(client: Client) -> None:
    run_id = client.begin("pay bob")
    client.until(run_id, "waiting")
    answer = client.post(f"/runs/{run_id}/answers", {"answers": {"none": {"allow": True}}}, 409)
    assert answer["error"]["waiting"] == [one["call_id"] for one in client.get(f"/runs/{run_id}")["waiting"]]
    client.post(f"/runs/{run_id}/answers", {"answers": {"none": {"allow": "yes"}}}, 422)
    client.post(f"/runs/{run_id}/resume", status=409)
    client.post(f"/runs/{run_id}/cancel")
    client.post(f"/runs/{run_id}/cancel", status=409)


KEYS = """
[[keys]]
name = "alice"
key = "cg-alice-0001"
tools = ["look", "pay"]

[[keys]]
name = "bob"
key = "cg-bob-000001"

[[keys]]
name = "ops"
key = "cg-ops-000001"
operator = true
"""


def test_a_run_belongs_to_the_key_that_began_it(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(KEYS)
    with (
        server(tmp_path, "--keys", "keys.toml") as (served, _),
        Client(served, "cg-alice-0001") as alice,
        Client(served, "cg-bob-000001") as bob,
        Client(served, "cg-ops-000001") as ops,
    ):
        run_id = alice.begin("pay lamp")
        [question] = alice.until(run_id, "waiting")["waiting"]
        assert alice.get(f"/runs/{run_id}")["run"]["principal"] == "alice"
        answers = {"answers": {question["call_id"]: {"allow": True}}}
        for path in (f"/runs/{run_id}", f"/runs/{run_id}/events", f"/runs/{run_id}/calls/{question['call_id']}"):
            assert bob.http.get(path).status_code == 404
        for action in ("cancel", "resume"):
            bob.post(f"/runs/{run_id}/{action}", status=404)
        bob.post(f"/runs/{run_id}/answers", answers, 404)
        bob.post("/runs", {"prompt": "say x", "after": run_id}, 404)
        assert bob.get("/runs") == {"runs": []}
        assert bob.get("/runs", principal="alice") == {"runs": []}
        assert bob.get("/questions") == {"questions": []}
        assert bob.get("/calls") == {"calls": []}
        assert bob.http.get("/stats").status_code == 403
        assert [one["run_id"] for one in ops.get("/questions")["questions"]] == [run_id]
        ops.post(f"/runs/{run_id}/answers", answers)
        shown = alice.until(run_id, "ended")
        assert shown["decided"][0]["by"] == "ops"
        assert shown["text"] == "so: paid 5 to lamp; "
        assert ops.get("/stats")["runs"] == {"answered": 1}
        # What a key may not call, its runs may not either.
        refused = alice.begin("wait go.txt")
        assert "may not call wait" in alice.until(refused, "ended")["text"]
