"""Images, sounds and files as values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, formats, tool
from callgate.errors import ConfigError
from callgate.media import File, Image, Media, Sound
from callgate.messages import dump_messages, load_messages
from callgate.types import Message, Request

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "
VALUES: list[Media] = [Image(PNG), Sound(WAV), File(b"%PDF-1.7", "a.pdf")]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["openai", "ollama", "anthropic", "responses"])
def test_each_format_sends_it_in_its_own_form_or_refuses_it(name: str, value: Media) -> None:
    refuses = {("ollama", Sound), ("ollama", File), ("anthropic", Sound)}
    request = Request((Message("user", ({"type": "text", "text": "see"}, value.part)),), options={"max_tokens": 5})
    if (name, type(value)) in refuses:
        with pytest.raises(ConfigError):
            formats.get(name).build(request, "m")
        return
    body = json.dumps(formats.get(name).build(request, "m"))
    data = {Image: "iVBORw0K", Sound: "UklGRg", File: "JVBERi0x"}[type(value)]
    assert data in body


def test_a_prompt_of_values_is_kept_with_nothing_lost(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(PNG)
    model = Replay(["A cat.", "Yes."])
    agent = Agent(model)
    result = agent.run_sync(["What?", Image.open(path)], session="s")
    assert result.messages[0].content == ({"type": "text", "text": "What?"}, Image(PNG).part)
    assert load_messages(dump_messages(result.messages)) == result.messages
    agent.run_sync("Sure?", session="s")
    assert model.requests[1].messages[0] == result.messages[0]


def test_a_tool_returns_values() -> None:
    @tool(effect="read")
    def snap() -> Any:
        "Takes a picture."
        return ["Here:", Image(PNG)]

    script = [{"calls": [{"name": "snap", "arguments": {}}]}, "Nice."]
    record = Agent(Replay(script), tools=[snap]).run_sync("?").calls[0].result
    assert (record.parts, record.content) == ((Image(PNG).part,), "Here:\n[image/png]")


def test_bytes_of_another_kind_are_refused() -> None:
    for value in (Image(b"x"), Sound(b"x"), Sound("https://example.org/a.wav")):
        with pytest.raises(ConfigError):
            _ = value.part
