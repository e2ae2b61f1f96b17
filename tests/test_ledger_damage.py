"""A ledger that was damaged: every question raises LedgerError or answers, and what was altered is not read."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import ledger as ledgers
from callgate import stats
from callgate.errors import LedgerError
from callgate.events import dump_event
from callgate.ledger import intent
from callgate.ledger._entries import digest
from callgate.types import Entry, ToolCall, ToolResult
from ledger_stores import PAY, PAY_HASH, ended, started

pytestmark = pytest.mark.anyio

SEED = 11
LOGIN = ToolCall("c2", "login", {"user": "bob", "password": "hunter2hunter"})
WRONG: tuple[Any, ...] = (
    None, "", "rubbish", "{", "[]", "null", "{}", '"x"', "[" * 100_000, '{"call_id": 5}', "\\u12", "é\udcff",
    b"\xff\xfe", b"", 0, -1, 3, 2**62, 1.5, -1e308, "NaN",
)  # fmt: skip


async def make(path: Path) -> None:
    ledger = ledgers.open(f"sqlite:{path}")
    proposed = Entry("call_proposed", {"call": dump_event(LOGIN)}, held={"c2": LOGIN.arguments})
    settled = {"call_id": "c1", "result": dump_event(ToolResult("c1", "ok", "")), "by": "person"}
    message = Entry("message", {"message": {"role": "assistant", "content": "", "calls": [dump_event(PAY)]}})
    await ledger.append("r", [started(), message, proposed, intent("r", PAY, "u"), ended("c1", "unknown_outcome")])
    await ledger.append("r", [Entry("call_settled", settled), Entry("turn", {"n": 1})])
    await ledger.append("s", [started(), Entry("run_finished", {"reason": "answered"})])
    await ledger.hash_key()
    await ledger.aclose()


async def ask_everything(path: Path) -> list[str]:
    """The errors that every question gave; any other than LedgerError escapes."""
    ledger = ledgers.open(f"sqlite:{path}")
    errors: list[str] = []

    async def scan() -> None:
        async for _ in ledger.scan():
            pass

    questions = (
        lambda: ledger.read("r"),
        lambda: ledger.read("r", after=3),
        lambda: ledger.read("s"),
        lambda: ledger.run("r"),
        lambda: ledger.runs(),
        lambda: ledger.write("r", "c1"),
        lambda: ledger.result("r", "c1"),
        lambda: ledger.held("r"),
        lambda: ledger.hash_key(),
        lambda: ledger.find_write(principal="u", tool="pay", arguments_hash=PAY_HASH, run_id="x"),
        lambda: ledger.find_write(principal="u", tool="pay", arguments_hash=PAY_HASH, run_id="r"),
        lambda: ledger.verify(),
        scan,
        lambda: stats.collect(ledger),
        lambda: ledgers.close(ledger, "r"),
        lambda: ledger.append("r", [Entry("turn", {"n": 2})]),
        lambda: ledger.prune(older_than=1e9),
    )
    for question in questions:
        try:
            await question()
        except LedgerError as error:
            errors.append(str(error))
    await ledger.aclose()
    return errors


def damages(path: Path) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Every column of every table, damaged in every way the file takes; rows gone and rows twice."""
    connection = sqlite3.connect(path)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        yield f"{table} emptied", f"DELETE FROM {table}", ()
        yield f"{table} dropped", f"DROP TABLE {table}", ()
        for column in [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]:
            for number, value in enumerate(WRONG):
                yield f"{table}.{column} {number}", f"UPDATE OR REPLACE {table} SET {column} = ?", (value,)
    connection.close()


async def test_every_damage_is_a_ledger_error(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    await make(whole)
    assert await ask_everything(shutil.copy(whole, tmp_path / "sound.db")) == []
    chance = random.Random(SEED)
    everything = list(damages(whole))
    chosen = [d for d in everything if not d[2]] + chance.sample([d for d in everything if d[2]], 170)
    taken = 0
    for number, (name, statement, params) in enumerate(chosen):
        copy = tmp_path / f"{number}.db"
        shutil.copy(whole, copy)
        connection = sqlite3.connect(copy)
        try:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute(statement, params)
            connection.commit()
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):
            continue  # the table itself refuses it
        finally:
            connection.close()
        taken += 1
        try:
            await ask_everything(copy)
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        copy.unlink()
    assert taken > 80


