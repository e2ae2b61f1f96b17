"""Calls as the text a model would have written for them: earlier calls of a conversation, and worked examples.

One law: what is written here reads back as the same calls in the same dialect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from callgate.types import ToolCall

Write: TypeAlias = Callable[[Sequence[ToolCall]], str]
"""Calls as the text that the model itself should have written for them."""


def write_object(calls: Sequence[ToolCall]) -> str:
    """The one object of `constrained`."""
    items = [{"tool": c.name, "args": c.arguments} for c in calls]
    return _json(items[0] if len(items) == 1 else {"calls": items})


def write_json(calls: Sequence[ToolCall]) -> str:
    """One object a line."""
    return "\n".join(_json({"tool": c.name, "args": c.arguments}) for c in calls)


def write_heredoc(calls: Sequence[ToolCall]) -> str:
    """JSON between unlikely marks."""
    return "\n".join(f"<<<TOOL>>>{_json({'tool': c.name, 'args': c.arguments})}<<<END>>>" for c in calls)


def write_bracket(calls: Sequence[ToolCall]) -> str:
    """`[TOOL: NAME({…})]`."""
    return "\n".join(f"[TOOL: {c.name}({_json(c.arguments)})]" for c in calls)


def _named(call: ToolCall, arguments: str = "arguments") -> str:
    return _json({"name": call.name, arguments: call.arguments})


def _each(start: str, end: str, *, join: str = "\n", arguments: str = "arguments") -> Write:
    """A block of markup around each call's JSON object."""
    return lambda calls: join.join(f"{start}{_named(c, arguments)}{end}" for c in calls)


def _all(start: str, end: str) -> Write:
    """A block of markup around one JSON list of the calls."""
    return lambda calls: f"{start}[{', '.join(_named(c) for c in calls)}]{end}"


def _headed(start: str, middle: str, end: str, *, around: tuple[str, str] = ("", ""), join: str = "") -> Write:
    """The name in a header, the arguments' JSON after it."""
    return lambda calls: (
        around[0] + join.join(f"{start}{c.name}{middle}{_json(c.arguments)}{end}" for c in calls) + around[1]
    )


def _parameters(start: str, before: tuple[str, str], after: str, end: str, *, join: str = "\n") -> Write:
    """One element a parameter; text as it is, other values as JSON."""

    def one(call: ToolCall) -> str:
        body = "".join(f"{before[0]}{k}{before[1]}{_value(v)}{after}" for k, v in call.arguments.items())
        return start.replace("NAME", call.name) + body + end

    return lambda calls: join.join(one(c) for c in calls)


def _python(calls: Sequence[ToolCall]) -> str:
    """A list of Python calls."""
    return "[" + ", ".join(_python_call(c) for c in calls) + "]"


def _python_call(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


WRITERS: Mapping[str, Write] = {
    "bare_json": write_json,
    "heredoc_tool": write_heredoc,
    "bracket_tool": write_bracket,
    "hermes": _each("<tool_call>\n", "\n</tool_call>"),
    "longcat": _each("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
    "qwen25_coder": _each("<tools>\n", "\n</tools>"),
    "granite3": _all("<|tool_call|>", ""),
    "granite_fc": _each("<function_call> ", "", join=""),
    "mistral_list": _all("[TOOL_CALLS]", ""),
    "jamba": _all("<tool_calls>", "</tool_calls>"),
    "nemotron_toolcall": _all("<TOOLCALL>", "</TOOLCALL>"),
    "functools": _all("functools", ""),
    "phi4_tool_call": _all("<|tool_call|>", "<|/tool_call|>"),
    "llama3_json": _each("", "", join="; ", arguments="parameters"),
    "mistral_args": _headed("[TOOL_CALLS]", "[ARGS]", ""),
    "functionary_v31": _headed("<function=", ">", "</function>"),
    "functionary_v32": _headed(">>>", "\n", "", join="\n"),
    "deepseek_v31": _headed(
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        around=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    "react": _headed("Action: ", "\nAction Input: ", "", join="\n"),
    "qwen_xml": _parameters(
        "<tool_call>\n<function=NAME>\n", ("<parameter=", ">\n"), "\n</parameter>\n", "</function>\n</tool_call>"
    ),
    "pythonic": _python,
}
"""How a family writes calls, for the families that models outside it are asked to imitate."""


def writer_of(dialect: str) -> Write:
    """The writer of a dialect; a family without one is asked for Hermes blocks."""
    return WRITERS.get(dialect) or WRITERS["hermes"]
