"""How a call ended: what a tool returned or raised, as the result that the model gets. Pure.

Law: a write that was started is `ok` only if it said so, without effect only if it said so, and else its outcome is
unknown. (tests/test_executor.py::test_an_exception_is_a_result)
Law: no text invites the model to do an unknown write over.
(tests/test_executor.py::test_an_unknown_write_never_invites_to_repeat_it)
Law: the cost of an exception's text does not grow beyond `MAX_READ` characters.
(tests/attacks/test_attack_texts.py::test_the_message_of_a_hostile_exception_costs_a_bounded_number_of_steps)
"""

from __future__ import annotations

import re

from callgate.errors import Denied, NoEffect, NotFound, NotStarted, ToolRetry, UpstreamError
from callgate.executor._endings import NotBegun, Outcome, Raised, Refused, Rendered, Returned, Stopped, TimedOut, single
from callgate.masking import DEFAULT as MASKING
from callgate.masking import Masking
from callgate.results import apart, compress, to_json, unknown_outcome
from callgate.types import Status, ToolCall, ToolResult, ToolSpec

MAX_READ = 20_000
"""Characters of an exception's text that are looked at: a stranger's text is cut before it is searched."""
MAX_MESSAGE = 1000
"""Characters of an exception's message that the model sees: enough for any reason, too little for a dump."""
NO_OUTPUT = "(no output)"
"""What the model is sent for an empty text: some servers refuse an empty message, and models take it for a failure."""


def render(value: object, limit: int) -> Rendered:
    """Turns a value into text; takes its time where the value is large."""
    rest, parts = apart(value)
    text, size = compress(rest, limit)
    if not text and not parts:
        text = NO_OUTPUT
    return Rendered(text, size, to_json(rest), parts)


# Linear: one alternative begins with a literal, the other is tried once a line and does not leave it.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|^[ \t]*File \"[^\"\n]*\", line \d", re.MULTILINE)


def result_of(
    call: ToolCall, spec: ToolSpec, outcome: Outcome, *, limit: int, masking: Masking = MASKING
) -> ToolResult:
    """The one result of a call that was started; the model gets it without declared secrets, the caller as it is."""
    match outcome:
        case Returned(value, rendered):
            r = rendered or render(value, limit)
            return ToolResult(call.id, "ok", masking.exact(r.text), value=r.value, size=r.size, parts=r.parts)
        case Raised(error):
            return _raised(call, spec, single(error), limit, masking)
        case Refused(error):
            text = f"the arguments do not fit {call.name}: {message_of(error, masking)}"
            return _failure(call, "invalid_arguments", text, limit)
        case TimedOut(seconds):
            if spec.effect == "write":
                return unknown_outcome(call, f"it timed out after {seconds:g} s")
            return ToolResult(call.id, "timeout", f"{call.name} timed out after {seconds:g} s.")
        case Stopped():
            if spec.effect == "write":
                return unknown_outcome(call, "the run was cancelled while it ran")
            return ToolResult(call.id, "cancelled", f"{call.name} was cancelled before it had ended.")
        case NotBegun(reason):
            return not_started(call, reason)


def _raised(call: ToolCall, spec: ToolSpec, error: BaseException, limit: int, masking: Masking) -> ToolResult:
    text = message_of(error, masking)
    match error:
        case NotStarted():
            return _failure(call, "not_started", f"{call.name} was not started: {text}", limit)
        # Before the write's rule: it is the one way in which a tool can say that it certainly changed nothing.
        case NoEffect():
            return _failure(call, "failed", f"{call.name} failed and changed nothing: {text}", limit)
        case ToolRetry():
            return _failure(call, "invalid_arguments", f"nothing was done; call {call.name} again: {text}", limit)
        case NotFound():
            return _failure(call, "not_found", f"not found: {text}", limit)
        case Denied():
            return _failure(call, "denied", f"denied by {call.name}: {text}", limit)
        # Any other exception of a write may have come after its effect: a connection that broke while the answer was
        # awaited.
        case _ if spec.effect == "write":
            return unknown_outcome(call, f"it ended with {type(error).__name__}", text)
        case UpstreamError() | ConnectionError():
            return _failure(call, "upstream_error", f"a service behind {call.name} failed: {text}", limit)
        case TimeoutError():
            return _failure(call, "timeout", f"{call.name} timed out: {text}", limit)
        case _:
            return _failure(call, "failed", f"{call.name} failed: {type(error).__name__}: {text}", limit)


def _failure(call: ToolCall, status: Status, text: str, limit: int) -> ToolResult:
    cut, size = compress(text.removesuffix(": "), limit)
    return ToolResult(call.id, status, cut, size=size)


def not_started(call: ToolCall, reason: str) -> ToolResult:
    """The result of a call that was never begun."""
    return ToolResult(call.id, "not_started", f"{call.name} was not started: {reason}.")


def message_of(error: BaseException, masking: Masking = MASKING) -> str:
    """What an exception says, fit for the model: one message, no traceback, no declared secret (X8, S1)."""
    try:
        if isinstance(error, KeyError) and len(error.args) == 1:  # its text is only the key, quoted
            key = error.args[0]
            text = f"no such key: {(key[:MAX_READ] if isinstance(key, str) else key)!r}"[:MAX_READ]
        else:
            text = str(error)[:MAX_READ]
    except Exception:
        text = ""
    # Some libraries put the traceback of another process into their message: paths and code are not for the model (X8).
    if found := _TRACEBACK.search(text):
        text = text[: found.start()]
    text = masking.exact(text.strip())
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
