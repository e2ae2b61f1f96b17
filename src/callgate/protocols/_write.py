"""Calls as the text a model would have written for them: earlier calls of a conversation, the form that a prompt shows.

Law: what is written here reads back as the same calls in the same dialect.
(tests/test_protocols_write.py::test_calls_read_back_in_their_dialect)

Most families are one template: $NAME, $ARGS, $ITEM (one JSON object with name and arguments), $NR and $PARAMS stand for
what is filled in, $KEY and $VALUE inside a parameter.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from callgate.types import ToolCall

Write: TypeAlias = Callable[[Sequence[ToolCall]], str]
"""Calls as the text that the model itself should have written for them."""


@dataclass(slots=True, frozen=True)
class Form:
    """How a family writes calls."""

    call: str
    between: str = ""
    before: str = ""
    after: str = ""
    param: str = ""
    """One parameter, where arguments are tagged."""
    keys: tuple[str, str] = ("name", "arguments")
    literals: bool = False
    """Tagged values that are no text are Python literals, not JSON."""

    def __call__(self, calls: Sequence[ToolCall]) -> str:
        """The calls in this form."""
        return self.before + self.between.join(self._one(c, i) for i, c in enumerate(calls)) + self.after

    def _one(self, call: ToolCall, number: int) -> str:
        # Only what the form names is written: a conversation is written anew for every request.
        return "".join(self._filled(part, call, number) if i % 2 else part for i, part in enumerate(_parts(self.call)))

    def _filled(self, name: str, call: ToolCall, number: int) -> str:
        if name == "NAME":
            return call.name
        if name == "NR":
            return str(number)
        if name == "ARGS":
            return _json(call.arguments)
        if name == "ITEM":
            of_name, of_arguments = self.keys
            return _json({of_name: call.name, of_arguments: call.arguments})
        return "".join(self._param(k, v) for k, v in call.arguments.items())

    def _param(self, key: str, value: object) -> str:
        shown = repr(value) if self.literals and not isinstance(value, str) else _value(value)
        values = {"KEY": key, "VALUE": shown, "ISTEXT": "true" if isinstance(value, str) else "false"}
        return "".join(values[part] if i % 2 else part for i, part in enumerate(_parts(self.param)))


_BLANK = re.compile(r"\$(NAME|NR|ARGS|ITEM|PARAMS|KEY|VALUE|ISTEXT)")


@functools.lru_cache(maxsize=256)
def _parts(template: str) -> tuple[str, ...]:
    """Literal text and names of blanks in turns: what is filled in is not looked at again."""
    return tuple(_BLANK.split(template))


def _value(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_object(calls: Sequence[ToolCall]) -> str:
    """The one object of `constrained`."""
    items = [{"tool": c.name, "args": c.arguments} for c in calls]
    return _json(items[0] if len(items) == 1 else {"calls": items})


def _python(before: str, after: str, between: str = ", ") -> Write:
    """Python calls with keyword arguments."""

    def one(call: ToolCall) -> str:
        return f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})"

    return lambda calls: before + between.join(one(c) for c in calls) + after


def _gemma(mark: str, before: str, after: str) -> Write:
    """Bare keys, and strings between marks."""

    def show(value: object) -> str:
        if isinstance(value, str):
            return f"{mark}{value}{mark}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{k}:{show(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(show(v) for v in value) + "]"
        return _json(value)

    return lambda calls: "".join(f"{before}call:{c.name}{show(c.arguments)}{after}" for c in calls)


_M3 = "]<]minimax[>["


def _minimax_m3(calls: Sequence[ToolCall]) -> str:
    """Every value in elements of its own, each tag behind one token."""

    def show(value: object) -> str:
        if isinstance(value, dict):
            return "".join(f"{_M3}<{k}>{show(v)}{_M3}</{k}>" for k, v in value.items())
        if isinstance(value, list):
            return "".join(f"{_M3}<item>{show(v)}{_M3}</item>" for v in value)
        return _value(value)

    body = "".join(f'{_M3}<invoke name="{c.name}">{show(c.arguments)}{_M3}</invoke>\n' for c in calls)
    return f"{_M3}<tool_call>\n{body}{_M3}</tool_call>"


def _apertus(calls: Sequence[ToolCall]) -> str:
    return "<|tools_prefix|>" + _json([{c.name: c.arguments} for c in calls]) + "<|tools_suffix|>"


def _kimi_k3(calls: Sequence[ToolCall]) -> str:
    out = "<|open|>tools<|sep|>"
    for call in calls:
        out += f'<|open|>call tool="{call.name}" index="1"<|sep|>'
        for key, value in call.arguments.items():
            kind = "string" if isinstance(value, str) else "object"
            out += f'<|open|>argument key="{key}" type="{kind}"<|sep|>{_value(value)}<|close|>argument<|sep|>'
        out += "<|close|>call<|sep|>"
    return f"{out}<|close|>tools<|sep|>"


def _listed(before: str, after: str, *, keys: tuple[str, str] = ("name", "arguments")) -> Form:
    return Form("$ITEM", ", ", f"{before}[", f"]{after}", keys=keys)


def _dsml(tag: str, section: str) -> Form:
    return Form(
        f'<{tag}invoke name="$NAME">\n$PARAMS</{tag}invoke>\n',
        before=f"<{tag}{section}>\n",
        after=f"</{tag}{section}>",
        param=f'<{tag}parameter name="$KEY" string="$ISTEXT">$VALUE</{tag}parameter>\n',
    )


def _invokes(before: str, after: str) -> Form:
    call, param = '<invoke name="$NAME">\n$PARAMS</invoke>\n', '<parameter name="$KEY">$VALUE</parameter>\n'
    return Form(call, before=before, after=after, param=param)


_TOOL = ("tool", "args")
_ARG_KEY = "<arg_key>$KEY</arg_key>\n<arg_value>$VALUE</arg_value>\n"
_FUNCTION = "<function=$NAME>\n$PARAMS</function>\n"
_HARMONY = "<|start|>assistant<|channel|>commentary to=functions.$NAME <|constrain|>json<|message|>$ARGS<|call|>"
_PLAMO = (
    "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>$NAME<|plamo:end_tool_name:plamo|>"
    "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>$ARGS"
    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
)
_V3, _V3_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_STEP3 = (
    '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="$NAME">\n$PARAMS</steptml:invoke>'
    "<｜tool_call_end｜>\n"
)
_GLIMMER = (
    "<|start|>assistant to=$NAME<|message|><atem:function_calls>\n"
    '<atem:invoke name="$NAME">\n$PARAMS</atem:invoke>\n</atem:function_calls><|eom|>'
)

WRITERS: Mapping[str, Write] = {
    "bare_json": Form("$ITEM", "\n", keys=_TOOL),
    "heredoc_tool": Form("<<<TOOL>>>$ITEM<<<END>>>", "\n", keys=_TOOL),
    "bracket_tool": _python("[TOOL: ", "]", "]\n[TOOL: "),
    "hermes": Form("<tool_call>\n$ITEM\n</tool_call>", "\n"),
    "ernie45": Form("<tool_call>\n$ITEM\n</tool_call>", "\n"),
    "longcat": Form("<longcat_tool_call>\n$ITEM\n</longcat_tool_call>", "\n"),
    "qwen25_coder": Form("<tools>\n$ITEM\n</tools>", "\n"),
    "granite3": _listed("<|tool_call|>", ""),
    "granite_fc": Form("<function_call> $ITEM", "\n"),
    "mistral_list": _listed("[TOOL_CALLS] ", ""),
    "jamba": _listed("<tool_calls>", "</tool_calls>"),
    "apriel": _listed("<tool_calls>", "</tool_calls>"),
    "hunyuan_a13b": _listed("<tool_calls>", "</tool_calls>"),
    "nemotron_toolcall": _listed("<TOOLCALL>", "</TOOLCALL>"),
    "minimax_m1": Form("$ITEM", "\n", "<tool_calls>\n", "\n</tool_calls>"),
    "functools": _listed("functools", ""),
    "sarashina": _listed("<|tool_calls|>", ""),
    "phi4_tool_call": _listed("<|tool_call|>", "<|/tool_call|>"),
    "internlm": Form("<|action_start|><|plugin|>\n$ITEM<|action_end|>", keys=("name", "parameters")),
    "pangu": _listed("[unused11]", "[unused12]"),
    "apertus": _apertus,
    "cohere_action": _listed("<|START_ACTION|>", "<|END_ACTION|>", keys=("tool_name", "parameters")),
    "command_r_plus": _listed("Action:\n```json\n", "\n```", keys=("tool_name", "parameters")),
    "gigachat3": Form("<|function_call|>$ITEM", "\n"),
    "xlam": _listed("", ""),
    "llama3_json": Form("<|python_tag|>$ITEM", "; ", keys=("name", "parameters")),
    "rwkv": Form("**Tool Call:**\n```json\n$ITEM\n```", "\n"),
    "inkling": Form("<|message_model|>$NAME<|content_invoke_tool_json|>$ITEM<|end_message|>", keys=("name", "args")),
    "deepseek_v3": Form(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$NAME\n```json\n$ARGS\n```<｜tool▁call▁end｜>", "\n", _V3, _V3_END
    ),
    "deepseek_v31": Form("<｜tool▁call▁begin｜>$NAME<｜tool▁sep｜>$ARGS<｜tool▁call▁end｜>", "", _V3, _V3_END),
    "kimi_k2": Form(
        "<|tool_call_begin|>functions.$NAME:$NR<|tool_call_argument_begin|>$ARGS<|tool_call_end|>",
        before="<|tool_calls_section_begin|>",
        after="<|tool_calls_section_end|>",
    ),
    "mistral_args": Form("[TOOL_CALLS]$NAME[ARGS]$ARGS"),
    "functionary_v31": Form("<function=$NAME>$ARGS</function>"),
    "functionary_v32": Form(">>>$NAME\n$ARGS"),
    "solar_open": Form(
        "<|tool_call:begin|>id$NR<|tool_call:name|>$NAME<|tool_call:args|>$ARGS<|tool_call:end|>",
        before="<|tool_calls|>",
    ),
    "plamo3": Form(_PLAMO, "", "<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
    "step_audio2": Form("<tool_call>function\n$NAME\n$ARGS</tool_call>", "\n"),
    "harmony": Form(_HARMONY),
    "llm_jp_harmony": Form(_HARMONY.replace("<|message|>", "<|message|> ")),
    "react": Form("Action: $NAME\nAction Input: $ARGS", "\n"),
    "gemma4": _gemma('<|"|>', "<|tool_call>", "<tool_call|>"),
    "functiongemma": _gemma("<escape>", "<start_function_call>", "<end_function_call>"),
    "cwm": Form("<tool: function>\n$NAME $ARGS\n</tool>", "\n"),
    "qwen_xml": Form(
        f"<tool_call>\n{_FUNCTION}</tool_call>", "\n", param="<parameter=$KEY>\n$VALUE\n</parameter>\n", literals=True
    ),
    "seed_oss": Form(
        f"<seed:tool_call>\n{_FUNCTION}</seed:tool_call>",
        "\n",
        param="<parameter=$KEY>$VALUE</parameter>\n",
        literals=True,
    ),
    "glm_xml": Form("<tool_call>$NAME\n$PARAMS</tool_call>", "\n", param=_ARG_KEY),
    "iquest": Form("<iquest_tool_call>$NAME\n$PARAMS</iquest_tool_call>", "\n", param=_ARG_KEY),
    "hunyuan_v3": Form(
        "<tool_call>$NAME<tool_sep>\n$PARAMS</tool_call>\n", "", "<tool_calls>\n", "</tool_calls>", _ARG_KEY
    ),
    "minimax_m2": _invokes("<minimax:tool_call>\n", "</minimax:tool_call>"),
    "minimax_m3": _minimax_m3,
    "dots": _invokes("<dots_function_call>\n", "</dots_function_call>"),
    "deepseek_dsml": _dsml("｜DSML｜", "tool_calls"),
    "deepseek_v41": _dsml("｜DSML｜ ", "calls"),
    "gigachat35": _dsml("｜GCML｜", "tool_calls"),
    "step3": Form(
        _STEP3,
        before="<｜tool_calls_begin｜>\n",
        after="<｜tool_calls_end｜>",
        param='<steptml:parameter name="$KEY">$VALUE</steptml:parameter>\n',
    ),
    "minicpm5": Form('<function name="$NAME">$PARAMS</function>', "\n", param='<param name="$KEY">$VALUE</param>'),
    "solar_open2": Form(
        "<|tool_call:start|>$NAME\n$PARAMS<|tool_call:end|>",
        "\n",
        param="<|tool_arg:start|>$KEY<|tool_arg:value|>$VALUE<|tool_arg:end|>\n",
    ),
    "k2_horizon": Form(
        "<ifm|tool_call>$NAME\n$PARAMS</ifm|tool_call>\n",
        before="<ifm|tool_calls>\n",
        after="</ifm|tool_calls>",
        param="<ifm|arg_key>$KEY</ifm|arg_key>\n<ifm|arg_value>$VALUE</ifm|arg_value>\n",
    ),
    "kimi_k3": _kimi_k3,
    "glimmer_atem": Form(_GLIMMER, param='<atem:parameter name="$KEY">$VALUE</atem:parameter>\n'),
    "beam": Form(
        "<|start|>assistant to=$NAME<|channel|>analysis <|constrain|>xml<|message|>$PARAMS<|call|>",
        param='<rfl:parameter name="$KEY">\n$VALUE\n</rfl:parameter>',
    ),
    "pythonic": _python("[", "]"),
    "lfm2": _python("<|tool_call_start|>[", "]<|tool_call_end|>"),
    "olmo3": _python("<function_calls>", "</function_calls>", "\n"),
}
"""A row a dialect."""


def writer_of(dialect: str) -> Write:
    """The writer of a dialect; "auto" and dialects of one's own are asked for Hermes blocks."""
    return WRITERS.get(dialect) or WRITERS["hermes"]
