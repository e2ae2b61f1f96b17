"""callgate runs, calls, ledger and stats, as a person uses them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from callgate import Agent, Replay, tool
from callgate import ledger as ledgers
from callgate.apps.cli import cli
from callgate.ledger import Ledger, intent
from callgate.types import Entry, Principal, ToolCall

PAY = {"name": "pay", "arguments": {"cents": 5}}


@tool(effect="write")
def pay(cents: int) -> str:
    """Pays, and the line drops."""
    raise ConnectionError("lost")


@tool(effect="write", confirm=True)
def wipe(path: str) -> str:
    """Wipes."""
    return f"wiped {path}"


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger with a run of unknown outcome, one that waits, and one that was cut off in a write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = f"sqlite:{tmp_path}/runs.db"

    async def fill() -> None:
        ledger = ledgers.open(place)
        agent = Agent(Replay([{"calls": [PAY]}, "it is open"]), tools=[pay], ledger=ledger, dialect="hermes")
        await agent.run("pay 5", principal=Principal("u"), run_id="unknown")
        wiping = {"name": "wipe", "arguments": {"path": "tmp"}}
        agent = Agent(Replay([{"calls": [wiping]}, "done"]), tools=[wipe], ledger=ledger, dialect="hermes")
        assert (await agent.run("wipe it", run_id="waits")).reason == "waiting"
        call = ToolCall("c1", "pay", {"cents": 7})
        proposed = {"call": {"type": "tool_call", "id": "c1", "name": "pay", "arguments": {"cents": 7}}}
        start = Entry("run_started", {"model": "m", "principal": "u", "prompt": "pay 7", "protocol": "native"})
        await ledger.append("cut", [start, Entry("call_proposed", proposed), intent("cut", call, "u")])
        await ledger.aclose()

    asyncio.run(fill())
    return place


def run(*words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == status, (words, result.output, result.exception)
    return result


def with_ledger(where: str, work: Any) -> Any:
    async def opened() -> Any:
        ledger: Ledger = ledgers.open(where)
        try:
            return await work(ledger)
        finally:
            await ledger.aclose()

    return asyncio.run(opened())


def test_runs_are_listed_and_shown(where: str) -> None:
    lines = run("runs", "list", "--ledger", where).stdout.splitlines()
    assert [(line.split()[0], line.split()[-2:]) for line in lines] == [
        ("cut", ["pay", "7"]),
        ("waits", ["wipe", "it"]),
        ("unknown", ["pay", "5"]),
    ]
    assert "interrupted" in lines[0]
    told = json.loads(run("runs", "list", "--json", "--reason", "waiting", "--ledger", where).stdout)
    assert (told["run_id"], told["reason"], told["running"]) == ("waits", "waiting", False)
    shown = run("runs", "show", "unknown", "--ledger", where).stdout
    assert "call_intent" in shown
    assert "unknown outcome: " in shown
    entries = [json.loads(line) for line in run("runs", "show", "cut", "--json", "--ledger", where).stdout.splitlines()]
    assert [e["kind"] for e in entries] == ["run_started", "call_proposed", "call_intent"]
    assert "no such run" in str(run("runs", "show", "nobody", "--ledger", where, status=1).exception)


def test_a_write_of_unknown_outcome_is_found_and_settled(where: str) -> None:
    listed = run("calls", "list", "--unknown", "--ledger", where).stdout.splitlines()
    assert [line.split()[:2] for line in listed] == [["cut", "c1"], ["unknown", "call_1_1"]]
    run("calls", "settle", "unknown", "call_1_1", "--ok", "--result", '{"receipt": 7}', "--ledger", where)
    run("calls", "settle", "cut", "c1", "--failed", "--note", "the bank has no such transfer", "--ledger", where)
    assert run("calls", "list", "--unknown", "--ledger", where).stdout == ""

    async def look(ledger: Ledger) -> Any:
        writes = [await ledger.write("unknown", "call_1_1"), await ledger.write("cut", "c1")]
        return [(w.result.status, w.result.value, w.settled_by) for w in writes if w and w.result]

    assert with_ledger(where, look) == [("ok", {"receipt": 7}, "person"), ("failed", None, "person")]
    assert "sound" in run("ledger", "verify", "--ledger", where).stdout
    again = run("calls", "settle", "cut", "c1", "--ok", "--ledger", where, status=1)
    assert "its outcome is known: failed" in str(again.exception)
    run("calls", "settle", "cut", "c9", "--ok", "--ledger", where, status=1)
    run("calls", "settle", "cut", "c1", "--ledger", where, status=2)
    run("calls", "settle", "cut", "c1", "--failed", "--result", "1", "--ledger", where, status=2)


def test_a_settled_call_of_a_cut_off_run_is_its_result_when_it_goes_on(tmp_path: Path, where: str) -> None:
    class Killed(BaseException):
        """As if the process had died."""

    started: list[int] = []

    @tool(effect="write")
    def send(n: int) -> str:
        """Sends."""
        started.append(n)
        return "sent"

    async def cut() -> None:
        ledger = ledgers.open(where)
        replies = [{"calls": [{"name": "send", "arguments": {"n": 1}}]}]
        agent = Agent(Replay(replies), tools=[send], ledger=ledger, dialect="hermes")
        append = ledger.append

        async def dying(run_id: str, entries: Any, **named: Any) -> Any:
            made = await append(run_id, entries, **named)
            if any(e.kind == "call_intent" for e in entries):
                raise Killed
            return made

        ledger.append = dying  # type: ignore[method-assign]
        with contextlib.suppress(
            BaseException
        ):  # whatever way it dies, or ends in order: what follows is cut off below
            await agent.run("send", run_id="cut-2")
        await ledger.aclose()

    asyncio.run(cut())

    async def only_the_beginning(ledger: Ledger) -> list[str]:
        return [e.kind for e in await ledger.read("cut-2")]

    kinds = with_ledger(where, only_the_beginning)
    keep = kinds.index("call_intent") + 1
    connection = sqlite3.connect(tmp_path / "runs.db")  # as SIGKILL leaves it: nothing after the intent
    connection.execute("DELETE FROM entries WHERE run_id = 'cut-2' AND seq > ?", (keep,))
    connection.execute("DELETE FROM results WHERE run_id = 'cut-2'")
    connection.execute("UPDATE writes SET outcome = NULL WHERE run_id = 'cut-2'")
    connection.execute(
        "UPDATE runs SET owner = NULL, reason = NULL, entries = ?, digest ="
        " (SELECT digest FROM entries WHERE run_id = 'cut-2' AND seq = ?) WHERE run_id = 'cut-2'",
        (keep, keep),
    )
    connection.commit()
    connection.close()
    run("calls", "settle", "cut-2", "call_1_1", "--ok", "--result", '"it was sent"', "--ledger", where)

    async def resume() -> Any:
        agent = Agent(Replay(["all is well"]), tools=[send], ledger=where, dialect="hermes")
        return await agent.resume("cut-2")

    result = asyncio.run(resume())
    assert (result.reason, result.text) == ("answered", "all is well")
    assert [(c.result.status, c.result.content) for c in result.calls] == [("ok", "it was sent")]
    assert started == []
    assert "sound" in run("ledger", "verify", "--ledger", where).stdout


def test_a_run_that_waits_or_was_cut_off_is_cancelled(where: str) -> None:
    for name in ("waits", "cut"):
        assert "closed as cancelled" in run("runs", "cancel", name, "--ledger", where).stdout
        assert "ended already" in run("runs", "cancel", name, "--ledger", where).stdout

    async def look(ledger: Ledger) -> Any:
        results = [await ledger.result("waits", "call_1_1"), await ledger.result("cut", "c1")]
        return [r.status for r in results if r]

    assert with_ledger(where, look) == ["not_started", "unknown_outcome"]
    assert "sound" in run("ledger", "verify", "--ledger", where).stdout
    run("runs", "cancel", "nobody", "--ledger", where, status=1)

    async def resume() -> Any:
        agent = Agent(Replay([]), tools=[wipe], ledger=where, dialect="hermes")
        return await agent.resume("waits", answers={"call_1_1": True})

    result = asyncio.run(resume())
    assert result.reason == "cancelled"
    assert [c.result.status for c in result.calls] == ["not_started"]


def test_the_ledger_is_verified_pruned_and_exported(where: str, tmp_path: Path) -> None:
    found = json.loads(run("ledger", "verify", "--json", "--ledger", where).stdout)
    assert (found["runs"], found["problems"]) == (3, [])
    assert any("settle it" in note for note in found["notes"])
    lines = [json.loads(line) for line in run("ledger", "export", "--ledger", where).stdout.splitlines()]
    assert len(lines) == found["entries"]
    assert {line["run_id"] for line in lines} == {"cut", "unknown", "waits"}
    only = run("ledger", "export", "cut", "waits", "--ledger", where).stdout.splitlines()
    assert {json.loads(line)["run_id"] for line in only} == {"cut", "waits"}
    assert "keep_days" in str(run("ledger", "prune", "--ledger", where, status=1).exception)
    assert run("ledger", "prune", "--older-than", "1h", "--ledger", where).stdout.startswith("removed 0 runs")
    assert run("ledger", "prune", "--max-size", "10", "--ledger", where).stdout.startswith("removed 1 runs")
    gone = run("ledger", "prune", "--older-than", "0s", "--with-unknown", "--ledger", where).stdout
    assert gone.startswith("removed 2 runs")
    run("ledger", "prune", "--older-than", "soon", "--ledger", where, status=1)
    run("ledger", "prune", "--max-size", "big", "--ledger", where, status=1)
    connection = sqlite3.connect(tmp_path / "runs.db")
    connection.execute("INSERT INTO entries VALUES ('ghost', 1, 1.0, 'turn', 1, '{}', 'x')")
    connection.commit()
    connection.close()
    assert "the run is missing" in run("ledger", "verify", "--ledger", where, status=1).stderr


def test_stats_tell_rates_and_causes(where: str) -> None:
    told = run("stats", "--ledger", where).stdout
    assert "pay native" in told
    assert "1 unknown outcome" in told
    assert "{" not in told
    data = json.loads(run("stats", "--json", "--by", "tool", "--ledger", where).stdout)
    assert [(g["tool"], g["proposed"], g["ok_rate"]) for g in data["groups"]] == [("pay", 2, 0), ("wipe", 1, 0)]
    assert [g["effective"] for g in data["groups"]] == [1, 0]
    assert "token after" in told
    log = [json.loads(line) for line in run("stats", "--log", "--ledger", where).stdout.splitlines()]
    assert [line["tool"] for line in log] == ["pay", "pay", "wipe"]
    run("stats", "--by", "weather", "--ledger", where, status=1)
    run("stats", "--since", "2w", "--ledger", where)


def test_naming_a_run_or_a_ledger_that_is_not_there_makes_none(where: str, tmp_path: Path) -> None:
    def rows() -> list[Any]:
        with sqlite3.connect(tmp_path / "runs.db") as connection:
            return connection.execute("SELECT run_id, entries FROM runs ORDER BY run_id").fetchall()

    before, files = rows(), sorted(p.name for p in tmp_path.iterdir())
    for words in (("runs", "resume", "nope"), ("runs", "cancel", "nope"), ("runs", "show", "nope"),
                  ("calls", "settle", "nope", "c1", "--ok"), ("ledger", "export", "nope"),
                  ("ledger", "verify", "nope"), ("calls", "list", "--run", "nope")):  # fmt: skip
        assert "no such run" in str(run(*words, "--ledger", where, status=1).exception), words
        assert "no ledger yet" in str(run(*words, "--ledger", f"sqlite:{tmp_path}/typo.db", status=1).exception), words
    assert rows() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == files


def test_a_run_is_found_by_the_beginning_of_its_id(where: str) -> None:
    assert "call_intent" in run("runs", "show", "unk", "--ledger", where).stdout

    async def another(ledger: Ledger) -> None:
        await ledger.append(
            "unkind", [Entry("run_started", {"model": "m", "principal": "u", "prompt": "x", "protocol": "native"})]
        )

    with_ledger(where, another)
    refused = str(run("runs", "show", "unk", "--ledger", where, status=1).exception)
    assert re.search("unk.*: .*unkind.* begin so; give more of the id", refused), refused
    assert "call_intent" in run("runs", "show", "unknown", "--ledger", where).stdout


def test_lists_tell_how_far_a_call_is_in_words(where: str) -> None:
    lines = run("calls", "list", "--ledger", where).stdout.splitlines()
    states = {line.split()[0]: re.split(r"  +", line)[2] for line in lines}
    assert states == {"cut": "interrupted", "unknown": "unknown outcome", "waits": "waiting"}


def test_looking_for_a_ledger_does_not_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "there is no ledger yet" in str(run("runs", "list", status=1).exception)
    assert not (tmp_path / "state").exists()
    assert "memory" in str(run("stats", "--ledger", "memory", status=1).exception)
