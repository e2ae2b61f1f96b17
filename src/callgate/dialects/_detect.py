"""Which dialect a model writes, from its chat template or its name.

Law: the first row that fits wins, a template is asked before a name, and what neither tells is None, never a guess.
(tests/test_detect.py::test_the_template_is_asked_before_the_name)

The tables are the truth: the most specific rows stand first, and a template tells what the model was taught.

To teach it a model: one row in `_NAMES`; a template with new markup: one row in `_TEMPLATES`. A dialect without a row
is found by its own openers and aliases, so that adding one needs no row here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from callgate.dialects._catalogue import all_dialects
from callgate.dialects._response_template import markers_of
from callgate.dialects._spec import Dialect


class _Marks(NamedTuple):
    """A template writes `dialect` if it has each of `needs` (of a tuple: one) and nothing of `without`."""

    dialect: str
    needs: tuple[str | tuple[str, ...], ...]
    without: tuple[str, ...] = ()


# Templates glue markers together in their own ways, so a mark is never longer than what stands in one literal.
_TEMPLATES: Final = (
    # Markers that no other family has.
    _Marks("minimax_m3", ("minimax[>[",)),
    _Marks("minimax_m2", ("minimax:tool_call",)),
    _Marks("deepseek_v41", (("｜DSML｜ ", "DSML｜ calls"),)),
    _Marks("deepseek_dsml", ("｜DSML｜",)),
    _Marks("gigachat35", (("｜GCML｜", "GCML"),)),
    _Marks("step3", ("steptml:",)),
    _Marks("seed_oss", ("seed:tool_call",)),
    _Marks("longcat", ("longcat_tool_call",)),
    _Marks("iquest", ("iquest_tool_call",)),
    _Marks("dots", ("dots_function_call",)),
    _Marks("glimmer_atem", ("atem:",)),
    _Marks("beam", ("rfl:parameter",)),
    _Marks("k2_horizon", ("<ifm|",)),
    _Marks("plamo3", ("<|plamo:",)),
    _Marks("kimi_k3", ("<|open|>", "<|sep|>")),
    _Marks("kimi_k2", (("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"),)),
    _Marks("solar_open2", ("<|tool_call:start|>",)),
    _Marks("solar_open", ("<|tool_call:begin|>",)),
    _Marks("sarashina", ("<|tool_calls|>",), without=("<|tool_call:begin|>",)),
    _Marks("inkling", ("<|content_invoke_tool",)),
    _Marks("internlm", ("<|action_start|>",)),
    _Marks("apertus", ("<|tools_prefix|>",)),
    _Marks("cohere_action", ("<|START_ACTION|>",)),
    _Marks("pangu", (("[unused11]", "[unused12]"),)),
    _Marks("gigachat3", ("<|role_sep|>",)),
    _Marks("nemotron_toolcall", ("<TOOLCALL>",)),
    _Marks("functiongemma", ("<start_function_call>",)),
    _Marks("gemma4", (("<|tool_call>", "<tool_call|>"),)),
    _Marks("lfm2", (("<|tool_call_start|>", "<|tool_list_start|>"),)),
    _Marks("lfm2", ("List of tools: [", "<|im_start|>"), without=("<tool_call>",)),
    _Marks("functools", ("functools[",)),
    _Marks("functionary_v32", (">>>all",)),
    _Marks("minicpm5", ("<function name=", "<param name=")),
    _Marks("rwkv", ("**Tool Call:**",)),
    _Marks("heredoc_tool", ("<<<TOOL>>>",)),
    _Marks("bracket_tool", ("[TOOL: ",)),
    _Marks("cwm", ("<tool: ",)),
    # Harmony's frame; glimmer and beam, above, share it.
    _Marks("harmony", ("<|channel|>", "<|message|>")),
    # DeepSeek's tokens: a fence around the arguments, or none.
    _Marks("deepseek_v3", ("<｜tool▁call▁begin｜>", "```json")),
    _Marks("deepseek_v31", ("<｜tool▁call▁begin｜>",)),
    # [TOOL_CALLS]: name and arguments apart, or one JSON list.
    _Marks("mistral_args", ("[TOOL_CALLS]", "[ARGS]")),
    _Marks("mistral_list", ("[TOOL_CALLS]",)),
    # <tool_calls>, from the most telling surroundings to none.
    _Marks("hunyuan_v3", ("<arg_key", ("<tool_sep", "<tool_calls"))),
    _Marks("minimax_m1", ("<tool_calls>", "<beginning_of_sentence>")),
    _Marks("apriel", ("<tool_calls>", ("[BEGIN FINAL RESPONSE]", "Here are my reasoning steps"))),
    _Marks("hunyuan_a13b", ("<tool_calls>", ("<answer>", "<|hy_"))),
    _Marks("jamba", ("<tool_calls>",)),
    # <|tool_call|> and <tool_call>: what stands inside, or closes it, decides.
    _Marks("phi4_tool_call", ("<|/tool_call|>",)),
    _Marks("granite3", (("<|tool_call|>", "<|start_of_role|>"),), without=("</tool_call>",)),
    _Marks("glm_xml", ("<arg_key>",)),
    _Marks("qwen_xml", ("<function=", "<parameter=")),
    _Marks("step_audio2", ("<tool_call>function",)),
    _Marks("ernie45", ("<tool_call>", "<response>")),
    _Marks("hermes", ("<tool_call>",)),
    # No marker of its own around JSON or Python.
    _Marks("functionary_v31", ("<function=",)),
    _Marks("olmo3", ("<function_calls>",)),
    _Marks("granite_fc", ("<function_call>",)),
    _Marks("pythonic", ("func_name1(",)),
    _Marks("llama3_json", (('"parameters": dictionary of argument name', "<|python_tag|>", "Environment: ipython"),)),
    _Marks("pythonic", (("<|python_start|>", "<|python_end|>"),)),
    _Marks("command_r_plus", ("Action:", "tool_name", "```json")),
    _Marks("react", ("Action Input:",)),
)

# Names come as Ollama tags, repository ids, GGUF and template files. They are compared in lower case, with "-" for
# every "_", "/", ":" and blank, and "." within a version ("v3_1"); each row is a regular expression that may begin at
# any word of the name.
_NAMES: Final = (
    # Families that carry another family's name: first.
    ("deepseek_v3", r"deepseek-r1|r1-distill|cogito"),
    ("hermes", r"hermes-?[2-9]"),
    ("functools", r"firefunction"),
    ("functionary_v31", r"functionary-(?:[a-z]+-)?v3\.1"),
    ("functionary_v32", r"functionary"),
    ("xlam", r"xlam"),
    ("pythonic", r"toolace"),
    ("qwen_xml", r"nemotron-?3"),
    ("nemotron_toolcall", r"nemotron-?(?:nano|super|ultra)"),
    ("pangu", r"(?:open)?pangu"),
    # llm-jp's spacing is read by harmony too; "llm_jp_harmony" is there for servers that keep every blank.
    ("harmony", r"gpt-?oss|llm-jp-4"),
    # DeepSeek.
    ("deepseek_v41", r"deepseek-v?4\.1"),
    ("deepseek_dsml", r"deepseek-v?(?:3\.2|4)"),
    ("deepseek_v31", r"deepseek-v?3\.1"),
    ("deepseek_v3", r"deepseek-v?3"),
    # Qwen and those that write as it does.
    ("qwen_xml", r"qwen-?3-?coder|qwen-?3\.[5-9]"),
    ("qwen25_coder", r"qwen-?2\.5-coder"),
    ("qwen_xml", r"step-?(?:fun-?)?3\.[5-9]|nanbeige|iquest-coder|mimo-?v2|ornith|berrylm|kolibri"),
    ("hermes", r"qwen-?(?:2\.5|3)|qwq|mimo|bielik|reka|exaone-?4|trinity|smollm-?3"),
    # GLM and those that write as it does.
    ("glm_xml", r"glm-?(?:4\.[5-9]|5)|ling-?3|laguna|(?<!muse-)spark-?(?:2\.5|3)|hyperclova-?x-(?:[a-z]+-)*32b"),
    ("xlam", r"hyperclova-?x"),
    # Llama and Granite.
    ("pythonic", r"llama-?4"),
    ("llama3_json", r"llama-?3\.[1-3]|llama-?3-[1-3]"),
    ("granite_fc", r"granite-20b-function-?calling"),
    ("granite3", r"granite-?3(?!b)"),
    ("hermes", r"granite-?4(?!b)"),
    # Mistral.
    ("mistral_args", r"mistral-small-?3|mistral-small-(?:[0-9a-z.]+-)*250[3-9]|mistral-medium"),
    ("mistral_args", r"mistral-large-(?:3|(?:[0-9a-z.]+-)*2512)|devstral|magistral|ministral-?3(?!b)"),
    ("mistral_list", r"mistral|mixtral|ministral|codestral"),
    # Google.
    ("functiongemma", r"functiongemma"),
    ("gemma4", r"gemma-?4"),
    ("pythonic", r"gemma-?3n?"),
    # All others.
    ("longcat", r"longcat"),
    ("ernie45", r"ernie-?4\.5"),
    ("jamba", r"jamba"),
    ("apriel", r"apriel"),
    ("hunyuan_v3", r"(?:hy|hunyuan)-?[34]"),
    ("hunyuan_a13b", r"hunyuan-?a13b"),
    ("minimax_m3", r"minimax-?m3"),
    ("minimax_m2", r"minimax-?m2"),
    ("minimax_m1", r"minimax-?(?:m1|text)"),
    ("phi4_tool_call", r"phi-?4-mini"),
    ("internlm", r"internlm-?[23]|intern-?s1"),
    ("apertus", r"apertus"),
    ("cohere_action", r"command-?r7b|command-?a|cohere-?2-?moe|north-?code"),
    ("command_r_plus", r"command-?r"),
    ("gigachat35", r"gigachat-?3\.5"),
    ("gigachat3", r"gigachat-?3"),
    ("rwkv", r"rwkv-?7"),
    ("inkling", r"inkling"),
    ("kimi_k3", r"kimi-?k3"),
    ("kimi_k2", r"kimi-?k2"),
    ("k2_horizon", r"k2-?horizon"),
    ("solar_open2", r"solar-?open-?2"),
    ("solar_open", r"solar-?open"),
    ("plamo3", r"plamo-?3"),
    ("step_audio2", r"step-?audio-?2"),
    ("step3", r"step-?3"),
    ("sarashina", r"sarashina"),
    ("seed_oss", r"seed-?oss"),
    ("iquest", r"iquest"),
    ("cwm", r"cwm"),
    ("dots", r"dots(?:\.llm)?"),
    ("qwen_xml", r"minicpm-?[vo]-?(?:4\.[5-9]|[5-9])"),
    ("minicpm5", r"minicpm-?5"),
    ("glimmer_atem", r"glimmer|muse[-_ ]?spark"),
    ("beam", r"beam"),
    ("lfm2", r"lfm-?2"),
    ("olmo3", r"olmo-?3"),
)

_VERSION: Final = re.compile(r"(?<=\d)[-_](?=\d(?![\da-z]))")
_SEPARATORS: Final = re.compile(r"[\s_/:\\]+")
# A version does not end inside a number: "granite-34b" is not Granite 3.
_BY_NAME: Final = tuple((name, re.compile(rf"(?<![a-z0-9])(?:{pattern})(?!(?<=\d)\d)")) for name, pattern in _NAMES)


def detect(
    *,
    chat_template: str | None = None,
    model_name: str | None = None,
    response_template: Mapping[str, Any] | str | None = None,
) -> str | None:
    """The dialect's name, from the text of a chat template (Jinja or Ollama's), else from a model's name.

    A checkpoint's own `response_template` is asked first. None: none of them tells. Then `"auto"` reads what is seen,
    or `Dialect.from_response_template` what the checkpoint describes.

    >>> detect(model_name="qwen3-coder:30b")
    'qwen_xml'
    """
    if response_template and (dialect := _of_template(markers_of(response_template))):
        return dialect
    if chat_template and (dialect := _of_template(chat_template)):
        return dialect
    return _of_name(model_name) if model_name else None


def _without_row() -> list[Dialect]:
    rows = {marks.dialect for marks in _TEMPLATES} | {name for name, _ in _NAMES}
    return [dialect for dialect in all_dialects() if dialect.name not in rows]


def _of_template(template: str) -> str | None:
    for marks in _TEMPLATES:
        if all(_has(template, need) for need in marks.needs) and not any(mark in template for mark in marks.without):
            return marks.dialect
    for dialect in _without_row():
        if any(
            opener in template for calls in dialect.calls if not calls.guard for opener in (*calls.section, *calls.open)
        ):
            return dialect.name
    return None


def _has(template: str, need: str | tuple[str, ...]) -> bool:
    return need in template if isinstance(need, str) else any(mark in template for mark in need)


def _of_name(name: str) -> str | None:
    plain = _SEPARATORS.sub("-", _VERSION.sub(".", name.strip().lower()))
    for dialect, pattern in _BY_NAME:
        if pattern.search(plain):
            return dialect
    words = f"-{plain}-"
    for new in _without_row():
        if any(f"-{_SEPARATORS.sub('-', alias.lower())}-" in words for alias in new.aliases):
            return new.name
    return None
