"""How well it works: what the ledger tells of calls, tools, protocols and runs; and every call as one line of JSON.

Law: every number can be counted by hand from `call_log`, which has one line for every call that a model proposed.
(tests/test_stats.py::test_rates_and_causes_follow_from_the_log)
Law: a journal that is damaged raises LedgerError. (tests/test_ledger_damage.py::test_every_damage_is_a_ledger_error)

Of the calls that a model asked for, the *effective tool-call rate* is the share whose arguments were usable and which
were permitted, whatever became of them then; the *ok rate* is the share that came to a good end. The *success rate*
looks only at those that were started. `causes` says what the others cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from callgate.errors import LedgerError
from callgate.ledger import Ledger
from callgate.types import Entry

UNKNOWN = "(none)"
"""Stands for a call that has no result yet."""
HELD_BACK = frozenset({"invalid_arguments", "unknown_tool", "denied", "not_started", None})
"""What became of calls that were no good, or that nothing let through (so far): they never ran."""


@dataclass(slots=True)
class Calls:
    """The calls of one group."""

    proposed: int = 0
    effective: int = 0
    """Their arguments were usable, and they were permitted."""
    started: int = 0
    ok: int = 0
    replayed: int = 0
    """Answered from the ledger instead of being run."""
    mended: int = 0
    """Proposed in a form that had to be repaired, coerced or read with a liberty."""
    causes: Counter[str] = field(default_factory=Counter)
    """Status -> calls that did not come to a good end."""
    seconds: list[float] = field(default_factory=list)

    @property
    def effective_rate(self) -> float | None:
        """(usable and permitted) / proposed: the effective tool-call rate."""
        return self.effective / self.proposed if self.proposed else None

    @property
    def ok_rate(self) -> float | None:
        """ok / proposed."""
        return self.ok / self.proposed if self.proposed else None

    @property
    def success_rate(self) -> float | None:
        """ok / started."""
        return (self.ok - self.replayed) / self.started if self.started else None

    def add(self, line: dict[str, Any]) -> None:
        """Counts one line of the call log."""
        self.proposed += 1
        self.mended += bool(line["notes"] or line["flags"])
        self.effective += line["status"] not in HELD_BACK
        good = line["status"] == "ok"
        self.ok += good
        self.replayed += good and line["replayed"]
        if line["seconds"] is not None:
            self.started += 1
            self.seconds.append(line["seconds"])
        if not good:
            self.causes[line["status"] or UNKNOWN] += 1

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "proposed": self.proposed,
            "effective": self.effective,
            "started": self.started,
            "ok": self.ok,
            "replayed": self.replayed,
            "mended": self.mended,
            "effective_rate": self.effective_rate,
            "ok_rate": self.ok_rate,
            "success_rate": self.success_rate,
            "causes": dict(self.causes.most_common()),
            **spread(self.seconds),
        }


@dataclass(slots=True)
class Stats:
    """Everything counted."""

    calls: Calls = field(default_factory=Calls)
    groups: dict[tuple[str, ...], Calls] = field(default_factory=dict)
    by: tuple[str, ...] = ("tool", "protocol")
    runs: Counter[str] = field(default_factory=Counter)
    """Reason -> runs; "open" for those without an end."""
    turns: int = 0
    requests: int = 0
    failed_requests: int = 0
    unusable_answers: int = 0
    ladder: Counter[str] = field(default_factory=Counter)
    """"before -> after" -> how often the protocol changed."""
    usage: Counter[str] = field(default_factory=Counter)
    answer_seconds: list[float] = field(default_factory=list)
    first_token_seconds: list[float] = field(default_factory=list)
    """From a request to the first piece of its answer, of the answers that were accepted."""

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        groups = [
            {**dict(zip(self.by, key, strict=True)), **calls.as_json()} for key, calls in sorted(self.groups.items())
        ]
        return {
            "runs": dict(self.runs.most_common()),
            "turns": self.turns,
            "requests": self.requests,
            "failed_requests": self.failed_requests,
            "unusable_answers": self.unusable_answers,
            "protocol_changes": dict(self.ladder.most_common()),
            "usage": dict(self.usage),
            "first_tokens": spread(self.first_token_seconds),
            "answers": spread(self.answer_seconds),
            "calls": self.calls.as_json(),
            "groups": groups,
        }


def spread(seconds: Sequence[float]) -> dict[str, float | None]:
    """Median, 95th percentile and maximum."""
    return {"p50": percentile(seconds, 50), "p95": percentile(seconds, 95), "max": max(seconds, default=None)}


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The smallest value that at least `percent` of all do not exceed."""
    if not values:
        return None
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


