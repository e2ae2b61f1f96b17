"""Checkpoints that describe their own format: the `response_template` of a tokenizer's configuration, read as data.

Law: a template is read to the end or refused with the place that is not understood; no pattern of it is ever run.
(tests/test_response_template.py::test_what_is_not_understood_is_refused_with_its_place)

The format is that of transformers (docs/source/en/chat_response_parsing.md, version 1), which vLLM reads too: `fields`,
each between `open` and `close` (texts, or patterns), with a `content` parser; a `transform` tells which part of a call
is what. Patterns are taken apart into the texts they stand for: a checkpoint is a stranger, and its regular expressions
could run for hours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Texts: TypeAlias = tuple[str, ...]
Piece: TypeAlias = tuple[str, Texts]
"""(kind, texts): "text" with its alternatives, "space", or "group" with its name."""

REASONING: Final = ("thinking", "reasoning", "reasoning_content")
PATTERN_LIMIT: Final = 4_096
"""Characters of one pattern; those of real templates have a hundred."""

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{\d*,?\d*\})\??")
_GROUP: Final = re.compile(r"\(\?P<(\w+)>")
_PLACEHOLDER: Final = re.compile(r"\{(?:\w+\.)*(\w+)\}\Z")
_TAG_NAME: Final = re.compile(r"<([\w:|]+)[= ]")
_MISSING: Final = "response_template.fields.tool_calls"


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a template's calls are written."""

    section: Texts
    section_close: Texts
    open: Texts
    close: Texts
    named: bool
    """The name stands behind the opener."""
    name_end: str
    """What follows the name; "": its arguments do."""
    mark: str
    """What stands on both sides of a string; "": JSON's quotes."""
    relaxed: bool
    """Keys have no quotes."""
    name_key: str
    args_key: str
    tag: tuple[str, str, str, str] | None
    """Tagged parameters: open, what follows the key, what precedes the value, close."""


@dataclass(frozen=True, slots=True)
class Format:
    """What a template says."""

    reasoning: tuple[tuple[Texts, Texts], ...]
    drop: Texts
    call: CallFormat | None


def read_template(template: Mapping[str, Any] | str) -> Format:
    """What a template says. `template`: the object, or its JSON text. Raises ValueError with the place."""
    if isinstance(template, str):
        try:
            template = json.loads(template)
        except ValueError as error:
            raise ValueError(f"response_template: no JSON: {error}") from None
    if not isinstance(template, Mapping):
        raise ValueError("response_template: not an object")
    if template.get("version", 1) != 1:
        raise ValueError(f"response_template.version: {template['version']!r} is not known; 1 is")
    fields = template.get("fields")
    if not isinstance(fields, Mapping) or not fields:
        raise ValueError("response_template.fields: an object with at least one field is needed")
    reasoning: list[tuple[Texts, Texts]] = []
    drop: list[str] = []
    call = None
    for name, field in fields.items():
        where = f"response_template.fields.{name}"
        if not isinstance(field, Mapping):
            raise ValueError(f"{where}: not an object")
        if name == "tool_calls":
            call = _call(field, where)
        elif name in REASONING:
            reasoning.append((_texts(field, "open", where), _texts(field, "close", where)))
        else:
            drop += [*_texts(field, "open", where), *_texts(field, "close", where)]
    return Format(tuple(each for each in reasoning if each[0] and each[1]), tuple(dict.fromkeys(drop)), call)


def markers_of(template: Mapping[str, Any] | str) -> str:
    """The texts of a template, without the escapes of its patterns: what `detect` looks for markers in."""
    if isinstance(template, str):
        try:
            template = json.loads(template)
        except ValueError:
            return ""
    return "\n".join(re.sub(r"\\([^\w\s])", r"\1", text) for text in _strings(template))


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < 16 and isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each, depth + 1)
    elif depth < 16 and isinstance(value, list):
        for each in value:
            yield from _strings(each, depth + 1)


# --- markers ----------------------------------------------------------------------------------------------------------


def _pieces(field: Mapping[str, Any], key: str, where: str) -> list[Piece]:
    """A marker, taken apart: `open`, or `open_pattern`."""
    literal, pattern = field.get(key), field.get(f"{key}_pattern")
    if literal is not None:
        texts = [literal] if isinstance(literal, str) else literal
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            raise ValueError(f"{where}.{key}: a text or a list of texts is needed")
        return [("text", tuple(texts))]
    if pattern is None:
        return []
    return split_pattern(pattern, f"{where}.{key}_pattern")


def _texts(field: Mapping[str, Any], key: str, where: str) -> Texts:
    """The texts that a marker may be; white space around it aside."""
    texts: Texts = ("",)
    for kind, alternatives in _pieces(field, key, where):
        if kind == "group":
            raise ValueError(f"{where}.{key}_pattern: a named group has no meaning here")
        if kind == "text":
            texts = tuple(text + more for text in texts for more in alternatives)
    return tuple(text.strip() for text in texts if text.strip())


def split_pattern(pattern: Any, where: str) -> list[Piece]:
    """A regular expression as texts, white space and named groups. Raises ValueError for what is none of them."""
    if not isinstance(pattern, str) or len(pattern) > PATTERN_LIMIT:
        raise ValueError(f"{where}: a text of at most {PATTERN_LIMIT} characters is needed")
    out: list[Piece] = []
    pos = 0
    while pos < len(pattern):
        kind, texts, end = _piece(pattern, pos, where)
        quantifier = _QUANTIFIER.match(pattern, end)
        if kind == "text" and quantifier is not None:
            raise ValueError(f"{where}: character {end}: a text that may repeat or be missing is not understood")
        pos = quantifier.end() if quantifier is not None else end
        if kind == "text" and out and out[-1][0] == "text":
            out[-1] = ("text", tuple(a + b for a in out[-1][1] for b in texts))
        else:
            out.append((kind, texts))
    return out


