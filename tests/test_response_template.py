"""A checkpoint's own `response_template` is a dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate.dialects import Dialect, detect
from callgate.types import ToolSpec
from dialect_reading import bad_of, calls_of, check_streams, cuts, read, reasoning_of, text_of

TOOL = ToolSpec(
    "tide_at",
    "",
    {"type": "object", "properties": {"harbour": {"type": "string"}, "hours": {"type": "integer"}}},
)
FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THINKING = {"open": "<muse>", "close": "</muse>", "content": "text"}
ARGUMENTS = {"harbour": "Skagen", "hours": 2}


def template(calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A template with these calls; its thinking is `<muse>…</muse>`, its turn ends with `<|done|>`."""
    content = {"close": "<|done|>", "content": "text"}
    return {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|go|>",
        "fields": {"thinking": THINKING, "tool_calls": {"repeats": True, **calls}, "content": content, **fields},
    }


CASES: list[tuple[dict[str, Any], str]] = [
    ({"open": "<go>", "close": "</go>", "content": "json", "transform": {"type": "function", "function": "{content}"}},
     '<go>{"name": "tide_at", "arguments": {"harbour": "Skagen", "hours": 2}}</go>'),
    ({"open": "<go>", "close": "</go>", "content": "json",
      "transform": {"type": "function", "function": {"name": "{content.which}", "arguments": "{content.with}"}}},
     '<go>{"which": "tide_at", "with": {"harbour": "Skagen", "hours": 2}}</go>'),
    ({"open": ["<|go|>", "<|went|>"], "close": "<|gone|>", "content": "json", "transform_each": True,
      "transform": {"type": "function", "function": {"name": "{tool}", "arguments": "{args}"}}},
     '<|went|>[{"tool": "tide_at", "args": {"harbour": "Skagen", "hours": 2}}]<|gone|>'),
    ({"open_pattern": r"<go to=(?P<name>\w+)>\s*", "close": "</go>", "content": "json", "transform": FUNCTION},
     '<go to=tide_at>\n{"harbour": "Skagen", "hours": 2}</go>'),
    ({"open_pattern": r"<\|go>call:(?P<name>\w+)", "close": "<go|>", "content": "json", "transform": FUNCTION,
      "content_args": {"unquoted_keys": True, "string_delims": [["<|q|>", "<|q|>"]]}},
     "<|go>call:tide_at{harbour:<|q|>Skagen<|q|>,hours:2}<go|>"),
    ({"open_pattern": r"\s*<go>\s*<do=(?P<name>[^>\n]+)>", "close_pattern": r"</do>\s*</go>", "content": "xml-inline",
      "content_args": {"tag_pattern": r"<with=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</with>"}, "transform": FUNCTION},
     "<go>\n<do=tide_at>\n<with=harbour>\nSkagen\n</with>\n<with=hours>\n2\n</with>\n</do>\n</go>"),
    ({"open_pattern": r"<go>\s*<do=(?P<name>\w+)>", "close": "</go>", "content": "xml-inline",
      "content_args": {"tag_pattern": r"<with=(?P<key>\w+)>\n(?P<value>.*?)\n</with>"}, "transform": FUNCTION},
     "<go>\n<do=tide_at>\n<with=harbour>\nSkagen\n</with>\n<with=hours>\n2\n</with>\n</do>\n</go>"),
    ({"open_pattern": r"<go>(?P<name>[^<\n]+)", "close": "</go>", "content": "xml-inline", "transform": FUNCTION,
      "content_args": {"tag_pattern": r"<k>(?P<key>.*?)</k>\s*<v>(?P<value>.*?)</v>"}},
     "<go>tide_at<k>harbour</k><v>Skagen</v><k>hours</k>\n<v>2</v></go>"),
]  # fmt: skip


@pytest.mark.parametrize(("calls", "text"), CASES, ids=range(len(CASES)))
def test_calls_are_read_as_the_template_describes_them(calls: dict[str, Any], text: str) -> None:
    """Names, arguments, thinking and content, the same for every cut; the template may be its JSON text."""
    dialect = Dialect.from_response_template(json.dumps(template(calls)))
    assert dialect == Dialect.from_response_template(template(calls))
    message = f"<muse>\nLook it up.\n</muse>One moment.{text}<|done|>"
    whole = read(dialect, [message], (TOOL,))
    assert (text_of(whole), reasoning_of(whole), bad_of(whole)) == ("One moment.", "Look it up.", [])
    assert [(call.name, call.arguments) for call in calls_of(whole)] == [("tide_at", ARGUMENTS)]
    check_streams(whole)
    for chunks in cuts(message):
        assert read(dialect, chunks, (TOOL,)) == whole
    again = read(dialect, [f"{text}\n{text}"], (TOOL,))
    assert [call.arguments for call in calls_of(again)] == [ARGUMENTS, ARGUMENTS]
    rest = read(dialect, [f" it up.</muse>{text}"], (TOOL,), "<|go|><muse>\nLook")
    assert (reasoning_of(rest), len(calls_of(rest))) == ("it up.", 1)


CONTENT: dict[str, Any] = {"content": "json", "transform": {"type": "function", "function": "{content}"}}


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        ([], "not an object"),
        ("{", "no JSON"),
        ({}, r"\.fields"),
        ({"version": 2, "fields": {"content": {}}}, r"\.version"),
        ({"fields": {"content": 7}}, r"\.fields\.content"),
        (template({}), r"tool_calls: neither open"),
        (template({"open": "", **CONTENT}), r"tool_calls\.open"),
        (template({"open": [7], **CONTENT}), r"tool_calls\.open"),
        (template({"open": "<go>", "content": "kv-lines"}), r"tool_calls\.content"),
        (template({"open": "<go>", "content": "xml-inline"}), r"tag_pattern: missing"),
        (template({"open_pattern": "(a+)+$", **CONTENT}), r"open_pattern: character 0"),
        (template({"open_pattern": "(?:a|b)*c", **CONTENT}), r"open_pattern: character 7"),
        (template({"open_pattern": "(?P<name>", **CONTENT}), r"open_pattern: character 0: the group"),
        (template({"open_pattern": "x" * 5000, **CONTENT}), r"open_pattern: a text of at most"),
        (template({"open_pattern": "<(?P<who>.*)>", **CONTENT}), r"group 'who'"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(broken: Any, place: str) -> None:
    """No pattern is guessed at, and none is run."""
    with pytest.raises(ValueError, match=place):
        Dialect.from_response_template(broken)


def test_a_template_of_a_known_family_gives_its_dialect() -> None:
    """`detect` reads its markers, whether texts or patterns, before the chat template and the name."""
    qwen = {"open_pattern": r"<tool_call>\s*<function=(?P<name>\w+)>", "close": "</tool_call>", "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>\w+)>\s*(?P<value>.*?)\s*</parameter>"},
            "transform": FUNCTION}  # fmt: skip
    gemma = {"open_pattern": r"<\|tool_call>call:(?P<name>\w+)", "close": "<tool_call|>", **CONTENT}
    assert detect(response_template=template(qwen), model_name="llama3.1:8b") == "qwen_xml"
    assert detect(response_template=json.dumps(template(gemma))) == "gemma4"
    assert detect(response_template=template(CASES[0][0])) is None
    assert detect(response_template="{", model_name="llama3.1:8b") == "llama3_json"
