"""Token pairs around every part: Solar Open, PLaMo 3; and names on lines of their own: Step-Audio 2, CWM.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from callgate.dialects._ends import after_call, resync
from callgate.dialects._json import json_value
from callgate.dialects._marks import marks
from callgate.dialects._plain import plain_text
from callgate.dialects._spec import THINK, Calls, Dialect, JsonArgs, Region
from callgate.dialects._take import WORD, Broken, Cut, Parse, accept, char, look, peek, until

if TYPE_CHECKING:
    from callgate.dialects._plan import MarkerRule
    from callgate.dialects._reading import LookAhead, Reading

_WORD_END: Final = marks((" ", "\n", "\t", "{", "<"))


def _first_word(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """CWM: the name is the body's first word, the rest JSON or plain text for `command`."""
    calls = rule.calls
    assert calls is not None
    try:
        yield from until(r, r.marks((">\n",)), shape=WORD)
        yield from accept(r, r.marks((">\n",)))
        yield from peek(r)
        name = yield from until(r, _WORD_END, shape=WORD)
        if not name.strip():
            raise Broken
    except Broken:
        r.release(hold)
        return False
    except Cut:
        r.commit(hold)
        r.open_call(None)
        r.drop_call("truncated")
        return True
    r.commit(hold)
    r.open_call(name.strip())
    try:
        yield from _body(r, calls)
    except Cut:
        r.drop_call("truncated")
        return True
    except Broken:
        yield from resync(r, calls)
        return True
    if (yield from accept(r, r.marks(calls.close))) < 0 and (yield from char(r)) != "":
        r.recovered("closing marker missing after a call")
    yield from after_call(r, calls)
    return True


def _body(r: Reading, calls: Calls) -> Parse[None]:
    if (yield from peek(r)) == "{":
        yield from json_value(r, r.fragment, streams=True)
    elif (yield from look(r, r.marks(calls.close))) >= 0:
        r.fragment("{}")
    else:
        yield from plain_text(r, calls, "command")
    yield from peek(r)


_PLAMO: Final = Calls(
    JsonArgs(),
    section=("<|plamo:begin_tool_requests:plamo|>",),
    section_close=("<|plamo:end_tool_requests:plamo|>",),
    open=("<|plamo:begin_tool_request:plamo|>",),
    close=("<|plamo:end_tool_arguments:plamo|>",),
    inner=("<|plamo:end_tool_request:plamo|>",),
    header={
        "_before": {"<|plamo:begin_tool_name:plamo|>": "name"},
        "name": {"<|plamo:end_tool_name:plamo|>": "_between"},
        "_between": {"<|plamo:begin_tool_arguments:plamo|>": "arguments"},
        "arguments": {"<|plamo:constrain|>": "kind", "<|plamo:msg|>": "", "&{": ""},
        "kind": {"<|plamo:msg|>": "", "&{": ""},
    },
)

DIALECTS = (
    Dialect(
        "solar_open",
        "Solar Open 100B",
        calls=(
            Calls(
                JsonArgs(),
                section=("<|tool_calls|>",),
                section_close=("<|calls|>",),
                open=("<|tool_call:begin|>",),
                close=("<|tool_call:end|>",),
                header={"id": {"<|tool_call:name|>": "name"}, "name": {"<|tool_call:args|>": ""}},
            ),
        ),
        regions=(Region(("<|think|>",), ("<|end|>",)),),
        drop=("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>", "<|calls|>"),
    ),
    Dialect(
        "plamo3",
        "PLaMo 3",
        # it writes single calls without a section: that is its habit and no slip
        calls=(replace(_PLAMO, section=()), _PLAMO),
        regions=(Region(("<|plamo:begin_think:plamo|>",), ("<|plamo:end_think:plamo|>",)),),
        drop=("<|plamo:tag|>", "<|plamo:op|>", "<|plamo:msg|>", "<|plamo:eos|>"),
    ),
    Dialect(
        "step_audio2",
        "Step-Audio 2",
        calls=(
            Calls(
                JsonArgs(),
                open=("<tool_call>",),
                close=("</tool_call>",),
                header={"type": {"\n": "name"}, "name": {"\n": "", "&{": ""}},
                or_items=True,
            ),
        ),
        drop=("<|EOT|>", "<|endoftext|>"),
    ),
    Dialect(
        "cwm",
        "CWM-style `<tool: …>`",
        calls=(
            Calls(
                JsonArgs(),
                open=("<tool:",),
                close=("</tool>",),
                read=_first_word,
            ),
        ),
        regions=(THINK,),
        drop=("<|eot_id|>", "<|end_of_text|>"),
    ),
)