def _piece(pattern: str, pos: int, where: str) -> tuple[str, Texts, int]:
    """(kind, texts, end) of the piece at `pos`."""
    char = pattern[pos]
    if (group := _GROUP.match(pattern, pos)) is not None:
        return "group", (group[1],), _group_end(pattern, pos, where)
    if pattern.startswith("(?:", pos):
        end = _group_end(pattern, pos, where)
        inside = [split_pattern(part, where) for part in _alternatives(pattern[pos + 3 : end - 1])]
        if any(len(part) != 1 or part[0][0] != "text" for part in inside):
            raise ValueError(f"{where}: character {pos}: only texts may be alternatives")
        return "text", tuple(text for part in inside for text in part[0][1]), end
    if char == "\\" and pos + 1 < len(pattern):
        escaped = pattern[pos + 1]
        if escaped == "s":
            return "space", (), pos + 2
        if escaped in _ESCAPES:
            return "text", (_ESCAPES[escaped],), pos + 2
        if not escaped.isalnum():
            return "text", (escaped,), pos + 2
    elif char not in "\\.^$|()[]*+?":
        return "text", (char,), pos + 1
    raise ValueError(f"{where}: character {pos}: {pattern[pos : pos + 2]!r} is not understood")


def _group_end(pattern: str, pos: int, where: str) -> int:
    """The index behind the bracket that closes the group at `pos`."""
    depth, listed, i = 0, False, pos
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            i += 1
        elif listed:
            listed = char != "]"
        elif char == "[":
            listed = True
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if not depth:
                return i + 1
        i += 1
    raise ValueError(f"{where}: character {pos}: the group is not closed")


def _alternatives(inside: str) -> list[str]:
    """The alternatives of a group that holds no group."""
    return re.split(r"(?<!\\)\|", inside)


# --- calls ------------------------------------------------------------------------------------------------------------


def _call(field: Mapping[str, Any], where: str) -> CallFormat:
    opens = _pieces(field, "open", where)
    if not opens:
        raise ValueError(f"{where}: neither open nor open_pattern")
    before, named, after = _around(opens, "name", where)
    if not before or len(before) > 2:
        raise ValueError(f"{where}.open_pattern: one or two markers are needed before the name or the arguments")
    closes, _, _ = _around(_pieces(field, "close", where), "", where)
    section = before[0] if len(before) == 2 else ()
    close, section_close = _closers(section, before[-1], closes)
    content, settings = field.get("content", "text"), field.get("content_args") or {}
    if content not in ("json", "xml-inline"):
        raise ValueError(f"{where}.content: {content!r} is not understood for calls; json and xml-inline are")
    marks = settings.get("string_delims") or [["", ""]]
    if len(marks) != 1 or len(set(marks[0])) != 1:
        raise ValueError(f"{where}.content_args.string_delims: one mark on both sides is understood")
    name_key, args_key = _keys(field.get("transform"))
    return CallFormat(
        section=section,
        section_close=section_close,
        open=before[-1],
        close=close,
        named=named,
        name_end="".join(texts[0] for texts in after).rstrip(" "),
        mark=marks[0][0],
        relaxed=bool(settings.get("unquoted_keys")) or bool(marks[0][0]),
        name_key=name_key,
        args_key=args_key,
        tag=_tag(settings.get("tag_pattern"), f"{where}.content_args.tag_pattern") if content == "xml-inline" else None,
    )


def _around(pieces: list[Piece], group: str, where: str) -> tuple[list[Texts], bool, list[Texts]]:
    """The texts before and behind a named group, split at white space; whether there is one."""
    sides: tuple[list[Texts], list[Texts]] = ([], [])
    found = False
    for kind, texts in pieces:
        if kind == "group":
            if texts[0] != group or found:
                raise ValueError(f"{where}: group {texts[0]!r} is not understood")
            found = True
        elif kind == "text":
            sides[found].append(texts)
    return sides[0], found, sides[1]


def _closers(section: Texts, opener: Texts, closes: list[Texts]) -> tuple[Texts, Texts]:
    """(of a call, of the section): a template may name only the outer one."""
    if len(closes) > 1:
        return closes[0], closes[-1]
    only = closes[0] if closes else ()
    if not section or not only or only[0] != section[0].replace("<", "</", 1):
        return only, ()
    tag = _TAG_NAME.match(opener[0])
    return ((f"</{tag[1]}>",) if tag is not None else ()), only


def _keys(transform: Any) -> tuple[str, str]:
    """(of the name, of the arguments) in a call's object, where a template renames them."""
    function = transform.get("function", transform) if isinstance(transform, Mapping) else None
    if not isinstance(function, Mapping):
        return "", ""
    found = [_PLACEHOLDER.match(str(function.get(key, ""))) for key in ("name", "arguments")]
    keys = ["" if match is None or match[1] == "content" else match[1] for match in found]
    return keys[0], keys[1]


def _tag(pattern: Any, where: str) -> tuple[str, str, str, str]:
    """The markers of tagged parameters."""
    if pattern is None:
        raise ValueError(f"{where}: missing")
    parts: list[list[str]] = [[], [], []]
    groups = []
    for kind, texts in split_pattern(pattern, where):
        if kind == "group":
            groups.append(texts[0])
        elif kind == "text" and texts[0].strip():
            parts[len(groups)].append(texts[0].strip("\n"))
    opener, between, close = parts
    if groups != ["key", "value"] or len(opener) != 1 or not between or len(between) > 2 or not close:
        raise ValueError(f"{where}: a tag, its key, its value and its end are needed, in this order")
    return opener[0], between[0], between[1] if len(between) == 2 else "", close[0]
