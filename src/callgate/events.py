"""The events of a run, and the one codec for them: the terminal, `--json` and the ledger read these same values.

Law: `load_event(dump_event(e)) == e` for every event, and a name on the wire never changes.
    (tests/test_events.py::test_every_event_comes_back_from_json_as_it_was)

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
    """A run began, or was resumed (`resumed`)."""

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
    """The model asked for this call: a `ToolCall` with its repaired and checked arguments, or a `BadCall`."""

    call: ToolCall | BadCall


@dataclass(slots=True, frozen=True)
class CallJudged:
    """The gate's verdict on the call with its final arguments."""

    call_id: str
    verdict: Verdict


@dataclass(slots=True, frozen=True)
class CallStarted:
    """The tool is running."""

    call_id: str
    name: str


@dataclass(slots=True, frozen=True)
class CallProgress:
    """A report of a running tool: JSON, or text."""

    call_id: str
    value: Any


@dataclass(slots=True, frozen=True)
class CallFinished:
    """The call has its one result. `duration` is in seconds, None if the call never started."""

    call_id: str
    name: str
    result: ToolResult
    duration: float | None = None


@dataclass(slots=True, frozen=True)
class Retrying:
    """The answer could not be used, and another one is requested; text already shown of it is void."""

    attempt: int
    """Counts on from one over all protocols, until an answer can be used."""
    reason: str


@dataclass(slots=True, frozen=True)
class ProtocolChanged:
    """The run asks the model in a simpler way from now on (`routed`, `constrained`, `json`, `marker`, `answer`)."""

    before: str
    after: str
    reason: str


@dataclass(slots=True, frozen=True)
class ModelChanged:
    """The run asks the next one of its models from now on: nothing had come of the answer."""

    before: str
    after: str
    reason: str


@dataclass(slots=True, frozen=True)
class TextChecked:
    """The application looked at the prompt or the answer (`what`). Text of an answer that was shown before and that is
    changed, refused or asked for again is void."""

    what: str
    decision: str
    """"accepted", "changed", "refused" or "asked_again"."""
    reason: str = ""
    text: str = ""
    """What stands in its place, if it was changed."""


@dataclass(slots=True, frozen=True)
class Routed:
    """Which tools were picked, by which chooser, with what confidence (0 to 1, None if it has none)."""

    chooser: str
    tools: tuple[str, ...]
    confidence: float | None = None


@dataclass(slots=True, frozen=True)
class TurnFinished:
    """The answer is complete, `seconds` after its request."""

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
    | ModelChanged
    | TextChecked
    | Routed
    | TurnFinished
    | RunFinished
)

MAX_DEPTH = 200
"""Levels of a value that are written down. A model or server may nest deeper than Python's stack is; arguments deeper
than `schema.MAX_DEPTH` (128) are refused, so no call that runs is ever cut."""
TOO_DEEP = f"… (nested deeper than {MAX_DEPTH} levels)"

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
    "model_changed": ModelChanged,
    "text_checked": TextChecked,
    "routed": Routed,
    "turn_finished": TurnFinished,
    "run_finished": RunFinished,
    # values inside events, and deltas that are not events of a run
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


def dump_event(value: object) -> dict[str, Any]:
    """An event, delta, verdict, call or result as a JSON-ready dict with its name under "type"."""
    cls = type(value)
    out: dict[str, object] = {"type": _TYPES[cls]}
    for name in _FIELDS[cls]:
        part = getattr(value, name)
        if cls is Finish and name == "extra" and not part:  # few servers want anything back
            continue
        out[name] = part if type(part) in _PLAIN else _dump(part)
    return out


def _dump(value: object, left: int = MAX_DEPTH) -> object:
    if type(value) in _PLAIN:
        return value
    if type(value) in _TYPES:
        return dump_event(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if not left and isinstance(value, (Mapping, list, tuple)):
        return TOO_DEEP
    if isinstance(value, (dict, Mapping)):
        return {k: _dump(v, left - 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_dump(v, left - 1) for v in value]
    return value


def load_event(data: Mapping[str, object]) -> Any:
    """The event that `dump_event` wrote. Raises ValueError for an unknown "type"; unknown keys are ignored."""
    cls = NAMES.get(str(data.get("type")))
    if cls is None:
        raise ValueError(f"event type {data.get('type')!r}: unknown; this ledger was written by a newer callgate")
    known = {f.name: f for f in dataclasses.fields(cls)}
    return cls(**{k: _load(v, cls, k) for k, v in data.items() if k in known})


_SETS = {(ToolCall, "flags"), (BadCall, "flags")}
_TUPLES = {(Finish, "problems"), (ToolResult, "parts"), (Routed, "tools")}
_OPEN = {(ToolCall, "arguments"), (ToolResult, "value"), (CallProgress, "value")}  # the user's data: not decoded


def _load(value: Any, cls: type[object], key: str) -> object:
    if (cls, key) in _SETS:
        return frozenset(value)
    if (cls, key) in _TUPLES:
        return tuple(value)
    if (cls, key) not in _OPEN and isinstance(value, Mapping) and value.get("type") in NAMES:
        return load_event(value)
    return value
