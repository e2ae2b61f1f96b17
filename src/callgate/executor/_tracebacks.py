"""Where a tool failed: for logs and for the one who asks, never for the model.

Law: the text is bounded, holds no declared secret and no character that a terminal obeys, and each of its lines is
indented, so that none passes for a line of the log.
(tests/test_executor_tracebacks.py::test_a_traceback_is_bounded_and_harmless_whatever_the_exception_holds)
"""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from callgate.errors import ToolFailure
from callgate.executor._endings import NeverBegan, single

if TYPE_CHECKING:
    from callgate.masking import Masking

MAX_TRACEBACK = 20_000
"""Characters of a traceback that are kept: its beginning and its end, where the reason stands."""
MAX_FRAMES = 30
"""Of the innermost ones; an endless recursion has a thousand that say nothing."""
REMOTE = "__callgate_trace__"
"""Attribute of an exception that was raised in another process: its traceback there."""
OWN = str(Path(__file__).resolve().parent)


def traceback_of(error: BaseException) -> str:
    """The traceback, from the first frame that is the tool's; cut, but neither masked nor escaped yet."""
    if isinstance(remote := getattr(error, REMOTE, None), str):
        return remote[:MAX_TRACEBACK]
    try:
        trace = _of_the_tool(error.__traceback__)
        # Not `format_exception`: this one bounds groups of exceptions as well, which may hold thousands.
        lines = traceback.TracebackException(
            type(error), error, trace, limit=-MAX_FRAMES, max_group_width=5, max_group_depth=3
        ).format()
        text = "".join(lines)
    except Exception as failure:  # whatever a stranger's exception does when it is looked at
        text = f"{type(error).__name__} (its traceback cannot be had: {type(failure).__name__})"
    if len(text) <= MAX_TRACEBACK:
        return text
    half = MAX_TRACEBACK // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half} characters left out)\n{text[-half:]}"


def harmless(text: str, masking: Masking) -> str:
    """The text for a log: masked, escaped, indented."""
    lines = masking.text(text.rstrip()).split("\n")
    return "\n".join("    " + _escaped(line) for line in lines)


def is_surprise(error: BaseException) -> bool:
    """Whether the tool's author should hear of it: what a tool raises to say how it ended is none."""
    return isinstance(error, Exception) and not isinstance(single(error), (ToolFailure, NeverBegan))


def _escaped(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def _of_the_tool(trace: TracebackType | None) -> TracebackType | None:
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(OWN):
        first = first.tb_next
    return first or trace
