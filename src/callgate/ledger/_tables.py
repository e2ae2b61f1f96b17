"""The tables of the SQL stores, their versions, and the rows that each entry leaves in them beside its own.

Law: the tables beside `entries` are what `entries` adds up to, kept in the same transaction, so that questions are
answered without reading journals. (tests/test_ledger.py::test_an_identical_write_is_answered_from_the_ledger)

Statements are written for SQLite; `?` stands for a parameter. A version is a list of statements that is never changed:
a later one is added.
"""

# ruff: noqa: S608 - only names of our own tables are put into statements; values are parameters

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from callgate.errors import LedgerError
from callgate.ledger._entries import UNKNOWN
from callgate.ledger._folding import principal_of, prompt_of
from callgate.ledger._lines import Line
from callgate.ledger._writer import Ask

TABLES: tuple[str, ...] = (
    """CREATE TABLE runs (
        run_id TEXT NOT NULL PRIMARY KEY, started {real} NOT NULL, updated {real} NOT NULL, model TEXT NOT NULL,
        principal TEXT, prompt TEXT NOT NULL, reason TEXT, entries {int} NOT NULL, size {int} NOT NULL,
        digest TEXT NOT NULL, owner TEXT, fence {int} NOT NULL, until {real} NOT NULL, cancel {int} NOT NULL
    ){strict}""",
    "CREATE INDEX runs_updated ON runs (updated)",
    """CREATE TABLE entries (
        run_id TEXT NOT NULL, seq {int} NOT NULL, at {real} NOT NULL, kind TEXT NOT NULL, version {int} NOT NULL,
        data TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, seq)
    ){strict}""",
    """CREATE TABLE writes (
        run_id TEXT NOT NULL, call_id TEXT NOT NULL, tool TEXT NOT NULL, arguments_hash TEXT NOT NULL,
        idempotency_key TEXT NOT NULL, principal TEXT, at {real} NOT NULL, outcome {int}, status TEXT, settled_by TEXT,
        PRIMARY KEY (run_id, call_id)
    ){strict}""",
    "CREATE INDEX writes_same ON writes (tool, arguments_hash, status)",
    """CREATE TABLE results (
        run_id TEXT NOT NULL, call_id TEXT NOT NULL, seq {int} NOT NULL, PRIMARY KEY (run_id, call_id)
    ){strict}""",
)
"""`outcome` and `seq` are numbers of entries: where the latest outcome of a write, the result of a call, stands;
`status` is that of the outcome, "open" while there is none."""


TABLES_BESIDE: tuple[str, ...] = (
    "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL){strict}",
    """CREATE TABLE held (
        run_id TEXT NOT NULL, call_id TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (run_id, call_id)
    ){strict}""",
)
"""`meta` has the key of hashes; `held` the true arguments of calls that wait or have begun, as long as they do."""

VERSIONS: tuple[tuple[str, ...], ...] = (TABLES, TABLES_BESIDE)
"""Number n brings the tables from version n to n + 1."""
PER_RUN: tuple[str, ...] = ("entries", "writes", "results", "held", "runs")
"""The tables that a run is removed from."""
HASH_KEY = "hash_key"


def create(ask: Ask, number: int, **words: str) -> None:
    """Brings the tables from version `number` to the next one. `words`: the database's names of types."""
    for statement in VERSIONS[number]:
        ask(statement.format(**words), ())
    if number == 1:
        ask("INSERT INTO meta (name, value) VALUES (?, ?)", (HASH_KEY, secrets.token_hex(32)))


def hash_key(rows: Sequence[Sequence[str]], where: str) -> bytes:
    """The key in the row of `meta`. Raises LedgerError if it is gone or damaged."""
    try:
        key = bytes.fromhex(rows[0][0])
    except (IndexError, TypeError, ValueError):
        key = b""
    if len(key) != 32:
        raise LedgerError(f"{where}: the key of hashes in the table meta is missing or damaged; restore a copy")
    return key


