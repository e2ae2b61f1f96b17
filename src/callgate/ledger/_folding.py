"""What a journal adds up to: the summary of a run, the answer to "may this write start?", and the check of every law.

One law: pure. Every store answers these questions with these functions, so all stores answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from callgate.errors import LedgerError
from callgate.ledger._entries import KINDS, VERSION, Line, Report, RunInfo, Write, digest, from_text, load_result
from callgate.types import Entry, ToolResult

PROMPT_SHOWN = 200
"""Characters of a prompt that lists show."""

Row: TypeAlias = tuple[int, float, str, int, str, str]
"""seq, at, kind, version, text, digest: an entry as a store keeps it."""


@dataclass(slots=True)
class Fold:
    """The summary of one run, entry by entry."""

    model: str = ""
    principal: str | None = None
    prompt: str = ""
    reason: str | None = None
    updated: float = 0.0
    entries: int = 0
    size: int = 0
    writes: dict[str, Write] = field(default_factory=dict)
    results: dict[str, ToolResult | None] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """Calls in messages of the model -> number of the message's entry."""

    @property
    def unknown(self) -> bool:
        """Whether a write of this run has an unknown outcome."""
        return any(write.unknown for write in self.writes.values())

    def add(self, run_id: str, line: Line, at: float) -> None:
        """Takes in the next entry."""
        self.updated, self.entries, self.size = at, self.entries + 1, self.size + len(line.text)
        data = line.data
        match line.kind:
            case "run_started":
                self.model, self.principal, self.reason = str(data.get("model") or ""), principal_of(data), None
                self.prompt = prompt_of(data) or self.prompt  # a resumption has none
            case "run_finished":
                self.reason = str(data.get("reason"))
            case "message":
                self.reason = None  # it goes on
                for call_id in _calls_of(data):
                    self.asked[call_id] = self.entries
            case "call_intent":
                call_id = str(data["call_id"])
                self.writes[call_id] = Write(
                    run_id,
                    call_id,
                    str(data["tool"]),
                    str(data["arguments_hash"]),
                    str(data["key"]),
                    principal=data.get("principal"),
                    at=at,
                )
            case "call_result" | "call_settled":
                call_id = str(data["call_id"])
                result = load_result(data)
                if line.kind == "call_result":
                    self.results[call_id] = result
                write = self.writes.get(call_id)
                if write is not None and (line.kind == "call_settled" or write.settled_by is None):
                    self.writes[call_id] = replace(
                        self.writes[call_id],
                        result=result,
                        settled_by=data.get("by") if line.kind == "call_settled" else None,
                    )
            case _:
                pass

    def info(self, before: RunInfo) -> RunInfo:
        """The run for lists."""
        return replace(
            before,
            updated=self.updated or before.updated,
            model=self.model,
            principal=self.principal,
            prompt=self.prompt,
            reason=self.reason,
            entries=self.entries,
            size=self.size,
        )


def writes_of(run_id: str, entries: Iterable[Entry]) -> list[Write]:
    """The writes of a run, in the order they were started, each with the latest that is known of its outcome."""
    fold = Fold()
    for entry in entries:
        fold.add(run_id, Line(entry.kind, entry.version, entry.data, ""), entry.at)
    return list(fold.writes.values())


def prompt_of(data: Mapping[str, Any]) -> str:
    """The beginning of what was asked, from the data of `run_started`."""
    prompt = data.get("prompt")
    return prompt[:PROMPT_SHOWN] if isinstance(prompt, str) else ""


def principal_of(data: Mapping[str, Any]) -> str | None:
    """The id of the principal, whether the entry has the id or the whole principal."""
    principal = data.get("principal")
    if isinstance(principal, Mapping):
        principal = principal.get("id")
    return None if principal is None else str(principal)


def _calls_of(data: Mapping[str, Any]) -> list[str]:
    message = data.get("message")
    calls = message.get("calls") if isinstance(message, Mapping) else None
    return [str(c["id"]) for c in calls or () if isinstance(c, Mapping) and "id" in c]