def make_digests_fit(connection: sqlite3.Connection) -> None:
    for (run_id,) in connection.execute("SELECT run_id FROM runs").fetchall():
        made = ""
        sql = "SELECT seq, at, kind, version, data FROM entries WHERE run_id = ? ORDER BY seq"
        for seq, at, kind, version, text in connection.execute(sql, (run_id,)).fetchall():
            made = digest(made, run_id=run_id, seq=seq, at=at, line=(kind, version, text))
            connection.execute("UPDATE entries SET digest = ? WHERE run_id = ? AND seq = ?", (made, run_id, seq))
        connection.execute("UPDATE runs SET digest = ? WHERE run_id = ?", (made, run_id))


async def test_every_damage_of_the_json_is_a_ledger_error(tmp_path: Path) -> None:
    """Any piece of an entry's JSON cut out or replaced; also with its digest made to fit."""
    whole = tmp_path / "whole.db"
    await make(whole)
    chance = random.Random(SEED)
    connection = sqlite3.connect(whole)
    texts = connection.execute("SELECT run_id, seq, data FROM entries").fetchall()
    connection.close()
    for number in range(120):
        run_id, seq, text = chance.choice(texts)
        begin = chance.randrange(len(text))
        piece = chance.choice(("", '"', "{", "}", "[1]", "null", "5", "x" * 30, text[:begin]))
        altered = text[:begin] + piece + text[min(len(text), begin + chance.randint(0, 30)) :]
        copy = tmp_path / f"json-{number}.db"
        shutil.copy(whole, copy)
        connection = sqlite3.connect(copy)
        connection.execute("UPDATE entries SET data = ? WHERE run_id = ? AND seq = ?", (altered, run_id, seq))
        if number % 2:
            make_digests_fit(connection)
        connection.commit()
        connection.close()
        errors = await ask_everything(copy)
        assert errors or number % 2 or altered == text, altered
        copy.unlink()


async def test_an_altered_journal_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await make(path)

    async def read(statement: str) -> str:
        copy = tmp_path / "copy.db"
        shutil.copy(path, copy)
        connection = sqlite3.connect(copy)
        connection.execute(statement)
        connection.commit()
        connection.close()
        ledger = ledgers.open(f"sqlite:{copy}")
        try:
            await ledger.read("r")
            return "read"
        except LedgerError as error:
            return str(error)
        finally:
            await ledger.aclose()
            copy.unlink()

    assert await read("SELECT 1") == "read"
    for seq in range(1, 8):
        assert f"entry {seq}" in await read(f"UPDATE entries SET at = at + 1 WHERE run_id = 'r' AND seq = {seq}")
        assert f"number {seq} of 7" in await read(f"DELETE FROM entries WHERE run_id = 'r' AND seq = {seq}")
    assert "altered" in await read("UPDATE entries SET data = replace(data, 'bob', 'eve') WHERE seq = 3")
    assert "beyond" in await read("DELETE FROM runs WHERE run_id = 'r'")
    assert "missing or altered" in await read("UPDATE runs SET digest = 'x' WHERE run_id = 'r'")
    assert "missing" in await read("DELETE FROM entries WHERE run_id = 'r'")


async def test_what_the_tables_beside_the_journal_lack_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await make(path)
    for statement in (
        "DELETE FROM writes",
        "UPDATE writes SET status = 'failed'",
        "UPDATE writes SET arguments_hash = 'x'",
        "UPDATE writes SET principal = 'eve'",
        "DELETE FROM results",
        "UPDATE runs SET reason = 'answered' WHERE run_id = 'r'",
        "INSERT INTO held VALUES ('r', 'c1', '{}')",
    ):
        copy = tmp_path / "copy.db"
        shutil.copy(path, copy)
        connection = sqlite3.connect(copy)
        connection.execute(statement)
        connection.commit()
        connection.close()
        ledger = ledgers.open(f"sqlite:{copy}")
        assert (await ledger.verify()).problems != (), statement
        await ledger.aclose()
        copy.unlink()


@pytest.mark.parametrize("kept", [0, 50, 100, 1000, 4096, 5000, 20_000])
async def test_a_truncated_file_is_an_error_of_ours_or_what_is_left(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "runs.db"
    await make(path)
    path.write_bytes(path.read_bytes()[:kept])
    errors = await ask_everything(path)
    assert errors or kept == 0  # an empty file is a new ledger


async def test_any_bytes_of_the_file_damaged_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await make(path)
    whole = path.read_bytes()
    chance = random.Random(SEED)
    for number in range(40):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 40)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        copy = tmp_path / f"bytes-{number}.db"
        copy.write_bytes(data)
        await asyncio.wait_for(ask_everything(copy), 20)
        copy.unlink()
