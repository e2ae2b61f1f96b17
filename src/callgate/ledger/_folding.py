"""What a journal adds up to: the summary of a run, the answer to "may this write start?", and the check of every law.

Law: every store answers with these functions, so all stores answer alike.
(tests/test_ledger.py::test_an_identical_write_is_answered_from_the_ledger)
Law: a journal that was altered is not read: its chain of digests is looked at first.
(tests/test_ledger_damage.py::test_an_altered_journal_is_not_read)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from callgate.errors import LedgerError
from callgate.ledger._entries import UNKNOWN, VERSION, Report, RunInfo, Write, digest, from_text, load_result
from callgate.ledger._lines import Line
from callgate.types import Entry, ToolResult

PROMPT_SHOWN = 200
"""Characters of a prompt that lists show."""

Row: TypeAlias = tuple[int, float, str, int, str, str]
"""seq, at, kind, version, text, digest: an entry as a store keeps it."""


@dataclass(slots=True, frozen=True)
class Index:
    """What a store keeps of one run beside its journal."""

    entries: int
    digest: str
    reason: str | None
    principal: str | None
    writes: Mapping[str, tuple[str | None, ...]]
    """Call id -> status, who settled it, tool, hash of arguments, idempotency key, principal."""
    results: set[str]
    held: set[str]
    """Calls whose true arguments are held."""


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
    held: dict[str, str] = field(default_factory=dict, repr=False)
    """Call id -> JSON of its true arguments, while the call waits or has begun and its outcome is not final."""
    starts: int = 0
    """How often the run was started afresh; more than once is a fault."""
    asked: dict[str, int] = field(default_factory=dict)
    """Calls in messages of the model -> number of the message's entry."""

    @property
    def unknown(self) -> bool:
        """Whether a write of this run has an unknown outcome."""
        return any(write.unknown for write in self.writes.values())

    def add(self, run_id: str, line: Line, at: float) -> None:
        """Takes in the next entry."""
        self.updated, self.entries, self.size = at, self.entries + 1, self.size + len(line.text)
        self.held |= line.held
        change = _CHANGES.get(line.kind)
        if change is not None:
            change(self, line.data, run_id, at)

    def _start(self, data: Mapping[str, object], run_id: str, at: float) -> None:
        self.starts += not data.get("resumed")
        self.model, self.principal, self.reason = str(data.get("model") or ""), principal_of(data), None
        self.prompt = prompt_of(data) or self.prompt  # a resumption has none

    def _finish(self, data: Mapping[str, object], run_id: str, at: float) -> None:
        self.reason = str(data.get("reason"))
        if self.reason != "waiting":  # what never began is over; a write of unknown outcome may still be looked up
            self.held = {i: text for i, text in self.held.items() if i in self.writes and self.writes[i].unknown}

    def _say(self, data: Mapping[str, object], run_id: str, at: float) -> None:
        self.reason = None  # it goes on
        for call_id in _calls_of(data):
            self.asked[call_id] = self.entries

    def _begin(self, data: Mapping[str, Any], run_id: str, at: float) -> None:
        call_id = str(data["call_id"])
        names = (str(data["tool"]), str(data["arguments_hash"]), str(data["key"]))
        self.writes[call_id] = Write(run_id, call_id, *names, principal=data.get("principal"), at=at)

    def _end(self, data: Mapping[str, object], run_id: str, at: float) -> None:
        call_id, result, write = str(data["call_id"]), load_result(data), self.writes.get(str(data["call_id"]))
        self.results[call_id] = result
        # a settlement may come first (a late result overtakes the time-out it belongs to), and it knows better
        if write is not None and write.settled_by is None:
            self.writes[call_id] = replace(write, result=result)
        self._let_go(call_id)

    def _settle(self, data: Mapping[str, Any], run_id: str, at: float) -> None:
        call_id = str(data["call_id"])
        write, result = self.writes.get(call_id), load_result(data)
        if write is not None:
            self.writes[call_id] = replace(write, result=result, settled_by=data.get("by"))
        self._let_go(call_id)

    def _let_go(self, call_id: str) -> None:
        """True arguments are held only while somebody may need them: for a lookup."""
        write = self.writes.get(call_id)
        if write is None or write.result is None or write.result.status not in UNKNOWN:
            self.held.pop(call_id, None)

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


_CHANGES: Mapping[str, Callable[[Fold, Mapping[str, Any], str, float], None]] = {
    "run_started": Fold._start,
    "run_finished": Fold._finish,
    "message": Fold._say,
    "call_intent": Fold._begin,
    "call_result": Fold._end,
    "call_settled": Fold._settle,
}
"""The other kinds are for people, and for the run that is restored from them."""


def writes_of(run_id: str, entries: Iterable[Entry]) -> list[Write]:
    """The writes of a run, in the order they were started, each with the latest that is known of its outcome."""
    fold = Fold()
    for entry in entries:
        fold.add(run_id, Line(entry.kind, entry.version, entry.data, ""), entry.at)
    return list(fold.writes.values())


def prompt_of(data: Mapping[str, object]) -> str:
    """The beginning of what was asked, from the data of `run_started`."""
    prompt = data.get("prompt")
    return prompt[:PROMPT_SHOWN] if isinstance(prompt, str) else ""


def principal_of(data: Mapping[str, object]) -> str | None:
    """The id of the principal, whether the entry has the id or the whole principal."""
    principal = data.get("principal")
    if isinstance(principal, Mapping):
        principal = principal.get("id")
    return None if principal is None else str(principal)