def index(ask: Ask, name: str, line: Line, seq: int, at: float) -> None:
    """Keeps the tables that answer questions without reading journals."""
    data = line.data
    match line.kind:
        case "run_started":
            principal = principal_of(data)
            ask(
                # A resumption has no prompt; the list shows the first one.
                "UPDATE runs SET model = ?, principal = ?, prompt = coalesce(nullif(?, ''), prompt), reason = NULL"
                " WHERE run_id = ?",
                (
                    to_column(str(data.get("model") or "")),
                    None if principal is None else to_column(principal),
                    to_column(prompt_of(data)),
                    name,
                ),
            )
        case "message":
            ask("UPDATE runs SET reason = NULL WHERE run_id = ? AND reason IS NOT NULL", (name,))
        case "run_finished":
            ask("UPDATE runs SET reason = ? WHERE run_id = ?", (to_column(str(data.get("reason"))), name))
        case "call_intent":
            principal = data.get("principal")
            ask(
                # No ON CONFLICT: the primary key is the law that a write starts once, also for two machines in the same
                # moment.
                "INSERT INTO writes (run_id, call_id, tool, arguments_hash, idempotency_key, principal, at, status)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 'open')",
                (
                    name,
                    to_column(str(data["call_id"])),
                    to_column(str(data["tool"])),
                    str(data["arguments_hash"]),
                    str(data["key"]),
                    None if principal is None else to_column(str(principal)),
                    at,
                ),
            )
        case "call_result" | "call_settled":
            call = to_column(str(data["call_id"]))
            settled = 1 if line.kind == "call_settled" else 0  # nothing but another settlement undoes one
            # RETURNING: SQLite has it since 3.35, PostgreSQL since 8.2; a second SELECT would be a second moment.
            found = ask(
                "UPDATE writes SET outcome = ?, status = ?, settled_by = ? WHERE run_id = ? AND call_id = ?"
                " AND (settled_by IS NULL OR ? = 1) RETURNING call_id",
                (seq, str(data["result"].get("status")), data.get("by") if settled else None, name, call, settled),
            )
            if settled and not found:
                raise LedgerError(f"call {data['call_id']}: no write was started for it, so there is nothing to settle")
            if line.kind == "call_result":
                # The primary key again: a second result of a call is refused by the database itself.
                ask("INSERT INTO results (run_id, call_id, seq) VALUES (?, ?, ?)", (name, call, seq))
        case _:
            pass


_UNKNOWN_LIST = ", ".join(f"'{status}'" for status in UNKNOWN)


def release_held(ask: Ask, name: str, line: Line) -> None:
    """Removes the held arguments of a call whose outcome is final with this entry.

    A started write whose result is unknown keeps them until it is settled: its lookup needs the truth.
    """
    match line.kind:
        case "call_result" | "call_settled":
            ask(
                "DELETE FROM held WHERE run_id = ? AND call_id = ? AND NOT EXISTS (SELECT 1 FROM writes w WHERE"
                f" w.run_id = held.run_id AND w.call_id = held.call_id AND w.status IN ({_UNKNOWN_LIST}))",
                (name, to_column(str(line.data["call_id"]))),
            )
        case "run_finished" if line.data.get("reason") != "waiting":
            ask(
                "DELETE FROM held WHERE run_id = ? AND NOT EXISTS (SELECT 1 FROM writes w WHERE"
                f" w.run_id = held.run_id AND w.call_id = held.call_id AND w.status IN ('open', {_UNKNOWN_LIST}))",
                (name,),
            )
        case _:
            pass


def to_column(text: str) -> str:
    """Any text as one that every database can hold and compare: no NUL, no lone surrogate (models write both)."""
    if text.isascii() and text.isprintable() and "\\" not in text and '"' not in text:
        return text
    # PostgreSQL refuses U+0000 in a TEXT, and UTF-8 has no lone surrogates; JSON's escapes hold both, and compare equal
    # exactly when the texts do.
    return json.dumps(text)[1:-1]


def from_column(text: str) -> str:
    """The text that `to_column` made."""
    if "\\" not in text:
        return text
    try:
        loaded = json.loads(f'"{text}"')
    except ValueError:
        loaded = None
    if not isinstance(loaded, str):
        raise LedgerError("a name in the ledger is damaged")
    return loaded
