"""Inkling: a name, then a marker that tells whether an object or plain text follows.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from callgate.dialects._calls import behind_header, header, repeated
from callgate.dialects._ends import after_call
from callgate.dialects._plain import text_or_object
from callgate.dialects._spec import Calls, Dialect, JsonArgs, JsonItems, Region

if TYPE_CHECKING:
    from callgate.dialects._plan import MarkerRule
    from callgate.dialects._reading import LookAhead, Reading
    from callgate.dialects._take import Parse

_END: Final = ("<|end_message|>", "<|content_model_end_sampling|>")
_TEXT: Final = "<|content_invoke_tool_text|>"


def _message(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """A call whose opener was taken; behind `_TEXT` stands text for the tool's only string parameter."""
    calls = rule.calls
    assert calls is not None
    flags: set[str] = set()
    yield from repeated(r, r.marks(calls.open), flags)
    head = yield from header(r, calls, hold, flags)
    if isinstance(head, bool):
        done = head
    else:
        if head.fields["end"] == _TEXT:
            calls = replace(calls, payload=JsonArgs(), arguments=_text)
        done = yield from behind_header(r, calls, hold, flags, head)
    if done and r.call is not None:
        yield from after_call(r, calls)
    return done


def _text(r: Reading, calls: Calls, fields: dict[str, str]) -> Parse[None]:
    return text_or_object(r, calls)


DIALECTS = (
    Dialect(
        "inkling",
        "Inkling",
        calls=(
            Calls(
                JsonItems(several=False),
                open=("<|message_model|>",),
                close=_END,
                header={"name": {"<|content_invoke_tool_json|>": "", _TEXT: ""}},
                read=_message,
            ),
            Calls(
                JsonItems(several=False),
                open=("<|message_model|><|content_invoke_tool_json|>", "<|content_invoke_tool_json|>"),
                close=_END,
            ),
        ),
        regions=(Region(("<|message_model|><|content_thinking|>", "<|content_thinking|>"), _END),),
        drop=("<|message_model|><|content_text|>", "<|content_text|>", *_END),
    ),
)