GROUPS = ("tool", "protocol", "model", "principal")
"""What calls can be grouped by."""


async def collect(ledger: Ledger, *, since: float = 0.0, by: Sequence[str] = ("tool", "protocol")) -> Stats:
    """Counts everything that happened since then, grouped by fields of the call log."""
    stats = Stats(by=tuple(by))
    async for run_id, entries in _by_run(ledger, since):
        with _damage(run_id):
            _count_run(stats, entries)
            lines = list(_lines(entries, run_id))
        for line in lines:
            stats.calls.add(line)
            key = tuple(str(line[name]) if line[name] is not None else UNKNOWN for name in by)
            stats.groups.setdefault(key, Calls()).add(line)
    return stats


async def call_log(ledger: Ledger, *, since: float = 0.0, run_id: str | None = None) -> AsyncIterator[dict[str, Any]]:
    """One JSON-ready line for every call that was proposed since then, in all runs or in one."""
    async for name, entries in _by_run(ledger, since, run_id):
        with _damage(name):
            lines = list(_lines(entries, name))
        for line in lines:
            yield line


_KINDS = ("run_started", "request", "turn", "protocol", "call_proposed", "call_result", "call_settled", "run_finished")


async def _by_run(ledger: Ledger, since: float, only: str | None = None) -> AsyncIterator[tuple[str, list[Entry]]]:
    """The entries of each run that was updated since then."""
    run_id, entries = "", list[Entry]()
    async for name, entry in ledger.scan(kinds=_KINDS, run_id=only):
        if name != run_id:
            if entries and entries[-1].at >= since:
                yield run_id, entries
            run_id, entries = name, []
        entries.append(entry)
    if entries and entries[-1].at >= since:
        yield run_id, entries


def _count_run(stats: Stats, entries: Iterable[Entry]) -> None:
    reason = "open"
    for entry in entries:
        data = entry.data
        match entry.kind:
            case "request":
                stats.failed_requests += "failed" in data
                stats.requests += "failed" not in data
            case "turn" if "finish" in data:
                stats.turns += bool(data.get("counts", True))
                stats.unusable_answers += not data.get("counts", True)
                stats.usage.update({k: v for k, v in (data.get("usage") or {}).items() if isinstance(v, int)})
                if data.get("seconds") is not None:
                    stats.answer_seconds.append(data["seconds"])
                if data.get("first_token") is not None:
                    stats.first_token_seconds.append(data["first_token"])
            case "protocol" if "before" in data:
                stats.ladder[f"{data['before']} -> {data['protocol']}"] += 1
            case "run_started":
                reason = "open"
            case "run_finished":
                reason = str(data["reason"])
            case _:
                pass
    stats.runs[reason] += 1


@contextmanager
def _damage(run_id: str) -> Iterator[None]:
    """What is not as it was written is the journal's fault, not the reader's."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise LedgerError(f"run {run_id}: its journal is damaged; see `callgate ledger verify`") from error


def _lines(entries: Iterable[Entry], run_id: str) -> Iterable[dict[str, Any]]:
    """The call log of one run."""
    lines: dict[str, dict[str, Any]] = {}
    run: dict[str, Any] = {"model": "", "principal": None, "protocol": ""}
    for entry in entries:
        data = entry.data
        match entry.kind:
            case "run_started":
                run |= {"model": data["model"], "principal": data["principal"]}
                run["protocol"] = data.get("protocol", run["protocol"])
            case "turn" | "protocol":
                run["protocol"] = data.get("protocol", run["protocol"])
            case "call_proposed":
                call = data["call"]
                lines[call["id"]] = {
                    "at": entry.at,
                    "run_id": run_id,
                    "call_id": call["id"],
                    "tool": call["name"],
                    **run,
                    "turn": data.get("turn"),
                    "arguments": call.get("arguments"),
                    "flags": call.get("flags", []),
                    "notes": data.get("notes", []),
                    "status": None,
                    "seconds": None,
                    "replayed": False,
                    "content": "",
                    "size": 0,
                    "settled": None,
                }
            case "call_result" if data["call_id"] in lines:
                result = data["result"]
                lines[data["call_id"]] |= {
                    "status": result["status"],
                    "seconds": data.get("duration"),
                    "replayed": result.get("replayed", False),
                    "content": result.get("content", ""),
                    "size": result.get("size", 0),
                }
            case "call_settled" if data["call_id"] in lines:
                lines[data["call_id"]]["settled"] = {"by": data["by"], "status": data["result"]["status"]}
            case _:
                pass
    return lines.values()
