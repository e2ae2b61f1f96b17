"""What is wrong with a call, told to the model in the language of the run.

Law: every message of `schema` has its Chinese form, and what a model or a tool's author wrote (values, names, patterns)
stands in it to the letter.
(tests/test_protocols_corrections.py::test_every_message_of_a_schema_has_its_chinese_form)

`schema` speaks English, for programs too. A Chinese run that is corrected in English answers in English, or mixes both:
so its messages are translated here, by the form of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from callgate.protocols.texts import TEXTS

if TYPE_CHECKING:
    from callgate.protocols.texts import Language
    from callgate.schema.mending import Mended

RAW_SHOWN = 500
"""Characters of unreadable arguments that go back to the model: enough to see what is wrong."""


def unfit(mended: Mended, language: Language) -> str:
    """Why arguments were refused: one line what happened, one line an error."""
    head = TEXTS[mended.outcome][language] if mended.outcome != "ok" else ""
    return "\n".join([head, *(f"{at or '/'}: {translated(what, language)}" for at, what in mended.errors)])


def flaws(mended: Mended, language: Language) -> str:
    """The errors alone, in one line."""
    errors = [(at, translated(what, language)) for at, what in mended.errors]
    return "; ".join(f"{at}: {what}" if at else what for at, what in errors) or TEXTS["broken"][language]


def arrived(text: str, language: Language) -> str:
    """What the model wrote, quoted at the end of a reason; nothing if there is nothing to quote."""
    shown = text if len(text) <= RAW_SHOWN else text[:RAW_SHOWN] + "…"
    return TEXTS["arrived"][language].format(text=shown) if text.strip() else ""


def translated(message: str, language: Language) -> str:
    """One message of `schema` in the language; what is none of its messages stays as it is."""
    if language == "en":
        return message
    text, got, value = message.rpartition(", got ")
    known = _sentence(text if got else message)
    if known is None:
        return message
    return f"{known}，收到的是{_value(value)}" if got else known


def _sentence(text: str) -> str | None:
    for pattern, made in _SENTENCES:
        if match := pattern.fullmatch(text):
            return made(match)
    return None


_KINDS = {
    "string": "字符串",
    "number": "数字",
    "integer": "整数",
    "boolean": "布尔值",
    "array": "数组",
    "object": "对象",
    "null": "null",
    "any value": "任意值",
}


def _types(text: str) -> str:
    """`string or null`; what is no list of types (a constant, an object with fields) keeps its words."""
    if text.startswith("one of "):
        return f"以下之一：{text.removeprefix('one of ')}"
    if match := re.fullmatch(r"an object with (.*)", text):
        return f"含有 {match[1]} 的对象" if match[1] != "no fields" else "没有字段的对象"
    parts = text.split(" or ")
    return "或".join(_KINDS[part] for part in parts) if all(part in _KINDS for part in parts) else text


def _value(text: str) -> str:
    """A value as `schema` names and quotes it."""
    for kind in ("string", "number"):
        if text.startswith(f"the {kind} "):
            return f"{_KINDS[kind]} {text.removeprefix(f'the {kind} ')}"
    for kind in ("array", "object"):
        if text in (f"an {kind}", f"an empty {kind}"):
            return ("空" if "empty" in text else "一个") + _KINDS[kind]
    return text


def _plain(pattern: str, made: str) -> tuple[re.Pattern[str], Callable[[re.Match[str]], str]]:
    """A sentence whose parts in brackets are taken over to the letter."""
    return re.compile(pattern, re.DOTALL), lambda match: made.format(*match.groups())


def _typed(pattern: str, made: str) -> tuple[re.Pattern[str], Callable[[re.Match[str]], str]]:
    """A sentence whose last part in brackets names types or choices."""

    def make(match: re.Match[str]) -> str:
        *others, last = match.groups()
        return made.format(*others, _types(last))

    return re.compile(pattern, re.DOTALL), make


_SENTENCES = (
    _plain(r"missing", "缺少"),
    _plain(r"not allowed here", "此处不允许"),
    _plain(r"unknown argument; known: (.*)", "未知参数；可用的参数：{0}"),
    _plain(r"unknown argument; none is taken here", "未知参数；此处不接受参数"),
    _plain(r"does not meet the conditions of `(.*)`", "不满足 `{0}` 的条件"),
    _plain(r"does not fit the schema", "不符合模式"),
    _plain(r"fits more than one of the alternatives, must fit exactly one", "同时符合多个选项，必须恰好符合一个"),
    _plain(r"fits none of the (\d+) alternatives: (.*)", "不符合 {0} 个选项中的任何一个：{1}"),
    # the messages of jsonschema-rs, which schema passes on
    _plain(r"the value is less than the minimum of (.*)", "小于最小值 {0}"),
    _plain(r"the value is greater than the maximum of (.*)", "大于最大值 {0}"),
    _plain(r"the value is less than or equal to the minimum of (.*)", "必须大于 {0}"),
    _plain(r"the value is greater than or equal to the maximum of (.*)", "必须小于 {0}"),
    _plain(r"the value is not a multiple of (.*)", "不是 {0} 的倍数"),
    _plain(r"the value is shorter than (\d+) characters?", "少于 {0} 个字符"),
    _plain(r"the value is longer than (\d+) characters?", "多于 {0} 个字符"),
    _plain(r"the value does not match (.*)", "不匹配 {0}"),
    _plain(r"the value is not a (.*)", "不是 {0} 格式"),
    _plain(r"the value has less than (\d+) items?", "少于 {0} 项"),
    _plain(r"the value has more than (\d+) items?", "多于 {0} 项"),
    _plain(r"the value has non-unique elements", "有重复的项"),
    _plain(r"the value has less than (\d+) propert(?:y|ies)", "少于 {0} 个字段"),
    _plain(r"the value has more than (\d+) propert(?:y|ies)", "多于 {0} 个字段"),
    _plain(r"and more; the first (\d+) errors are listed", "还有更多错误；以上是前 {0} 个"),
    # texts that cannot be read
    _plain(r"the text ends inside the object", "文本在对象结束之前中断"),
    _plain(r"no JSON object in the text|a text, where an object is wanted", "文本中没有 JSON 对象"),
    _plain(r"not JSON", "不是 JSON"),
    _plain(r"more than one object", "有多个对象"),
    _plain(r"there are fields outside the object", "有字段在对象之外"),
    _plain(r"nested deeper than (\d+) levels.*", "嵌套超过 {0} 层"),
    _plain(r"(.*) is no (?:finite number|JSON number)", "{0} 不是 JSON 数字"),
    _plain(
        r"quotes are missing or not escaped in the string at character (\d+)",
        "第 {0} 个字符处的字符串缺少引号或引号未转义",
    ),
    _plain(r"unescaped quotes in the string at character (\d+).*", "第 {0} 个字符处的字符串中有未转义的引号"),
    _plain(r"three quotes at character (\d+).*", "第 {0} 个字符处有三个引号；JSON 字符串只用一个"),
    _plain(
        r"a backslash before what may be the end of the string at character (\d+)",
        "第 {0} 个字符处的字符串结尾前有反斜杠",
    ),
    _plain(
        r"single backslashes in the string at character (\d+).*",
        "第 {0} 个字符处的字符串中有单个反斜杠；每个都要写成 \\\\",
    ),
    _plain(r"character (\d+): expected (.*), found (.*)", "第 {0} 个字符处出错，遇到的是 {2}"),
    _typed(r"expected (?:an? )?(.*)", "应为{0}"),
)
"""Tried in this order: the last one takes what begins as others do."""
