"""`"auto"`: the dialect is decided by what is seen.

Law: a marker decides only together with what follows it, and a false start decides nothing.
(tests/test_dialects.py::test_the_automatic_dialect_reads_the_case_too)

Until then text is read with the openers of all dialects, `<think>`, and JSON or Python at a line's start if it names a
known tool. Openers that several dialects share are told apart by the characters behind them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from callgate.dialects._catalogue import all_dialects
from callgate.dialects._spec import END_TOKENS, THINK, Calls, Channels, Dialect, JsonItems, Literals, Undecided
from callgate.dialects._take import Parse

if TYPE_CHECKING:
    from callgate.dialects._reading import Reading

AHEAD: Final = 96
"""Characters behind a marker that decide: a section's and a call's opener, and a name."""

_NEVER: Final = frozenset({">>>", "\n", "Observation:", "Final Answer:", "Here is my thought process:"})
"""Openers that are too common in plain text to decide anything."""

_TOKEN: Final = re.compile(r"<[|｜].*[|｜]>|</?[\w]+[:|]\w+>|\[(?:BEGIN|END|unused)")

Choice = Callable[[str, frozenset[str], bool], "str | None"]
"""(what follows, known tools, whether the text is over) -> the dialect; "" is none, None is not yet known."""


_IN_TOOL_CALL: Final = (("{", "hermes"), ("[", "hermes"), ("<function=", "qwen_xml"), ("<tool_call", "hermes"))
"""What follows `<tool_call>` in the dialects that write something before a name."""


def _tool_call(rest: str, known: frozenset[str], over: bool) -> str | None:
    text = rest.lstrip()
    if not text or (not over and any(tag.startswith(text) for tag in ("<function=", "<tool_call"))):
        return None
    for begun, dialect in _IN_TOOL_CALL:
        if text.startswith(begun):
            return dialect
    word = re.match(r"[\w.\-:/]+", text)
    if word is None:
        return ""
    after = text[word.end() :].lstrip(" ")
    if not after and not over:
        return None
    if word[0] == "function" and after.startswith("\n") and "function" not in known:
        return "step_audio2"
    return "glm_xml" if word[0] in known or after[:1] in ("\n", "<") else ""


def _function(rest: str, known: frozenset[str], over: bool) -> str | None:
    match = re.match(r"[^>\n]*>\s*(\S)", rest)
    if match is not None:
        return "functionary_v31" if match[1] == "{" else "qwen_xml"
    return "" if re.match(r"[^>\n]*\n", rest) else None


def _tool_calls(rest: str, known: frozenset[str], over: bool) -> str | None:
    text = rest.lstrip()
    return None if not text else "hunyuan_v3" if text[0] == "<" else "jamba"


def _mistral(rest: str, known: frozenset[str], over: bool) -> str | None:
    text = rest.lstrip()
    return None if not text else "mistral_list" if text[0] in "[{" else "mistral_args"


def _token_calls(rest: str, known: frozenset[str], over: bool) -> str | None:
    text = rest.lstrip()
    return None if not text else "sarashina" if text[0] == "[" else "solar_open"


def _deepseek(rest: str, known: frozenset[str], over: bool) -> str | None:
    match = re.match(r"\s*(?:<｜tool.call.begin｜>)?\s*([^<]*)<｜tool.sep｜>(.{8})?", rest, re.DOTALL)
    if match is None:
        return None
    if match[1].strip() != "function":
        return "deepseek_v31"
    if match[2] is None and not over:
        return None
    return "step3" if match[2] is not None and match[2].startswith("<steptml") else "deepseek_v3"


def _action(rest: str, known: frozenset[str], over: bool) -> str | None:
    text = rest.lstrip()
    if "```".startswith(text[:3]):
        return "command_r_plus" if len(text) > 2 else None
    match = re.match(r"[^\n]*\n([^\n]*)", rest)
    if match is None:
        return None
    if match[1].startswith("Action Input:"):
        return "react"
    return None if "Action Input:".startswith(match[1]) and not over else ""


_SHARED: Final[Mapping[str, Choice]] = {
    "<tool_call>": _tool_call,
    "<function=": _function,
    "<tool_calls>": _tool_calls,
    "<|tool_calls|>": _token_calls,
    "[TOOL_CALLS]": _mistral,
    "Action:": _action,
    **{f"<｜tool{gap}call{s}{gap}begin｜>": _deepseek for gap in "▁_ " for s in ("", "s")},
}
_FIRST_OF_SHARED: Final = {
    "<|start|>": "harmony",
    "<|channel|>": "harmony",
    "<|message|>": "harmony",
    "<invoke": "minimax_m2",
    "<|python_tag|>": "llama3_json",
    "<|tool_call|>": "phi4_tool_call",
    "<|tool_call_start|>": "lfm2",
    "<|think|>": "solar_open",
}


@cache
def _owners() -> dict[str, str]:
    """Which dialect an opener that only one has belongs to."""
    owners: dict[str, str] = {}
    for dialect in all_dialects():
        openers = [text for calls in dialect.calls if not calls.guard for text in (*calls.section, *calls.open)]
        openers += [text for region in dialect.regions for text in region.open if text not in THINK.open]
        for text in openers:
            owners.setdefault(text, dialect.name)
    return {**owners, **_FIRST_OF_SHARED}


@cache
def auto_dialect() -> Dialect:
    """What is read until something decides."""
    openers = [text for text in _owners() if text not in _NEVER]
    lines = tuple(text for text in openers if text in ("Action:", "Thought:", "**Tool Call:**"))
    marked = tuple(text for text in openers if text not in lines)
    return Dialect(
        "auto",
        calls=(
            Calls(Undecided(), open=marked),
            Calls(Undecided(), open=lines, line=True),
            Calls(JsonItems(), guard=True, fence=True),
            Calls(Literals(), guard=True),
        ),
        regions=(THINK,),
        drop=(*END_TOKENS, *_tokens()),
        suffix=True,
    )


def _tokens() -> tuple[str, ...]:
    """Markers that are nothing but markup in every dialect, and look like nothing else."""
    found = [text for dialect in all_dialects() for text in dialect.drop]
    found += [text for dialect in all_dialects() for region in dialect.regions for text in region.close]
    openers = _owners()
    return tuple(dict.fromkeys(t for t in found if t not in openers and t not in THINK.close and _TOKEN.match(t)))


def from_tail(prompt_tail: str) -> str:
    """The dialect that the end of the prompt gives away, else "auto"."""
    tail = prompt_tail.rstrip()
    for dialect in all_dialects() if tail else ():
        if dialect.channels is not None and (header := _open_header(tail, dialect.channels)) is not None:
            if not dialect.channels.end:
                return dialect.name
            return "glimmer_atem" if header.startswith(" to=") and "<|channel|>" not in header else "harmony"
        for region in dialect.regions:
            for opener in region.open:
                if opener not in THINK.open and tail.endswith(opener.rstrip()):
                    return _owners().get(opener, dialect.name)
    return "auto"


def _open_header(tail: str, channels: Channels) -> str | None:
    """What the prompt has written of a message that is still open: its header, perhaps the begin of its body."""
    place = max((tail.rfind(start) + len(start) for start in channels.tail if start in tail), default=len(tail) + 1)
    header = tail[place:]
    if place > len(tail) or any(end in header for end in channels.end) or (not channels.end and header):
        return None
    return header


def choose(r: Reading, opener: str) -> Parse[str]:
    """The dialect that an opener and what follows it give away; "": none, it is text."""
    decide = _SHARED.get(opener)
    if decide is None:
        return _owners().get(opener, "")
    while True:
        rest = r.buf[r.pos : r.pos + AHEAD]
        choice = decide(rest, r.known, r.over)
        if choice is not None:
            return choice
        if r.over or len(rest) >= AHEAD:
            return _owners().get(opener, "") if r.over else ""
        yield
