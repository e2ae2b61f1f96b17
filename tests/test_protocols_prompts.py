"""Every generated prompt and schema, to the character. `CALLGATE_GOLDEN=write pytest …` writes the files anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from callgate import protocols
from callgate.protocols import Query
from callgate.protocols._engines import ENGINES
from callgate.protocols._schemas import arguments_schema, bounded, names_schema, reply_schema, token_limit
from callgate.protocols.texts import REASONS, TEXTS
from callgate.types import Message, ModelInfo, ToolCall, ToolSpec

GOLDEN = Path(__file__).parent / "golden"
WEATHER = ToolSpec(
    "get_weather",
    "Current weather in a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city's name."},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    effect="read",
    examples=({"request": "Is it cold in Oslo?", "arguments": {"city": "Oslo"}},),
)
ORDER = ToolSpec(
    "place_order",
    "Orders goods.\nCannot be undone.",
    {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}, "description": "What to order."},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": ["string", "null"]},
        },
        "required": ["items"],
        "$defs": {"Item": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}},
    },
)
NOTHING = ToolSpec("ping", "Says whether the service is there.")
TOOLS = (WEATHER, ORDER, NOTHING)
INFO = ModelInfo("m", "test", frozenset({"tools", "schema"}))
CALL = ToolCall("c1", "get_weather", {"city": "Oslo"})
TALK = {
    "en": (
        Message("user", "How cold is it in Oslo?"),
        Message("assistant", "", calls=(CALL,)),
        Message("tool", '{"temp": -3}', call_id="c1", name="get_weather"),
        Message("assistant", "It is -3."),
        Message("user", "And in Bergen?"),
    ),
    "zh": (Message("user", "奥斯陆冷吗？"),),
}
NAMES = ("native", "constrained", "json", "marker", "answer", "hermes", "qwen_xml", "bracket_tool")


def golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("CALLGATE_GOLDEN") == "write":
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"{path}: the prompt changed; look at the difference, then write it anew"


def query(name: str, **more) -> Query:
    step = next(protocols.turn(name, **{"history": TALK["en"], "tools": TOOLS, "info": INFO, **more}))
    assert isinstance(step, Query)
    return step


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_the_request_of_each_protocol(name, language):
    request = query(name, history=TALK[language], instructions="Be brief.").request
    shown = [f"== {m.role}\n{m.text}" + (f"\n[calls {len(m.calls)}]" if m.calls else "") for m in request.messages]
    shown.append(f"== tools {[t.name for t in request.tools]} options {dict(request.options)}")
    shown.append(f"== schema {json.dumps(request.schema, ensure_ascii=False, indent=1)}")
    golden(f"{name}.{language}.txt", "\n".join(shown) + "\n")


SMALL = ModelInfo("tiny-135M", "local", frozenset({"schema", "logprobs"}))
ASKED = {"en": "How cold is it in Oslo? Use f.", "zh": "奥斯陆的天气怎么样？"}
ZH_WEATHER = ToolSpec(
    "get_weather",
    "查询城市的天气",
    {"type": "object", "properties": {"city": {"type": "string", "description": "城市"}}, "required": ["city"]},
    effect="read",
)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_requests_of_routed(language):
    """A choice of names for a large model; arguments, plain talk and an answer from results for a small one."""
    tools = TOOLS if language == "en" else (ZH_WEATHER, ORDER)
    asked = Message("user", ASKED[language])
    call = ToolCall("c1", "get_weather", {"city": "Oslo"})
    done = (asked, Message("assistant", calls=(call,)), Message("tool", "-3", call_id="c1", name="get_weather"))
    shown = []
    for title, info, history in (
        ("choose", INFO, (asked,)),
        ("arguments", SMALL, (asked,)),
        ("talk", SMALL, (Message("user", "Hello!" if language == "en" else "你好！"),)),
        ("answer", SMALL, done),
    ):
        turn = protocols.turn("routed", history=history, tools=tools, info=info)
        step = next(turn)
        request = (step if isinstance(step, Query) else next(turn)).request
        shown.append(f"#### {title}")
        shown += [f"== {m.role}\n{m.text}" for m in request.messages]
        shown.append(f"== options {dict(request.options)} extra {dict(request.extra)}")
        shown.append(f"== schema {json.dumps(request.schema, ensure_ascii=False, indent=1)}")
    golden(f"routed.{language}.txt", "\n".join(shown) + "\n")


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_the_schemas_for_each_engine(engine):
    made = {
        "reply": reply_schema(TOOLS, ENGINES[engine], parallel=True),
        "one tool": reply_schema(TOOLS[:1], ENGINES[engine], answer=False),
        "order": arguments_schema(ORDER, ENGINES[engine]),
        "names": names_schema(["a", "b", "none"]),
    }
    golden(f"schemas.{engine}.json", json.dumps(made, ensure_ascii=False, indent=1) + "\n")


def test_what_does_not_change_comes_first():
    """Two turns of one conversation share the whole system message and the messages before."""
    one = query("json", history=TALK["en"][:1]).request.messages
    two = query("json").request.messages
    assert two[: len(one)] == one


def test_the_language_stays_that_of_the_first_request():
    history = (*TALK["zh"], Message("assistant", "冷。"), Message("user", "And tomorrow?"))
    assert "你可以使用工具" in query("json", history=history).request.messages[0].text


def test_every_text_is_there_in_both_languages_with_the_same_fields():
    import string

    for table in (TEXTS, REASONS):
        for key, texts in table.items():
            fields = [{f for _, f, _, _ in string.Formatter().parse(t) if f} for t in texts.values()]
            assert set(texts) == {"en", "zh"}, key
            assert fields[0] == fields[1], key


def test_results_in_a_row_share_one_message():
    """Many chat templates refuse two messages of one role in a row."""
    calls = (CALL, ToolCall("c2", "ping", {}))
    history = (
        Message("user", "Both, please."),
        Message("assistant", "", calls=calls),
        Message("tool", "-3", call_id="c1", name="get_weather"),
        Message("tool", "pong", call_id="c2", name="ping"),
    )
    roles = [m.role for m in query("json", history=history).request.messages]
    assert roles == ["system", "user", "assistant", "user"]


def test_images_of_a_result_are_passed_on():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = ({"type": "text", "text": "a chart"}, picture)
    history = (
        Message("user", "Draw it."),
        Message("assistant", "", calls=(CALL,)),
        Message("tool", parts, call_id="c1", name="get_weather"),
    )
    assert query("json", history=history).request.messages[-1].content[-1] == picture
    assert query("native", history=history).request.messages[-1].content == parts


# --- schemas ------------------------------------------------------------------------------------------------------

RECURSIVE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "required": ["root"],
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}},
            "required": ["v"],
        }
    },
}
ODD = [
    {},
    True,
    RECURSIVE,
    {"type": "object"},
    {"type": "array"},
    {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"const": 1}}}]},
    {"type": ["string", "integer"]},
    {"$ref": "#/nowhere"},
    {"$ref": "https://example.org/schema"},
    {"type": "string", "minLength": 500},
    {"type": "string", "format": "date"},
    {"enum": [1, "a", None]},
    {"type": "object", "properties": {"a": True, "b": False}},
]


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("schema", ODD, ids=[str(i) for i in range(len(ODD))])
def test_bounded_schemas_have_no_references_and_an_end(schema, engine):
    made = bounded(schema, ENGINES[engine])
    text = json.dumps(made)
    assert "$ref" not in text
    assert 0 < token_limit(made) <= 4096

    def walk(node):
        if isinstance(node, dict):
            if node.get("type") == "array":
                assert "maxItems" in node
            if node.get("type") == "string" and "enum" not in node and ENGINES[engine].lengths:
                assert "maxLength" in node or "format" in node
            if node.get("type") == "object":
                assert node["additionalProperties"] is False
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(made)


def test_openai_strict_wants_an_object_with_everything_required():
    made = reply_schema(TOOLS, ENGINES["openai"])
    assert made["type"] == "object"
    assert made["required"] == ["reply"]
    call = made["properties"]["reply"]["anyOf"][0]["properties"]["args"]
    assert call["required"] == ["city", "unit"]
    assert {"type": "null"} in call["properties"]["unit"]["anyOf"]
