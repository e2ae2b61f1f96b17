"""What a run tells the world, and the one codec for all of it: the terminal, `--json`, the ledger and the
gateway read these same values.

One law: `load_event(dump_event(e)) == e` for every event, and a name on the wire is for life.

The deltas of types.py (`TextDelta`, `ReasoningDelta`, `CallDelta`) are events as they are: the object that a provider
made is the object that the screen prints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from callgate.types import (
    Allow,
    Ask,
    BadCall,
    CallDelta,
    Deny,
    Finish,
    ReasoningDelta,
    RunReason,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
    Verdict,
)


@dataclass(slots=True, frozen=True)
class RunStarted:
    """A run began, or was taken up again (`resumed`)."""

    run_id: str
    model: str = ""
    protocol: str = ""
    resumed: bool = False


@dataclass(slots=True, frozen=True)
class TurnStarted:
    """A request for the next answer is going out. `turn` counts from 1."""

    turn: int
    protocol: str = ""


@dataclass(slots=True, frozen=True)
class CallProposed:
    """The model asked for this call; arguments as mended and checked, `bad` for one that cannot be read."""

    call: ToolCall | BadCall


@dataclass(slots=True, frozen=True)
class CallJudged:
    """The gate's verdict on exactly these arguments."""

    call_id: str
    verdict: Verdict


@dataclass(slots=True, frozen=True)
class CallStarted:
    """The tool is running."""

    call_id: str
    name: str


@dataclass(slots=True, frozen=True)
class CallProgress:
    """What a running tool reports: JSON, or text."""

    call_id: str
    value: Any


@dataclass(slots=True, frozen=True)
class CallFinished:
    """The call has its one result. `duration` in seconds, None if it never started."""

    call_id: str
    name: str
    result: ToolResult
    duration: float | None = None


@dataclass(slots=True, frozen=True)
class Retrying:
    """The answer could not be used and is asked for again; text already shown of it is void."""

    attempt: int
    reason: str


@dataclass(slots=True, frozen=True)
class ProtocolChanged:
    """The ladder stepped down (`routed`, `constrained`, `json`, `marker`, `answer`)."""

    before: str
    after: str
    reason: str


@dataclass(slots=True, frozen=True)
class Routed:
    """How a tool was chosen, by which chooser, with what confidence (0..1, None if it has none)."""

    chooser: str
    tools: tuple[str, ...]
    confidence: float | None = None


@dataclass(slots=True, frozen=True)
class TurnFinished:
    """The answer is complete. `seconds` since the request went out."""

    turn: int
    finish: Finish
    seconds: float | None = None


@dataclass(slots=True, frozen=True)
class RunFinished:
    """The run ended; nothing follows."""

    reason: RunReason
    text: str = ""
    error: str | None = None
    usage: Usage = field(default_factory=dict)


Event: TypeAlias = (
    RunStarted
    | TurnStarted
    | TextDelta
    | ReasoningDelta
    | CallDelta
    | CallProposed
    | CallJudged
    | CallStarted
    | CallProgress
    | CallFinished
    | Retrying
    | ProtocolChanged
    | Routed
    | TurnFinished
    | RunFinished
)

NAMES: dict[str, type[Any]] = {
    "run_started": RunStarted,
    "turn_started": TurnStarted,
    "text": TextDelta,
    "reasoning": ReasoningDelta,
    "call_delta": CallDelta,
    "call_proposed": CallProposed,
    "call_judged": CallJudged,
    "call_started": CallStarted,
    "call_progress": CallProgress,
    "call_finished": CallFinished,
    "retrying": Retrying,
    "protocol_changed": ProtocolChanged,
    "routed": Routed,
    "turn_finished": TurnFinished,
    "run_finished": RunFinished,
    # values that stand inside events, and deltas that are no events of a run
    "tool_call": ToolCall,
    "bad_call": BadCall,
    "finish": Finish,
    "tool_result": ToolResult,
    "allow": Allow,
    "ask": Ask,
    "deny": Deny,
}
_TYPES = {cls: name for name, cls in NAMES.items()}
_FIELDS = {cls: tuple(f.name for f in dataclasses.fields(cls)) for cls in _TYPES}
_PLAIN = frozenset({str, int, float, bool, type(None)})


def dump_event(value: Any) -> dict[str, Any]:
    """An event, delta, verdict, call or result as a JSON-ready dict with its name under "type"."""
    cls = type(value)
    out: dict[str, Any] = {"type": _TYPES[cls]}
    for name in _FIELDS[cls]:
        part = getattr(value, name)
        out[name] = part if type(part) in _PLAIN else _dump(part)
    return out


def _dump(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if type(value) in _TYPES:
        return dump_event(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, (dict, Mapping)):
        return {k: _dump(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_dump(v) for v in value]
    return value


def load_event(data: Mapping[str, Any]) -> Any:
    """The event that `dump_event` wrote. Raises ValueError for an unknown "type"; unknown keys are ignored."""
    cls = NAMES.get(str(data.get("type")))
    if cls is None:
        raise ValueError(f"event type {data.get('type')!r}: unknown; this ledger was written by a newer callgate")
    known = {f.name: f for f in dataclasses.fields(cls)}
    return cls(**{k: _load(v, cls, k) for k, v in data.items() if k in known})


_SETS = {(ToolCall, "flags")}
_TUPLES = {(Finish, "problems"), (ToolResult, "parts"), (Routed, "tools")}
_OPEN = {(ToolCall, "arguments"), (ToolResult, "value"), (CallProgress, "value")}  # the user's data: never looked into


def _load(value: Any, cls: type[Any], key: str) -> Any:
    if (cls, key) in _SETS:
        return frozenset(value)
    if (cls, key) in _TUPLES:
        return tuple(value)
    if (cls, key) not in _OPEN and isinstance(value, Mapping) and value.get("type") in NAMES:
        return load_event(value)
    return value