def _calls_of(data: Mapping[str, object]) -> list[str]:
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
        # The latest of this run counts, since the rows come in the order in which they were started.
        if write.run_id == run_id:
            mine = write
        # One that is being carried out right now has an owner who will learn its outcome: it is nobody's doubt yet.
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
    # Oldest first, and the id as the second key: two that ended in the same moment go in the same order on every store.
    for info in sorted(candidates, key=lambda i: (i.updated, i.run_id)):
        if (cutoff is not None and info.updated < cutoff) or (max_size is not None and total > max_size):
            gone.append(info)
            total -= info.size
    return gone


def chained(run_id: str, rows: Sequence[Row], *, after: int, entries: int, last: str) -> list[Entry]:
    """The entries of a run after number `after`, if nothing of the journal read was altered since it was written.

    `rows`: from number `after` on, which brings the digest before; `entries` and `last`: number and digest of the last
    entry that was written. Raises LedgerError otherwise.
    """
    before = ""
    expected = after or 1
    out: list[Entry] = []
    for seq, at, kind, version, text, kept in rows:
        # A gap. What stands behind it may be sound, but a run cannot be resumed from half a journal.
        if seq != expected:
            break
        if seq > after:
            if kept != digest(before, run_id=run_id, seq=seq, at=at, line=(kind, version, text)):
                raise LedgerError(f"run {run_id}, entry {seq} ({kind}): altered after it was written; {_RESTORE}")
            try:
                out.append(from_text(kind, version, text, seq=seq, at=at))
            except LedgerError as error:
                raise LedgerError(f"run {run_id}, {error}") from error
        before, expected = kept, seq + 1
    # The row of the run was put back to an older state than its journal, as when one file of two is restored.
    if expected - 1 > entries:
        raise LedgerError(f"run {run_id}: entry {expected - 1} is beyond the {entries} that were written; {_RESTORE}")
    if expected <= entries or (entries and before != last):
        raise LedgerError(f"run {run_id}: number {expected} of {entries} entries is missing or altered; {_RESTORE}")
    return out


_RESTORE = "see `callgate ledger verify`, and restore a copy"


# --- verify -------------------------------------------------------------------------------------------------------


def check_run(run_id: str, rows: Sequence[Row], report: Report, *, is_held: bool, kept: Index | None = None) -> Report:
    """The report with what this run breaks. `is_held`: it is being carried out, so it may be unfinished; `kept`: what
    a store keeps beside the journal."""
    problems: list[str] = []
    notes: list[str] = []
    fold = Fold()
    before, last_at = "", 0.0
    for number, (seq, at, kind, version, text, kept_digest) in enumerate(rows, 1):
        where = f"run {run_id}, entry {seq}"
        # Everything after a gap would be reported as altered: one line says it.
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
    # Tables that do not fit a damaged journal are no second fault.
    if kept is not None and not problems:
        problems += _check_index(run_id, fold, kept, before)
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
    found = [f"{where}: {fault}" for fault in _faults(kind, entry.data, fold)]
    try:
        fold.add(run_id, Line(kind, VERSION, entry.data, text), at)
    except LedgerError as error:
        found.append(f"{where}: {error}")
    return found


def _faults(kind: str, data: Mapping[str, object], fold: Fold) -> Iterator[str]:
    """What an entry must not say after those before it."""
    call_id = str(data.get("call_id"))
    match kind:
        case "call_intent":
            if call_id in fold.writes:
                yield f"the write {call_id} was started twice"
            if any(w.key == data["key"] and not w.without_effect for w in fold.writes.values()):
                yield "a second write with the same idempotency key was started"
            if call_id in fold.results:
                yield f"the write {call_id} was started after it had a result"
        case "run_started" if not data.get("resumed") and fold.starts:
            yield "the run was started a second time"
        case "call_result" if call_id in fold.results:
            yield f"the call {call_id} has a second result"
        case "call_settled" if call_id not in fold.writes:
            yield f"settles the call {call_id}, which no write was started for"
        case _:
            pass


def _check_index(run_id: str, fold: Fold, kept: Index, last: str) -> list[str]:
    """What a store keeps beside the journal is what the journal adds up to."""
    found = []
    if kept.entries != fold.entries:
        found.append(f"run {run_id}: {kept.entries} entries were written, {fold.entries} are there")
    elif kept.digest != last:
        found.append(f"run {run_id}: the digest of its last entry does not fit")
    writes = {
        w.call_id: (status_of(w), w.settled_by, w.tool, w.arguments_hash, w.key, w.principal)
        for w in fold.writes.values()
    }
    if kept.writes != writes:
        found.append(f"run {run_id}: the table of writes does not fit the journal")
    if kept.results != set(fold.results):
        found.append(f"run {run_id}: the table of results does not fit the journal")
    if (kept.reason, kept.principal) != (fold.reason, fold.principal):
        found.append(f"run {run_id}: its end or principal does not fit the journal")
    final = set(fold.results).union(fold.writes) - {w.call_id for w in fold.writes.values() if w.unknown}
    found += [f"run {run_id}: arguments of call {i} are still held, though it has ended" for i in final & kept.held]
    return found


def status_of(write: Write) -> str:
    """The status of a write's latest outcome; "open" while there is none."""
    return write.result.status if write.result else "open"


def _check_end(run_id: str, fold: Fold) -> list[str]:
    """Once a run has ended (and not only waits), every call has its result."""
    if fold.reason in (None, "waiting"):
        return []
    return [
        f"run {run_id}: ended as {fold.reason}, but the call {call_id} has no result"
        for call_id in dict.fromkeys((*fold.writes, *fold.asked))
        if call_id not in fold.results
    ]
