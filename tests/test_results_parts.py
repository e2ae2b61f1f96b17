"""Images and other parts that a tool returns: they reach the model, and the ledger keeps them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate.formats import ollama, openai
from callgate.results import MAX_PARTS, apart
from callgate.types import Message, ModelInfo, Request, ToolCall

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
DATA = base64.b64encode(PNG).decode()
PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


@pytest.mark.parametrize(
    ("value", "rest", "parts"),
    [
        (PNG, "[image/png]", (PART,)),
        (PART, "[image/png]", (PART,)),
        (["a map", PNG], "a map\n[image/png]", (PART,)),
        ([{"type": "text", "text": "a map"}, PART, SOUND], "a map\n[image/png]\n[audio/wav]", (PART, SOUND)),
        (({"km": 3}, PART), [{"km": 3}, "[image/png]"], (PART,)),
        ([PNG, PNG], "[image/png]\n[image/png]", (PART, PART)),
        (b"plain bytes", b"plain bytes", ()),
        ({"type": "image_url"}, {"type": "image_url"}, ()),
        ({"type": ["image_url"]}, {"type": ["image_url"]}, ()),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}], ()),
        ("text", "text", ()),
        ([], [], ()),
        (None, None, ()),
    ],
)
def test_parts_are_told_from_the_rest(value: Any, rest: Any, parts: Any) -> None:
    assert apart(value) == (rest, parts)


def test_more_parts_than_a_model_can_bear_are_left_out_and_named() -> None:
    rest, parts = apart([PART] * (MAX_PARTS + 2))
    assert len(parts) == MAX_PARTS
    assert rest.count("left out") == 2


@tool(effect="read")
def draw_map(city: str) -> Any:
    "Draws a map."
    return [f"{city} from above", PNG]


def asked(info: ModelInfo | None, protocol: str, where: str | None = None) -> tuple[Any, Request]:
    reply: Any = {"calls": [{"name": "draw_map", "arguments": {"city": "Oslo"}}]}
    if protocol == "json":
        reply = '{"tool": "draw_map", "args": {"city": "Oslo"}}'
    model = Replay([reply, "There it is."], info=info)
    result = Agent(model, tools=[draw_map], protocol=protocol, ledger=where).run_sync("A map of Oslo")
    assert result.text == "There it is."
    return result, model.requests[-1]


@pytest.mark.parametrize("protocol", ["native", "json"])
def test_an_image_of_a_tool_reaches_the_model_under_every_protocol(protocol: str, tmp_path: Path) -> None:
    result, request = asked(None, protocol, f"sqlite:{tmp_path / 'runs.db'}")
    assert PART in tuple(request.messages[-1].content)
    assert "Oslo from above" in request.messages[-1].text
    assert DATA not in request.messages[-1].text
    assert result.calls[0].result.parts == (PART,)


def test_another_image_is_another_result() -> None:
    """A screen that is looked at again and again is no circle while it changes."""
    frames = iter(range(20))

    @tool(effect="read")
    def look() -> bytes:
        "Looks at the screen."
        return PNG + bytes([next(frames)])

    model = Replay([*[{"calls": [{"name": "look", "arguments": {}}]}] * 5, "Done."])
    result = Agent(model, tools=[look]).run_sync("Watch")
    assert (result.reason, len(result.calls)) == ("answered", 5)
    assert not any("same result" in m.text for m in result.messages)


def test_a_model_that_is_known_not_to_see_gets_the_words_alone() -> None:
    info = ModelInfo("blind", capabilities=frozenset({"tools"}), extra={"vision": False})
    result, request = asked(info, "native")
    assert request.messages[-1].content == "Oslo from above\n[image/png]"
    assert result.calls[0].result.parts == (PART,)


def test_images_of_results_are_the_users_for_openai_and_stand_in_place_for_ollama() -> None:
    text = {"type": "text", "text": "a map"}
    calls = (ToolCall("c1", "draw_map", {}), ToolCall("c2", "draw_map", {}))
    messages = (
        Message("user", "Maps!"),
        Message("assistant", calls=calls),
        Message("tool", (text, PART), call_id="c1", name="draw_map"),
        Message("tool", "none", call_id="c2", name="draw_map"),
    )
    for more in ((), (Message("assistant", "Here."),)):
        body = openai.build(Request((*messages, *more)), "m")["messages"]
        roles = ["user", "assistant", "tool", "tool", "user", *(m.role for m in more)]
        assert [m["role"] for m in body] == roles
        assert [m["content"] for m in body[2:4]] == ["a map", "none"]
        assert body[4]["content"][1:] == [PART]
        assert "c1" in body[4]["content"][0]["text"]
    assert ollama.build(Request(messages), "m")["messages"][2]["images"] == [DATA]
