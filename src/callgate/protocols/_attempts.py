"""Recognises an answer that tries to be a call: what was asked for in a form is not met by chance (B1).

Law: an answer that holds an object of the asked shape, a tool's name with arguments, or an asked mark is a call or a
broken call; what only stands in a quotation or a fence of its own is neither.
(tests/test_protocols_attempts.py::test_every_written_form_of_a_call_runs)

The reader of a dialect is strict: prose is prose. This is the run's rule beside it, for protocols in which the model
was told a form. A call that is found here is `loose`, and `repaired` if its JSON was: a read may run, a write is asked
for once more.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from callgate.protocols._object import ARGS_KEYS, TOOL_KEYS
from callgate.protocols._rows import row_of
from callgate.protocols.intentions import named
from callgate.schema.mending import mend
from callgate.types import BadCall, ToolCall, ToolSpec

MAX_TEXT = 20_000
"""Characters of an answer that are looked at: a longer one is a document, and no call of ours."""
MAX_OBJECTS = 8
"""Objects in one answer that are looked at."""


@dataclass(slots=True, frozen=True)
class Attempt:
    """A call that an answer in words tried to be, and the words before it."""

    call: ToolCall | BadCall
    before: str


def attempt(protocol: str, text: str, tools: Sequence[ToolSpec]) -> Attempt | None:
    """The call that this answer tries to be; None: it is an answer, or under this protocol no form was asked for."""
    row = row_of(protocol)
    if row.native or row.reading == "text" or not tools or len(text) > MAX_TEXT:
        return None
    names = {tool.name: tool for tool in tools}
    found = [a for a in (_object(text, names), _written_call(text, names), _mark(text, names)) if a is not None]
    readable = [a for a in found if isinstance(a.call, ToolCall)]
    return next(iter(readable or found), None)


# --- an object ----------------------------------------------------------------------------------------------------

_KEY = re.compile(r"""["“”'‘’]?(?:tool|tool_name|name|function)["“”'‘’]?\s*[:：]""")
_ARGS = re.compile(r"""["“”'‘’]?(?:args|arguments|parameters|input)["“”'‘’]?\s*[:：]""")


def _object(text: str, names: Mapping[str, ToolSpec]) -> Attempt | None:
    """The first object in the text that has the shape of a call."""
    for start, end in _objects(text):
        raw = text[start:end]
        if _is_mention(text, start, end):
            continue
        before = re.sub(r"```\w*\s*$", "", text[:start]).strip()
        if end > len(text):  # never closed: nothing is made up for what is missing
            if _looks_like_call(raw, names):
                return Attempt(BadCall(0, None, _name_in(raw, names), raw, "truncated"), before)
            continue
        read = mend(raw, {"type": "object"})
        if isinstance(read.value, Mapping) and read.ok:
            call = _call_of(read.value, names)
            if call is not None:
                flags = frozenset({"loose", "repaired"} if read.repaired else {"loose"})
                return Attempt(ToolCall("call_1", call[0], call[1], 0, flags), before)
        elif _looks_like_call(raw, names):
            return Attempt(BadCall(0, None, _name_in(raw, names), raw, "malformed"), before)
    return None


def _objects(text: str) -> Iterator[tuple[int, int]]:
    """Where objects stand: outermost braces, matched by count; an end behind the text means that there is none."""
    depth = start = count = 0
    for at, char in enumerate(text):
        if char in "{｛":
            start = start if depth else at
            depth += 1
        elif char in "}｝" and depth:
            depth -= 1
            if not depth:
                yield start, at + 1
                count += 1
                if count == MAX_OBJECTS:
                    return
    if depth:
        yield start, len(text) + 1


def _call_of(value: Mapping[str, object], names: Mapping[str, ToolSpec]) -> tuple[str, dict[str, object]] | None:
    """Name and arguments of an object that has the shape of a call; None: it is data."""
    name = _first_of(value, ("tool", "tool_name", "function", "name"))
    if isinstance(name, Mapping):  # {"tool": {"name": …, "args": …}}, or the arguments beside it
        outer = {k: v for k, v in value.items() if k in ARGS_KEYS}
        return _call_of({**outer, **name}, names)
    if not isinstance(name, str):
        return None
    given = _first_of(value, ("args", "arguments", "parameters", "input"))
    if isinstance(given, str):
        given = _loaded(given)
    if isinstance(given, Mapping):
        return name, dict(given)
    if given is not None or name not in names:
        return None
    # {"tool": "weather", "city": "Oslo"}: small models leave the level of the arguments out
    return name, {k: v for k, v in value.items() if k not in TOOL_KEYS | ARGS_KEYS | {"type", "id"}}


def _first_of(value: Mapping[str, object], keys: Sequence[str]) -> object:
    return next((value[k] for k in keys if k in value), None)


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _looks_like_call(raw: str, names: Mapping[str, ToolSpec]) -> bool:
    return _KEY.search(raw) is not None and (_ARGS.search(raw) is not None or _name_in(raw, names) is not None)


def _name_in(raw: str, names: Mapping[str, ToolSpec]) -> str | None:
    return next((n for n in names if re.search(named(n), raw)), None)


# --- a call as in a program ---------------------------------------------------------------------------------------


def _written_call(text: str, names: Mapping[str, ToolSpec]) -> Attempt | None:
    """`get_weather(city="Oslo")`, with one of the tools' names."""
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    for match in re.finditer(rf"(?<![A-Za-z0-9_.])({either})\s*[(（]", text):
        end = _closing(text, match.end())
        if end is None or _is_mention(text, match.start(), end) or not text[match.end() : end - 1].strip():
            continue  # get_weather() in prose names the tool
        raw = text[match.start() : end]
        arguments = _arguments(raw, names[match[1]])
        before = re.sub(r"(?:<<<TOOL>>>|\[TOOL:)\s*$", "", text[: match.start()]).strip()
        if arguments is None:
            if "=" not in raw and "{" not in raw:
                continue  # words in brackets behind a name: a remark
            return Attempt(BadCall(0, None, match[1], raw, "malformed"), before)
        return Attempt(ToolCall("call_1", match[1], arguments, 0, frozenset({"loose"})), before)
    return None


def _closing(text: str, at: int) -> int | None:
    depth = 1
    for i in range(at, len(text)):
        depth += (text[i] in "(（") - (text[i] in ")）")
        if not depth:
            return i + 1
    return None


def _arguments(raw: str, tool: ToolSpec) -> dict[str, object] | None:
    """The arguments of a call in Python: by keyword, or one object; None: unreadable."""
    read = _python_arguments(raw)
    if read is None:
        return None
    given, rest = read
    if not rest:
        return given
    if len(rest) > 1:
        return None
    only = rest[0]
    if isinstance(only, dict) and all(isinstance(k, str) for k in only):
        return {**only, **given}
    properties = tool.parameters.get("properties") or {}
    # A value without a name has one reading only where the tool takes a single argument.
    return {next(iter(properties)): only} if len(properties) == 1 and not given else None


_JSON_WORDS = {"true": "True", "false": "False", "null": "None"}


def _python_arguments(raw: str) -> tuple[dict[str, object], list[object]] | None:
    """The literal arguments of a call as Python reads it: by name, and by place. None: it is none, or computes."""
    raw = raw.translate(str.maketrans("（）“”‘’，＝", "()\"\"'',="))
    raw = re.sub(r"\b(?:true|false|null)\b", lambda m: _JSON_WORDS[m[0]], raw)
    try:
        call = ast.parse(f"f({raw.partition('(')[2]}", mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        given = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
        rest = [ast.literal_eval(a) for a in call.args]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return (given, rest) if rest or len(given) == len(call.keywords) else None  # `**rest` hides what it holds


# --- a mark without its form --------------------------------------------------------------------------------------

_MARKS = re.compile(r"<<<TOOL>>>|\[TOOL:")


def _mark(text: str, names: Mapping[str, ToolSpec]) -> Attempt | None:
    """An asked mark with something behind it that is no call."""
    match = _MARKS.search(text)
    if match is None or _is_mention(text, match.start(), match.end()):
        return None
    raw = text[match.end() :]
    return Attempt(BadCall(0, None, _name_in(raw, names), raw, "malformed"), text[: match.start()].strip())


# --- mentions -----------------------------------------------------------------------------------------------------

_QUOTES = frozenset("`\"'“‘「『«‹《")


def _is_mention(text: str, start: int, end: int) -> bool:
    """Whether a stretch stands in a code span, a quotation, a quoted line, a comment, or a fence with words around."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    if line.lstrip().startswith((">", "|", "#", "//")) or line.startswith(("    ", "\t")):
        return True
    if text[:start].rstrip(" \t")[-1:] in _QUOTES and not text[:start].rstrip().endswith("```"):
        return True
    if line.count("`") % 2 and not line.lstrip().startswith("```"):
        return True
    if text[:start].count("```") % 2 == 0:
        return False
    opener = text.rfind("```", 0, start)
    label = text[opener + 3 : start].strip()
    closer = text.find("```", end)
    after = text[closer + 3 :] if closer >= 0 else ""
    # The one fence that an answer in JSON may have is the whole message.
    return label not in ("", "json") or bool(text[:opener].strip() or after.strip())
