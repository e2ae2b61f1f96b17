"""Harmony and its like: gpt-oss, LLM-jp, Muse Glimmer, Beam.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.dialects._calls import name_as_written
from callgate.dialects._channels import HARMONY, Headers, call_in_body, states_of, tool_of
from callgate.dialects._spec import Calls, Channels, Dialect, Params
from callgate.dialects._take import Parse, known

if TYPE_CHECKING:
    from callgate.dialects._reading import Reading

_START = ("<|start|>", "<|channel|>")
_BODY = ("<|message|>",)
_END = ("<|end|>", "<|return|>", "<|call|>", "<|eom|>", "<|eot|>")
_TAIL = ("<|start|>assistant", "<|start|> assistant")

_BEAM = Params(open=("<rfl:parameter",), close=("</rfl:parameter>",), attributes=True, trim="each")


class _BeamHeaders(Headers):
    """Beam: the body of a call is tagged parameters."""

    def call(self, r: Reading, channels: Channels, recipient: str) -> Parse[None]:
        return call_in_body(r, channels, tool_of(recipient), _BEAM)


class _GlimmerHeaders(Headers):
    """Muse Glimmer: the header only tells for whom a body is; its calls are marked up inside the body."""

    # A body for the developer repeats what was asked, and one without recipient is thought: its template says so.
    to_nobody = ("assistant",)

    def route(self, r: Reading, channels: Channels, head: str) -> Parse[None]:
        recipient, name = self.address(r, head)
        if recipient == "developer":
            r.break_line()
            r.addressed = False
            r.state = states_of(channels).dropped
        elif not recipient and not name:
            r.break_line()
            r.addressed = False
            r.state = states_of(channels).reasoning
        elif recipient and recipient not in (*self.to_text, "self"):
            r.break_line()
            return self.call(r, channels, recipient)
        else:
            return super().route(r, channels, head)
        return known(None)

    def show(self, r: Reading, recipient: str, name: str) -> None:
        super().show(r, recipient, name)
        if r.addressed:  # what is addressed to the user holds no calls
            r.state = r.plan.answer

    def call(self, r: Reading, channels: Channels, recipient: str) -> Parse[None]:
        r.state = r.plan.text
        return known(None)


def _twice(r: Reading, fields: dict[str, str]) -> tuple[str | None, str | None]:
    """`NAME.NAME` is NAME: the tool stands behind a group of its own name."""
    name, call_id = name_as_written(r, fields)
    half, dot, other = (name or "").partition(".")
    return (half if dot and half == other else name), call_id


DIALECTS = (
    Dialect(
        "harmony",
        "gpt-oss 20b/120b",
        channels=Channels(_START, _BODY, _END, _TAIL, HARMONY),
        aliases=("openai",),
    ),
    Dialect(
        "llm_jp_harmony",
        "LLM-jp 4.1",
        # one blank after every special token is part of it, as its tokenizer writes them
        channels=Channels(_START, ("<|message|> ", *_BODY), _END, _TAIL, HARMONY),
    ),
    Dialect(
        "beam",
        "Beam",
        channels=Channels(_START, _BODY, _END, _TAIL, _BeamHeaders()),
    ),
    Dialect(
        "glimmer_atem",
        "Muse Glimmer, Muse Spark",
        calls=(
            Calls(
                Params(open=("<atem:parameter",), close=("</atem:parameter>",), attributes=True),
                section=("<atem:function_calls>",),
                section_close=("</atem:function_calls>",),
                open=("<atem:invoke",),
                close=("</atem:invoke>",),
                header={"name": {">": "", "/>": ""}},
                attributes=True,
                named=_twice,
            ),
        ),
        channels=Channels(_START, _BODY, ("<|eom|>", "<|eot|>", "<|end|>"), _TAIL, _GlimmerHeaders()),
    ),
)
