"""How a call ended, in words for the model.

One law: the status tells the truth about the world. A write that was started is `ok` only if it said so, without effect
only if it said so, and else its outcome is unknown; and no text ever invites the model to do an unknown write over.

Pure: what a tool returned or raised goes in, a `ToolResult` comes out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from callgate.errors import Denied, NoEffect, NotFound, UpstreamError
from callgate.masking import DEFAULT as MASKING
from callgate.results import apart, compress, to_json, unknown_outcome
from callgate.types import Part, Status, ToolCall, ToolResult, ToolSpec

MAX_MESSAGE = 1000
"""Characters of an exception's message that the model sees: enough for any reason, too little for a dump."""


@dataclass(slots=True, frozen=True)
class Words:
    """A returned value as the model, the ledger and the caller get it."""

    text: str
    size: int
    value: Any
    parts: tuple[Part, ...]


def words_of(value: Any, limit: int) -> Words:
    """Puts a value into words; takes its time where the value is large."""
    rest, parts = apart(value)
    text, size = compress(rest, limit)
    return Words(text, size, to_json(rest), parts)


@dataclass(slots=True, frozen=True)
class Returned:
    """The tool returned."""

    value: Any
    words: Words | None = None
    """Made already in the tool's own thread, so that a large value keeps nobody else waiting (X5)."""


@dataclass(slots=True, frozen=True)
class Raised:
    """The tool raised."""

    error: BaseException


@dataclass(slots=True, frozen=True)
class Refused:
    """The arguments do not fit the tool's own types, so it was not begun."""

    error: BaseException


@dataclass(slots=True, frozen=True)
class TimedOut:
    """The tool did not end in time."""

    seconds: float


@dataclass(slots=True, frozen=True)
class Stopped:
    """The run was cancelled while the tool ran, and it ended without a value, or was abandoned."""


Outcome: TypeAlias = Returned | Raised | Refused | TimedOut | Stopped

_TRACEBACK = re.compile(
    r"\s*(?:Traceback \(most recent call last\)|^\s*File \"[^\"]*\", line \d+)[\s\S]*", re.MULTILINE
)


def result_of(call: ToolCall, spec: ToolSpec, outcome: Outcome, *, limit: int) -> ToolResult:
    """The one result of a call that was started."""
    match outcome:
        case Returned(value, words):
            said = words or words_of(value, limit)
            return ToolResult(call.id, "ok", said.text, value=said.value, size=said.size, parts=said.parts)
        case Raised(error):
            return _raised(call, spec, single(error), limit)
        case Refused(error):
            return _say(call, "invalid_arguments", f"the arguments do not fit {call.name}: {message_of(error)}", limit)
        case TimedOut(seconds):
            if spec.effect == "write":
                return unknown_outcome(call, f"it timed out after {seconds:g} s")
            return ToolResult(call.id, "timeout", f"{call.name} timed out after {seconds:g} s.")
        case Stopped():
            if spec.effect == "write":
                return unknown_outcome(call, "the run was cancelled while it ran")
            return ToolResult(call.id, "cancelled", f"{call.name} was cancelled before it had ended.")


def _raised(call: ToolCall, spec: ToolSpec, error: BaseException, limit: int) -> ToolResult:
    said = message_of(error)
    match error:
        case NoEffect():
            return _say(call, "failed", f"{call.name} failed and changed nothing: {said}", limit)
        case NotFound():
            return _say(call, "not_found", f"not found: {said}", limit)
        case Denied():
            return _say(call, "denied", f"denied by {call.name}: {said}", limit)
        case _ if spec.effect == "write":
            return unknown_outcome(call, f"it ended with {type(error).__name__}", said)
        case UpstreamError() | ConnectionError():
            return _say(call, "upstream_error", f"a service behind {call.name} failed: {said}", limit)
        case TimeoutError():
            return _say(call, "timeout", f"{call.name} timed out: {said}", limit)
        case _:
            return _say(call, "failed", f"{call.name} failed: {type(error).__name__}: {said}", limit)


def _say(call: ToolCall, status: Status, text: str, limit: int) -> ToolResult:
    cut, size = compress(text.removesuffix(": "), limit)
    return ToolResult(call.id, status, cut, size=size)


def not_started(call: ToolCall, why: str) -> ToolResult:
    """The result of a call that was never begun."""
    return ToolResult(call.id, "not_started", f"{call.name} was not started: {why}.")


def single(error: BaseException) -> BaseException:
    """The one exception inside a group of one; task groups wrap what a tool really said."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def message_of(error: BaseException) -> str:
    """What an exception says, fit for the model: one message, no traceback, no secret (X8)."""
    try:
        text = str(error)
    except Exception:
        text = ""
    if isinstance(error, KeyError) and len(error.args) == 1:
        text = f"no such key: {text}"  # str(KeyError) is only the key
    text = MASKING.text(_TRACEBACK.sub("", text).strip())
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
