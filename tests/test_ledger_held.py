"""True arguments beside the journal: held while a call waits or has begun and its outcome is open, and no longer."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

import pg_server
from callgate import ledger as ledgers
from callgate.errors import ConfigError, LedgerError
from callgate.events import dump_event
from callgate.ledger import intent
from callgate.ledger._sealing import KEY_VARIABLE
from callgate.types import Entry, ToolCall, ToolResult
from ledger_stores import Opener, ended, open_store, postgres, started

__all__ = ["open_store", "postgres"]
pytestmark = pytest.mark.anyio

KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SECRET = {"user": "bob", "password": "hunter2hunter", "n": [1, {"deep": 2}]}
LOGIN = ToolCall("c1", "login", SECRET)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def asks(call: ToolCall = LOGIN) -> Entry:
    return Entry("call_proposed", {"call": dump_event(call)}, held={call.id: call.arguments})


def begins(run_id: str = "r", call: ToolCall = LOGIN) -> Entry:
    made = intent(run_id, call, "u")
    return Entry(made.kind, made.data, held={call.id: call.arguments})


def settled(status: str, call_id: str = "c1") -> Entry:
    result = dump_event(ToolResult(call_id, status, ""))  # type: ignore[arg-type]
    return Entry("call_settled", {"call_id": call_id, "result": result, "by": "person"})


async def test_true_arguments_are_held_until_the_outcome_is_final(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r", [started(), asks()])
    assert await open_store().held("r") == {"c1": SECRET}
    await ledger.append("r", [Entry("run_finished", {"reason": "waiting"})])
    await ledger.append("r", [begins()])
    assert await open_store().held("r") == {"c1": SECRET}
    await ledger.append("r", [ended("c1", "unknown_outcome")])
    await ledger.append("r", [Entry("run_finished", {"reason": "answered"})])
    assert await open_store().held("r") == {"c1": SECRET}
    await ledger.append("r", [settled("unknown_outcome")])
    assert await ledger.held("r") == {"c1": SECRET}
    await ledger.append("r", [settled("ok")])
    assert await open_store().held("r") == {}


@pytest.mark.parametrize("status", ["ok", "failed", "denied", "not_started", "timeout", "cancelled"])
async def test_the_result_of_a_call_that_never_began_to_write_ends_the_holding(open_store: Opener, status: str) -> None:
    ledger = open_store()
    await ledger.append("r", [started(), asks()])
    await ledger.append("r", [ended("c1", status)])
    assert await ledger.held("r") == {}


@pytest.mark.parametrize("status", ["ok", "failed", "not_found", "denied"])
async def test_the_known_outcome_of_a_write_ends_the_holding(open_store: Opener, status: str) -> None:
    ledger = open_store()
    await ledger.append("r", [started(), begins(), ended("c1", status)])
    assert await ledger.held("r") == {}


async def test_a_run_that_ends_or_is_pruned_holds_nothing_that_did_not_begin(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r", [started(), asks(), asks(ToolCall("c2", "login", SECRET)), begins()])
    await ledger.append("r", [Entry("run_finished", {"reason": "cancelled"})])
    assert await ledger.held("r") == {"c1": SECRET}
    assert (await ledger.prune(older_than=-10, keep_unknown=False)).run_ids == ("r",)
    assert await ledger.held("r") == {}


async def test_only_what_the_journal_lacks_is_held(open_store: Opener) -> None:
    ledger = open_store()
    plain = ToolCall("c1", "pay", {"cents": 5, "text": "[masked]"})
    odd = ToolCall("c2", "pay", json.loads('{"amount": 1e400, "id": "\\ud800"}'))
    ident = ToolCall("sk-abcdefghijklmnop1234", "login", SECRET)
    await ledger.append("r", [started(), asks(plain), asks(odd), asks(ident)])
    assert await open_store().held("r") == {"c2": odd.arguments, ident.id: SECRET}


async def test_held_arguments_stand_in_no_answer_of_the_ledger(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r", [started(), asks(), begins(), ended("c1", "unknown_outcome")])
    seen: list[Any] = [
        await ledger.read("r"),
        await ledger.runs(),
        await ledger.write("r", "c1"),
        await ledger.verify(),
        [pair async for pair in ledger.scan()],
    ]
    assert "hunter2" not in repr(seen)
    assert "hunter2" not in repr(Entry("turn", {}, held={"c1": SECRET}))
    assert await ledger.held("other") == {}


async def test_declared_secrets_are_masked_wherever_they_stand_and_held_with_their_call(open_store: Opener) -> None:
    ledger = open_store()
    secret = 'p"ä\\ss word'
    call = ToolCall("c1", "send", {"to": "bob", "text": f"it is {secret}!"})
    proposed = Entry("call_proposed", {"call": dump_event(call)}, held={"c1": call.arguments}, secrets=(secret,))
    await ledger.append("r", [started(), proposed])
    (_, entry) = await open_store().read("r")
    assert entry.data["call"]["arguments"] == {"to": "bob", "text": "it is [masked]!"}
    assert entry.data["masked"] == ["/call/arguments/text"]
    assert await open_store().held("r") == {"c1": call.arguments}


async def test_a_ledger_told_to_hold_nothing_holds_nothing(open_store: Opener) -> None:
    ledger = open_store(hold_secrets=False)
    await ledger.append("r", [started(), asks(), begins()])
    assert await ledger.held("r") == {}


async def test_the_key_of_hashes_is_made_once_for_a_ledger(open_store: Opener) -> None:
    first = await open_store().hash_key()
    assert len(first) == 32
    assert await open_store().hash_key() == first
    assert await ledgers.open("memory").hash_key() != first


async def test_the_files_of_a_ledger_are_private_and_forget_what_was_held(tmp_path: Path) -> None:
    ledger = ledgers.open(f"sqlite:{tmp_path}/runs.db")
    await ledger.append("r", [started(), asks()])
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert {file.name for file in tmp_path.iterdir()} == {"runs.db", "runs.db-wal", "runs.db-shm", "runs.db-lock"}
    await ledger.append("r", [ended("c1")])
    await ledger.aclose()
    assert all(b"hunter2" not in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_file_that_others_could_read_is_made_private_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    ledger = ledgers.open(f"sqlite:{path}")
    await ledger.append("r", [started()])
    await ledger.aclose()
    for mode in (0o644, 0o666, 0o640):
        path.chmod(mode)
        ledger = ledgers.open(f"sqlite:{path}")
        await ledger.append("r", [asks()])
        assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("runs.db*")] == [0o600] * 4
        await ledger.aclose()


async def test_a_damaged_held_row_is_an_error_of_ours(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "runs.db"
    ledger = ledgers.open(f"sqlite:{path}")
    await ledger.append("r", [started(), asks()])
    for text in ("nonsense", "[1]", '"x"'):
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE held SET text = ?", (text,))
        connection.close()
        with pytest.raises(LedgerError, match="damaged"):
            await ledger.held("r")
    await ledger.aclose()


@pytest.mark.skipif(pg_server.why_not() is not None, reason=str(pg_server.why_not()))
async def test_postgres_holds_only_what_it_can_encrypt(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    where = f"{postgres}&callgate_schema=sealed"

    def rows() -> list[Any]:
        with psycopg.connect(postgres) as connection:
            return connection.execute("SELECT call_id, text FROM sealed.held ORDER BY call_id").fetchall()

    ledger = ledgers.open(where)
    await ledger.append("r", [started(), asks(), asks(ToolCall("c2", "login", SECRET))])
    assert len(rows()) == 2
    assert "hunter2" not in repr(rows())
    assert "bob" not in repr(rows())
    monkeypatch.delenv(KEY_VARIABLE)
    without = ledgers.open(where)
    with pytest.raises(LedgerError, match=KEY_VARIABLE):
        await without.held("r")
    await without.append("s", [started(), asks()])
    assert await without.held("s") == {}
    monkeypatch.setenv(KEY_VARIABLE, KEY.replace("MDEy", "MDEz"))
    other = ledgers.open(where)
    with pytest.raises(LedgerError, match="cannot be opened"):
        await other.held("r")
    with psycopg.connect(postgres) as connection:  # a row that is moved to another call does not open there
        connection.execute("UPDATE sealed.held SET text = (SELECT text FROM sealed.held WHERE call_id = 'c2')")
    with pytest.raises(LedgerError, match="cannot be opened"):
        await ledger.held("r")
    for bad in ("not base64!", "c2hvcnQ="):
        monkeypatch.setenv(KEY_VARIABLE, bad)
        with pytest.raises(ConfigError, match="openssl rand"):
            ledgers.open(where)
    for store in (ledger, without, other):
        await store.aclose()
