"""The texts of the reader's benchmark, written in five dialects.

W1: prose in Chinese and English with three calls. W2: one call with one long string. W3: prose with stray `<` and `{`.
W5: eight calls at once. All are made up and the same in every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from callgate.types import ToolSpec

Call = tuple[str, dict[str, Any]]

PROSE = (
    "北京今天多云，气温在十八到二十五度之间，适合外出散步。I checked the forecast for the whole week and it stays dry "
    "until Friday, so the picnic can take place.\n如果周末下雨，我们可以改去博物馆；门票需要提前预约，学生半价。"
    "The museum opens at nine, and the number 4 bus stops right in front of it.\n"
)
TOOLS = (
    ToolSpec(
        "get_weather",
        "Weather of a city",
        {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    ),
    ToolSpec(
        "write_file",
        "Writes a file",
        {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}},
    ),
)
W1_LENGTH = 2452


def _hermes(name: str, arguments: str, _: dict[str, Any]) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _qwen_xml(name: str, _: str, values: dict[str, Any]) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def _harmony(name: str, arguments: str, _: dict[str, Any]) -> str:
    header = f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{header}{arguments}<|call|>"


def _mistral_args(name: str, arguments: str, _: dict[str, Any]) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{arguments}"


def _bare_json(name: str, arguments: str, _: dict[str, Any]) -> str:
    return f'\n{{"tool": "{name}", "args": {arguments}}}\n'


RENDER: dict[str, Callable[[str, str, dict[str, Any]], str]] = {
    "hermes": _hermes,
    "qwen_xml": _qwen_xml,
    "harmony": _harmony,
    "mistral_args": _mistral_args,
    "bare_json": _bare_json,
}
TAGS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "qwen_xml": ("<tool_call>", "</tool_call>"),
    "harmony": ("<|channel|>commentary to=", "<|call|>"),
    "mistral_args": ("[TOOL_CALLS]", "}"),
    "bare_json": ('{"tool"', "}}"),
}
"""What a rescan of each dialect would search for."""


def write(dialect: str, parts: Sequence[str | Call]) -> str:
    """Prose and calls as a model of this dialect writes them."""
    out = []
    for part in parts:
        if not isinstance(part, str):
            out.append(RENDER[dialect](part[0], json.dumps(part[1], ensure_ascii=False), part[1]))
        elif dialect == "harmony":
            opener = "<|start|>assistant" if out else ""
            out.append(f"{opener}<|channel|>commentary<|message|>{part}<|end|>")
        else:
            out.append(part)
    return "".join(out)


def prose(length: int) -> str:
    """So many characters of prose."""
    return (PROSE * (length // len(PROSE) + 1))[:length]


def w1(dialect: str) -> str:
    """Prose with three calls: 2,452 characters as hermes."""
    calls: list[Call] = [
        ("get_weather", {"city": "北京", "days": 7}),
        (
            "write_file",
            {"path": "notes/picnic.md", "text": '# 野餐\n\n- "blanket"\n- 水果\n- <strong>sun cream</strong>\n'},
        ),
        ("get_weather", {"city": "São Paulo", "days": 3}),
    ]
    spare = W1_LENGTH - len(write("hermes", calls))
    texts = [prose(spare // 4), prose(spare // 4), prose(spare // 4), prose(spare - 3 * (spare // 4))]
    return write(dialect, [texts[0], calls[0], texts[1], calls[1], texts[2], calls[2], texts[3]])


def w2(dialect: str, length: int) -> str:
    """One call whose string argument has `length` characters."""
    return write(dialect, [("write_file", {"path": "a.txt", "text": prose(length)})])


def w3(dialect: str, length: int = 100_000) -> str:
    """Prose in which now and then a `<` or a `{` stands that opens nothing."""
    unit = PROSE + "当 a < b 时，the set {x, y} is empty; <b>bold</b> text and f(x) < 3 are fine. "
    text = (unit * (length // len(unit) + 1))[:length]
    return f"<|channel|>final<|message|>{text}" if dialect == "harmony" else text


def w5(dialect: str) -> str:
    """Eight calls at once."""
    return write(dialect, [("get_weather", {"city": f"城市 {n}", "days": n}) for n in range(8)])
