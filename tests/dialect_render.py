"""Calls as each dialect writes them, for generated tests: one row a dialect, in the words of its documentation.

The writers stand on their own: they share nothing with the reader's data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from callgate.types import ToolSpec

Call = tuple[str, dict[str, Any]]
Writer = Callable[[Sequence[Call]], str]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _items(begin: str, end: str, *, between: str = "\n", name: str = "name", arguments: str = "arguments") -> Writer:
    """Each call in a block of its own."""
    return lambda calls: between.join(f"{begin}{_json({name: n, arguments: a})}{end}" for n, a in calls)


def _list(begin: str, end: str, *, between: str = ", ", name: str = "name", arguments: str = "arguments") -> Writer:
    return lambda calls: begin + between.join(_json({name: n, arguments: a}) for n, a in calls) + end


def _header(template: str, *, before: str = "", after: str = "", between: str = "") -> Writer:
    def write(calls: Sequence[Call]) -> str:
        each = [
            template.replace("NAME", n).replace("ARGS", _json(a)).replace("NR", str(i))
            for i, (n, a) in enumerate(calls)
        ]
        return before + between.join(each) + after

    return write


def _xml(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _python_xml(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _tagged(call: str, param: str, *, before: str = "", after: str = "", show: Callable[[Any], str] = _xml) -> Writer:
    def write(calls: Sequence[Call]) -> str:
        out = before
        for name, arguments in calls:
            params = "".join(param.replace("KEY", key).replace("VALUE", show(v)) for key, v in arguments.items())
            out += call.replace("NAME", name).replace("PARAMS", params)
        return out + after

    return write


def _dsml(tag: str, section: str) -> Writer:
    def write(calls: Sequence[Call]) -> str:
        out = f"<{tag}{section}>\n"
        for name, arguments in calls:
            out += f'<{tag}invoke name="{name}">\n'
            for key, value in arguments.items():
                kind = "true" if isinstance(value, str) else "false"
                out += f'<{tag}parameter name="{key}" string="{kind}">{_xml(value)}</{tag}parameter>\n'
            out += f"</{tag}invoke>\n"
        return f"{out}</{tag}{section}>"

    return write


def _k3(calls: Sequence[Call]) -> str:
    out = "<|open|>tools<|sep|>"
    for name, arguments in calls:
        out += f'<|open|>call tool="{name}" index="1"<|sep|>'
        for key, value in arguments.items():
            kind = "string" if isinstance(value, str) else "object"
            out += f'<|open|>argument key="{key}" type="{kind}"<|sep|>{_xml(value)}<|close|>argument<|sep|>'
        out += "<|close|>call<|sep|>"
    return f"{out}<|close|>tools<|sep|>"


def _m3_value(value: Any) -> str:
    tag = "]<]minimax[>["
    if isinstance(value, dict):
        return "".join(f"{tag}<{k}>{_m3_value(v)}{tag}</{k}>" for k, v in value.items())
    if isinstance(value, list):
        return "".join(f"{tag}<item>{_m3_value(v)}{tag}</item>" for v in value)
    return _xml(value)


def _m3(calls: Sequence[Call]) -> str:
    tag = "]<]minimax[>["
    out = f"{tag}<tool_call>\n"
    for name, arguments in calls:
        out += f'{tag}<invoke name="{name}">{_m3_value(arguments)}{tag}</invoke>\n'
    return f"{out}{tag}</tool_call>"


def _gemma(mark: str, begin: str, end: str) -> Writer:
    def show(value: Any) -> str:
        if isinstance(value, str):
            return f"{mark}{value}{mark}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{k}:{show(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(show, value)) + "]"
        return _json(value)

    return lambda calls: "".join(f"{begin}call:{n}{show(a)}{end}" for n, a in calls)


def _python_call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"


def _python(begin: str, end: str, between: str = ", ") -> Writer:
    return lambda calls: begin + between.join(_python_call(n, a) for n, a in calls) + end


def _apertus(calls: Sequence[Call]) -> str:
    return "<|tools_prefix|>" + _json([{n: a} for n, a in calls]) + "<|tools_suffix|>"


_TAG = "</tool_call>"
_V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGS\n```<｜tool▁call▁end｜>"
_PLAMO = (
    "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>NAME<|plamo:end_tool_name:plamo|>"
    "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>ARGS"
    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
)
_HARMONY = "<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGS<|call|>"
_QWEN = "<function=NAME>\nPARAMS</function>\n"
_INVOKE = '<invoke name="NAME">\nPARAMS</invoke>\n'
_KEYS = "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n"
_STEP3_BEGIN = "<｜tool_call_begin｜>function<｜tool_sep｜>"
_STEP3 = f'{_STEP3_BEGIN}<steptml:invoke name="NAME">\nPARAMS</steptml:invoke><｜tool_call_end｜>\n'
_MODEL = "<|message_model|>NAME<|content_invoke_tool_json|>"

WRITERS: dict[str, Writer] = {
    "hermes": _items("<tool_call>\n", f"\n{_TAG}"),
    "longcat": _items("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
    "ernie45": _items("<tool_call>\n", f"\n{_TAG}"),
    "qwen25_coder": _items("<tools>\n", "\n</tools>"),
    "granite3": _list("<|tool_call|>[", "]"),
    "granite_fc": _items("<function_call> ", ""),
    "mistral_list": _list("[TOOL_CALLS] [", "]"),
    "jamba": _list("<tool_calls>[\n", "\n]</tool_calls>", between=",\n"),
    "apriel": _list("<tool_calls>[", "]</tool_calls>"),
    "hunyuan_a13b": _list("<tool_calls>[", "]</tool_calls>"),
    "nemotron_toolcall": _list("<TOOLCALL>[", "]</TOOLCALL>"),
    "minimax_m1": _list("<tool_calls>\n", "\n</tool_calls>", between="\n"),
    "functools": _list("functools[", "]"),
    "phi4_tool_call": _list("<|tool_call|>[", "]<|/tool_call|>"),
    "internlm": _items("<|action_start|><|plugin|>\n", "<|action_end|>", between="", arguments="parameters"),
    "pangu": _list("[unused11][", "][unused12]"),
    "apertus": _apertus,
    "cohere_action": _list("<|START_ACTION|>[", "]<|END_ACTION|>", name="tool_name", arguments="parameters"),
    "command_r_plus": _list("Action:\n```json\n[", "]```", name="tool_name", arguments="parameters"),
    "gigachat3": _items("<|function_call|>", ""),
    "xlam": _list("[", "]"),
    "bare_json": _items("", "", name="tool", arguments="args"),
    "heredoc_tool": _items("<<<TOOL>>>\n", "\n<<<END>>>", name="tool", arguments="args"),
    "llama3_json": _items("<|python_tag|>", "", between="; ", arguments="parameters"),
    "rwkv": _items("**Tool Call:**\n```json\n", "\n```"),
    "inkling": lambda calls: "".join(
        _MODEL.replace("NAME", n) + _json({"name": n, "args": a}) + "<|end_message|>" for n, a in calls
    ),
    "deepseek_v3": _header(_V3, before="<｜tool▁calls▁begin｜>", after="<｜tool▁calls▁end｜>", between="\n"),
    "deepseek_v31": _header(
        "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGS<｜tool▁call▁end｜>",
        before="<｜tool▁calls▁begin｜>",
        after="<｜tool▁calls▁end｜>",
    ),
    "kimi_k2": _header(
        "<|tool_call_begin|>functions.NAME:NR<|tool_call_argument_begin|>ARGS<|tool_call_end|>",
        before="<|tool_calls_section_begin|>",
        after="<|tool_calls_section_end|>",
    ),
    "mistral_args": _header("[TOOL_CALLS]NAME[ARGS]ARGS".replace("[ARGS]", "[\0]")),
    "functionary_v31": _header("<function=NAME>ARGS</function>"),
    "functionary_v32": _header(">>>NAME\nARGS"),
    "solar_open": _header(
        "<|tool_call:begin|>idNR<|tool_call:name|>NAME<|tool_call:args|>ARGS<|tool_call:end|>", before="<|tool_calls|>"
    ),
    "plamo3": _header(_PLAMO, before="<|plamo:begin_tool_requests:plamo|>", after="<|plamo:end_tool_requests:plamo|>"),
    "step_audio2": _header(f"<tool_call>function\nNAME\nARGS{_TAG}"),
    "harmony": _header(_HARMONY),
    "llm_jp_harmony": _header(_HARMONY.replace("<|message|>", "<|message|> ")),
    "react": _header("Action: NAME\nAction Input: ARGS\n"),
    "bracket_tool": _python("[TOOL: ", "]", between="]\n[TOOL: "),
    "gemma4": _gemma('<|"|>', "<|tool_call>", "<tool_call|>"),
    "functiongemma": _gemma("<escape>", "<start_function_call>", "<end_function_call>"),
    "cwm": _header("<tool: function>\nNAME ARGS\n</tool>"),
    "qwen_xml": _tagged(f"<tool_call>\n{_QWEN}{_TAG}\n", "<parameter=KEY>\nVALUE\n</parameter>\n", show=_python_xml),
    "seed_oss": _tagged(
        f"<seed:tool_call>\n{_QWEN}</seed:tool_call>\n", "<parameter=KEY>VALUE</parameter>\n", show=_python_xml
    ),
    "glm_xml": _tagged(f"<tool_call>NAME\nPARAMS{_TAG}\n", _KEYS),
    "iquest": _tagged("<iquest_tool_call>NAME\nPARAMS</iquest_tool_call>\n", _KEYS),
    "hunyuan_v3": _tagged(
        f"<tool_call>NAME<tool_sep>\nPARAMS{_TAG}\n", _KEYS, before="<tool_calls>\n", after="</tool_calls>"
    ),
    "minimax_m2": _tagged(
        _INVOKE,
        '<parameter name="KEY">VALUE</parameter>\n',
        before="<minimax:tool_call>\n",
        after="</minimax:tool_call>",
    ),
    "minimax_m3": _m3,
    "dots": _tagged(
        _INVOKE,
        '<parameter name="KEY">VALUE</parameter>\n',
        before="<dots_function_call>\n",
        after="</dots_function_call>",
    ),
    "deepseek_dsml": _dsml("｜DSML｜", "tool_calls"),
    "deepseek_v41": _dsml("｜DSML｜ ", "calls"),
    "gigachat35": _dsml("｜GCML｜", "tool_calls"),
    "step3": _tagged(
        _STEP3,
        '<steptml:parameter name="KEY">VALUE</steptml:parameter>\n',
        before="<｜tool_calls_begin｜>\n",
        after="<｜tool_calls_end｜>",
    ),
    "minicpm5": _tagged('<function name="NAME">PARAMS</function>\n', '<param name="KEY">VALUE</param>'),
    "solar_open2": _tagged(
        "<|tool_call:start|>NAME\nPARAMS<|tool_call:end|>\n",
        "<|tool_arg:start|>KEY<|tool_arg:value|>VALUE<|tool_arg:end|>\n",
    ),
    "k2_horizon": _tagged(
        "<ifm|tool_call>NAME\nPARAMS</ifm|tool_call>\n",
        "<ifm|arg_key>KEY</ifm|arg_key>\n<ifm|arg_value>VALUE</ifm|arg_value>\n",
        before="<ifm|tool_calls>\n",
        after="</ifm|tool_calls>",
    ),
    "kimi_k3": _k3,
    "glimmer_atem": _tagged(
        "<|start|>assistant to=NAME<|message|><atem:function_calls>\n"
        '<atem:invoke name="NAME">\nPARAMS</atem:invoke>\n</atem:function_calls><|eom|>',
        '<atem:parameter name="KEY">VALUE</atem:parameter>\n',
    ),
    "beam": _tagged(
        "<|start|>assistant to=NAME<|channel|>analysis <|constrain|>xml<|message|>PARAMS<|call|>",
        '<rfl:parameter name="KEY">\nVALUE\n</rfl:parameter>',
    ),
    "pythonic": _python("[", "]"),
    "lfm2": _python("<|tool_call_start|>[", "]<|tool_call_end|>"),
    "olmo3": _python("<function_calls>", "</function_calls>", between="\n"),
}
_args_of_mistral = WRITERS["mistral_args"]
WRITERS["mistral_args"] = lambda calls: _args_of_mistral(calls).replace("[\0]", "[ARGS]")

GUARDED = frozenset({"bare_json", "xlam", "pythonic"})
"""No markup of their own: calls stand at a line's start, after a blank line."""
LINES = frozenset({"react", "command_r_plus"})
"""Markers count at a line's start."""

_PROPERTIES = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "on": {"type": "boolean"},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "items": {"type": "array", "items": {"type": "string"}},
    "options": {"type": "object", "properties": {"depth": {"type": "integer"}, "label": {"type": "string"}}},
}
TOOLS = tuple(
    ToolSpec(name, parameters={"type": "object", "properties": _PROPERTIES})
    for name in ("look_up", "mail.send", "save")
)
