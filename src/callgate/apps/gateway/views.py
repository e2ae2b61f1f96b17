"""What clients are told of runs and calls, made from the journal alone.

Law: what is told of a run is the same while it runs, after a restart and in another process.
(tests/test_gateway_runs.py::test_a_killed_server_leaves_a_run_that_goes_on)

These classes are the answers of the API as well as its description in the OpenAPI document.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from callgate.apps.gateway.gate import ExchangeRecord
from callgate.events import load_event
from callgate.types import Message, ToolCall, ToolSpec

if TYPE_CHECKING:
    from callgate.ledger import RunInfo
    from callgate.types import Entry

State: TypeAlias = Literal["running", "waiting", "interrupted", "ended"]
"""Carried out by somebody; waits for people; was cut off and can be resumed; over."""
MAX_PROMPT = 500
Json: TypeAlias = Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class RunLine:
    """A run in a list."""

    id: str
    state: State
    reason: str | None
    """How it ended, in the words of `callgate.types.RunReason`; None: it has not."""
    started: float
    """Seconds since 1970."""
    updated: float
    model: str
    principal: str | None
    prompt: str
    """The beginning of what was asked."""
    entries: int
    """Entries of its journal; the number of the last one."""


@dataclass(slots=True, frozen=True)
class RunList:
    """Runs, last updated first."""

    runs: list[RunLine]


@dataclass(slots=True, frozen=True)
class Question:
    """A call that waits for a person, with exactly the arguments that it would run with."""

    call_id: str
    tool: str
    arguments: Json
    rule: str
    reason: str
    since: float
    flags: list[str]
    """What was odd about how it was written."""
    notes: list[str]
    """What was repaired."""


@dataclass(slots=True, frozen=True)
class Decided:
    """What a person answered."""

    call_id: str
    allow: bool
    scope: str
    by: str
    at: float
    accepted: bool
    """False also for a yes that came too late."""


@dataclass(slots=True, frozen=True)
class RunView:
    """A run with everything that is in its journal."""

    run: RunLine
    text: str
    error: str | None
    usage: Json
    seconds: float
    """Without the time that people took."""
    turns: int
    protocol: str
    tools: list[str]
    messages: list[Json]
    waiting: list[Question]
    decided: list[Decided]
    output: Any
    """The final answer as a value, if a schema for it was given."""


@dataclass(slots=True, frozen=True)
class AnswerList:
    """The answers, as they stand in the journal."""

    answers: list[Decided]


@dataclass(slots=True, frozen=True)
class QuestionOf:
    """A question with its run."""

    run_id: str
    principal: str | None
    model: str
    prompt: str
    question: Question


@dataclass(slots=True, frozen=True)
class Questions:
    """Everything that waits for a person, oldest first."""

    questions: list[QuestionOf]


@dataclass(slots=True, frozen=True)
class CallLine:
    """A call that a model proposed, as `callgate calls list --json` prints it."""

    at: float
    run_id: str
    call_id: str
    tool: str
    model: str
    principal: str | None
    protocol: str
    turn: int | None
    arguments: Any
    flags: list[str]
    notes: list[str]
    status: str | None
    """None: it has no result yet."""
    seconds: float | None
    replayed: bool
    content: str
    size: int
    settled: Json | None
    unknown: bool
    """A write that was started and of which nobody knows how it ended."""


@dataclass(slots=True, frozen=True)
class CallList:
    """Calls, oldest first."""

    calls: list[CallLine]


@dataclass(slots=True, frozen=True)
class CallView:
    """One call with its whole result."""

    call: CallLine
    result: Json | None
    """As the tool gave it, uncut; None: there is none yet."""


@dataclass(slots=True, frozen=True)
class ExchangeList:
    """Requests that passed through the proxy, last first."""

    exchanges: list[ExchangeRecord]


@dataclass(slots=True, frozen=True)
class ToolLine:
    """A tool of the agents."""

    name: str
    description: str
    effect: str
    confirm: bool
    """A person is asked before every call."""
    permission: str | None
    """The grant that a principal needs."""
    parameters: Json


@dataclass(slots=True, frozen=True)
class ToolList:
    """The tools of the agents."""

    tools: list[ToolLine]


def tool_line(spec: ToolSpec) -> ToolLine:
    """What is told of a tool."""
    return ToolLine(spec.name, spec.description, spec.effect, spec.confirm, spec.permission, spec.parameters)


def line_of(info: RunInfo, active: bool) -> RunLine:
    """A run in a list; `active`: this server carries it out."""
    state: State
    if info.reason is None:
        state = "running" if active or info.owner is not None else "interrupted"
    else:
        state = "waiting" if info.reason == "waiting" else "ended"
    return RunLine(
        info.run_id,
        state,
        info.reason,
        info.started,
        info.updated,
        info.model,
        info.principal,
        info.prompt[:MAX_PROMPT],
        info.entries,
    )


def view_of(line: RunLine, entries: Sequence[Entry]) -> RunView:
    """A run with everything that its journal tells."""
    begun: Json = entries[0].data if entries else {}
    end: Json = next((e.data for e in reversed(entries) if e.kind == "run_finished"), {})
    return RunView(
        line,
        str(end.get("text", "")),
        end.get("error"),
        dict(end.get("usage") or {}),
        _seconds(entries, end),
        _turns(entries),
        _protocol(entries),
        [str(name) for name in begun.get("tools", ())],
        messages_in(entries),
        waiting_in(entries),
        list(decided_in(entries).values()),
        end.get("output"),
    )


def _seconds(entries: Sequence[Entry], end: Json) -> float:
    return float(entries[-1].data.get("t") or end.get("seconds") or 0.0) if entries else 0.0


def _turns(entries: Sequence[Entry]) -> int:
    turns = (entry.data for entry in entries if entry.kind == "turn" and "finish" in entry.data)
    return max((int(turn.get("turn", 0)) for turn in turns), default=0)


def _protocol(entries: Sequence[Entry]) -> str:
    """How the model is asked by now; "": it was not chosen yet."""
    chosen = (entry.data for entry in reversed(entries) if entry.kind in ("run_started", "protocol"))
    return next((str(data["protocol"]) for data in chosen if "protocol" in data), "")


def messages_in(entries: Sequence[Entry]) -> list[Json]:
    """The conversation so far, without the instructions."""
    found: list[Json] = []
    for entry in entries:
        if entry.kind == "run_started" and not entry.data.get("resumed"):
            found += entry.data.get("messages", ())
        elif entry.kind == "message":
            found.append(entry.data["message"])
    return found


def history_of(entries: Sequence[Entry]) -> list[Message]:
    """The conversation as the history of a next run. Raises ValueError for a journal that is damaged."""
    return [_message(found) for found in messages_in(entries)]


def _message(data: Json) -> Message:
    content = data.get("content", "")
    calls = tuple(load_event(call) for call in data.get("calls", ()))
    return Message(
        data["role"],
        content if isinstance(content, str) else tuple(content),
        data.get("reasoning", ""),
        tuple(call for call in calls if isinstance(call, ToolCall)),
        data.get("call_id"),
        data.get("name"),
        data.get("extra", {}),
        data.get("unknown") is True,
    )


def waiting_in(entries: Sequence[Entry]) -> list[Question]:
    """The calls that wait for a person now, in the order in which they were asked about."""
    proposed = {e.data["call"].get("id"): e.data for e in entries if e.kind == "call_proposed"}
    asked = {e.data["call_id"]: e for e in entries if e.kind == "ask"}
    for entry in entries:
        if entry.kind in ("answer", "call_result"):
            asked.pop(entry.data["call_id"], None)
    return [_question(entry, proposed.get(call_id, {})) for call_id, entry in asked.items()]


def _question(entry: Entry, proposed: Json) -> Question:
    data = entry.data
    return Question(
        data["call_id"],
        str(data.get("tool", "")),
        data.get("arguments") or {},
        str(data.get("rule", "")),
        str(data.get("reason", "")),
        entry.at,
        list(proposed.get("call", {}).get("flags", ())),
        list(proposed.get("notes", ())),
    )


def decided_in(entries: Sequence[Entry]) -> dict[str, Decided]:
    """Call id -> what a person answered."""
    found: dict[str, Decided] = {}
    for entry in entries:
        if entry.kind == "answer":
            data = entry.data
            allow = data.get("allow") is True
            found[data["call_id"]] = Decided(
                data["call_id"],
                allow,
                str(data.get("scope", "once")),
                str(data.get("by", "")),
                entry.at,
                data.get("accepted", allow) is True,
            )
    return found


def call_line(line: Json, *, unknown: bool) -> CallLine:
    """A line of the call log."""
    return CallLine(**line, unknown=unknown)


def dumped(value: object) -> bytes:
    """An answer as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode("utf-8", "replace")


def _plain(value: object) -> object:
    """What JSON has no word for."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(value) if isinstance(value, Mapping) else str(value)
