"""The rows of the SQL stores as values: what a SELECT names, and what is made of it.

Law: that of the room (callgate/ledger/__init__.py).
"""

# ruff: noqa: S608 - only names of our own tables and columns are put into statements; values are parameters

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from callgate.ledger._entries import UNKNOWN, RunInfo, Write, data_of, from_text, load_result
from callgate.ledger._tables import from_column
from callgate.ledger._writer import Ask
from callgate.types import Entry

INFO = "run_id, started, updated, model, principal, prompt, reason, entries, size, owner, until"
WRITE = "w.run_id, w.call_id, w.tool, w.arguments_hash, w.idempotency_key, w.principal, w.at, w.settled_by, e.data"
FROM_WRITES = "FROM writes w LEFT JOIN entries e ON e.run_id = w.run_id AND e.seq = w.outcome"
WRITES_OF_RUN = (
    "SELECT call_id, status, settled_by, tool, arguments_hash, idempotency_key, principal FROM writes WHERE run_id = ?"
)
ROWS = "SELECT seq, at, kind, version, data, digest FROM entries"
OPEN_STATUSES = ", ".join(f"'{status}'" for status in ("open", *sorted(UNKNOWN)))
PAGE = 500
"""Entries read at once when everything is gone through; a longer run is read whole."""


def info_of(row: Sequence[Any], *, held: bool) -> RunInfo:
    """A row of `INFO`. `held`: its owner carries the run out just now."""
    run_id, started, updated, model, principal, prompt, reason, entries, size, owner, _ = row
    return RunInfo(
        from_column(run_id),
        started,
        updated,
        model=from_column(model),
        principal=None if principal is None else from_column(principal),
        prompt=from_column(prompt),
        reason=reason,
        entries=entries,
        size=size,
        owner=owner if held else None,
    )


def write_row(row: Sequence[Any]) -> tuple[Any, ...]:
    call_id, status, settled_by, tool, arguments_hash, key, principal = row
    who = None if principal is None else from_column(principal)
    return from_column(call_id), status, settled_by, from_column(tool), arguments_hash, key, who


def in_pages(runs: Sequence[tuple[str, int]]) -> Iterator[dict[str, int]]:
    """The runs in groups that are read at once, each with its number of entries."""
    page: dict[str, int] = {}
    for name, entries in runs:
        # A run is never cut: its entries are read in the one transaction that also told how many there are.
        if page and sum(page.values()) + entries > PAGE:
            yield page
            page = {}
        page[name] = entries
    if page:
        yield page


def reading_of(
    runs: Mapping[str, int], kinds: Collection[str], since: float
) -> Callable[[Ask], list[tuple[str, Entry]]]:
    """Reads these runs, each up to a number of entries."""
    chosen = "" if not kinds else f" AND kind IN ({', '.join('?' * len(kinds))})"
    sql = (
        f"SELECT run_id, seq, at, kind, version, data FROM entries WHERE run_id IN ({', '.join('?' * len(runs))})"
        f" AND at >= ?{chosen} ORDER BY run_id, seq"
    )

    def work(ask: Ask) -> list[tuple[str, Entry]]:
        return [
            (from_column(name), from_text(kind, version, text, seq=seq, at=at))
            for name, seq, at, kind, version, text in ask(sql, (*runs, since, *kinds))
            # What came after the list of runs was read belongs to a later moment.
            if seq <= runs[name]
        ]

    return work


def write_of(row: Sequence[Any]) -> Write:
    run_id, call_id, tool, arguments_hash, key, principal, at, settled_by, data = row
    return Write(
        from_column(run_id),
        from_column(call_id),
        from_column(tool),
        arguments_hash,
        key,
        principal=None if principal is None else from_column(principal),
        at=at,
        result=None if data is None else load_result(data_of(data, f"run {run_id}, call {call_id}")),
        settled_by=settled_by,
    )