def answering(
    found: Iterable[tuple[Write, bool]], *, run_id: str, principal: str | None, key: str | None
) -> Write | None:
    """Of earlier identical writes (each with: is its run being carried out?) the one that answers this call (X4)."""
    mine: Write | None = None
    foreign: Write | None = None
    for write, held in found:
        if (key is not None and write.key != key) or write.without_effect:
            continue
        if write.run_id == run_id:
            mine = write
        elif write.unknown and not (held and write.result is None) and write.principal == principal:
            foreign = write
    return mine or foreign


def is_prunable(info: RunInfo, unknown: bool, keep_unknown: bool) -> bool:
    """Whether a run that nobody carries out may be removed at all."""
    return not (unknown and keep_unknown)


def pick_prunable(
    candidates: Iterable[RunInfo], *, total: int, cutoff: float | None, max_size: int | None
) -> list[RunInfo]:
    """The runs to remove: all last updated before `cutoff`, then the oldest until `total` is at most `max_size`."""
    gone = []
    for info in sorted(candidates, key=lambda i: (i.updated, i.run_id)):
        if (cutoff is not None and info.updated < cutoff) or (max_size is not None and total > max_size):
            gone.append(info)
            total -= info.size
    return gone


# --- verify -------------------------------------------------------------------------------------------------------


def check_run(run_id: str, rows: Sequence[Row], report: Report, *, is_held: bool) -> Report:
    """The report with what this run breaks. `is_held`: it is being carried out, so it may be unfinished."""
    problems: list[str] = []
    notes: list[str] = []
    fold = Fold()
    before, last_at = "", 0.0
    for number, (seq, at, kind, version, text, kept_digest) in enumerate(rows, 1):
        where = f"run {run_id}, entry {seq}"
        if seq != number:
            problems.append(f"{where}: number {number} is missing")
            break
        if at < last_at:
            problems.append(f"{where}: dated before the entry before it")
        made = digest(before, run_id=run_id, seq=seq, at=at, line=(kind, version, text))
        if made != kept_digest:
            problems.append(f"{where} ({kind}): altered after it was written: its digest does not fit")
        before, last_at = kept_digest, at
        problems += _check_entry(where, fold, run_id, (seq, at, kind, version, text))
    problems += _check_end(run_id, fold)
    if fold.reason is None and rows and not is_held:
        notes.append(f"run {run_id}: cut off before its end; resume or cancel it")
    notes += [
        f"run {run_id}, call {w.call_id}: the outcome of this {w.tool} is unknown; settle it"
        for w in fold.writes.values()
        if w.unknown and not (is_held and w.result is None)
    ]
    return Report(
        report.runs + 1,
        report.entries + len(rows),
        (*report.problems, *problems),
        (*report.notes, *notes),
    )


def _check_entry(where: str, fold: Fold, run_id: str, row: tuple[int, float, str, int, str]) -> list[str]:
    seq, at, kind, version, text = row
    try:
        entry = from_text(kind, version, text, seq=seq, at=at)
    except LedgerError as error:
        return [f"run {run_id}, {error}"]
    missing = [name for name in KINDS[kind] if name not in entry.data]
    if missing:
        return [f"{where} ({kind}): the field {missing[0]!r} is missing"]
    found = []
    call_id = str(entry.data.get("call_id"))
    if kind == "call_intent":
        if call_id in fold.writes:
            found.append(f"{where}: the write {call_id} was started twice")
        if any(w.key == entry.data["key"] and not w.without_effect for w in fold.writes.values()):
            found.append(f"{where}: a second write with the same idempotency key was started")
        if call_id in fold.results:
            found.append(f"{where}: the write {call_id} was started after it had a result")
    if kind == "call_result" and call_id in fold.results:
        found.append(f"{where}: the call {call_id} has a second result")
    if kind == "call_settled" and call_id not in fold.writes:
        found.append(f"{where}: settles the call {call_id}, which no write was started for")
    try:
        fold.add(run_id, Line(kind, VERSION, entry.data, text), at)
    except LedgerError as error:
        found.append(f"{where}: {error}")
    return found


def _check_end(run_id: str, fold: Fold) -> list[str]:
    """Once a run has ended (and not only waits), every call has its result."""
    if fold.reason in (None, "waiting"):
        return []
    return [
        f"run {run_id}: ended as {fold.reason}, but the call {call_id} has no result"
        for call_id in dict.fromkeys((*fold.writes, *fold.asked))
        if call_id not in fold.results
    ]
