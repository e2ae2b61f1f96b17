"""What a request of one API becomes at a backend of another."""

from __future__ import annotations

import pytest

from callgate import formats
from callgate.apps.gateway.crossing import MOST_ANSWERS, cross
from callgate.errors import ConfigError, InvalidRequest
from callgate.types import Message, Request, ToolCall, ToolSpec

WIRES = ("openai", "ollama", "anthropic", "responses")
HI = (Message("user", "hi"),)
OPTIONS = {
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "max_tokens": 5,
    "stop": ["x"],
    "seed": 1,
    "presence_penalty": 1,
    "frequency_penalty": 1,
    "logit_bias": {"5": 1},
    "logprobs": True,
    "top_logprobs": 2,
    "reasoning_effort": "low",
    "verbosity": "low",
    "repetition_penalty": 1.1,
    "num_ctx": 9,
    "keep_alive": "5m",
    "truncate": True,
    "shift": True,
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("shape", WIRES)
@pytest.mark.parametrize("option", OPTIONS)
def test_what_another_api_cannot_say_is_named(shape: str, wire: str, option: str) -> None:
    """Each option is in the body by some name, or among those that were left out; and every body can be built."""
    request = Request(HI, options={option: OPTIONS[option]}, extra={"x_own": 1})
    crossed = cross(request, shape, wire)
    body = formats.get(wire).build(crossed.request, "m")
    plain = formats.get(wire).build(Request(HI), "m")
    said = body != plain or option in crossed.dropped
    assert said
    if shape != wire:
        assert "x_own" in crossed.dropped
        assert "x_own" not in body
    else:
        assert body["x_own"] == 1


@pytest.mark.parametrize("wire", [*WIRES, "responses", ""])
def test_several_answers_are_asked_for_one_at_a_time_and_bounded(wire: str) -> None:
    for shape, most in (("openai", MOST_ANSWERS), ("ollama", 1)):
        with pytest.raises(InvalidRequest) as caught:
            cross(Request(HI, options={"n": most + 1}), shape, wire)
        assert caught.value.field == "n"
        assert cross(Request(HI, options={"n": most}), shape, wire).request.options == {}


@pytest.mark.parametrize("odd", [0, True, 1e400, {}, {"a": 1}, [1], [None], [[]]])
@pytest.mark.parametrize(
    ("shape", "option", "field"),
    [
        ("openai", "reasoning_effort", "reasoning_effort"),
        ("openai", "stop", "stop"),
        ("anthropic", "stop", "stop_sequences"),
    ],
)
def test_a_value_that_no_api_could_be_told_is_refused_with_its_field(
    shape: str, option: str, field: str, odd: object
) -> None:
    """It was an error of the gateway: builders of other APIs went through it."""
    with pytest.raises(InvalidRequest) as caught:
        cross(Request(HI, options={option: odd}), shape, "ollama")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("thinking", "wire", "options"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, "openai", {"reasoning_effort": "low"}),
        ({"type": "enabled", "budget_tokens": 9000}, "openai", {"reasoning_effort": "medium"}),
        ({"type": "enabled", "budget_tokens": 32_000}, "openai", {"reasoning_effort": "high"}),
        ({"type": "disabled"}, "openai", {}),
        ({"type": "enabled", "budget_tokens": 1024}, "ollama", {"think": True}),
        ({"type": "disabled"}, "ollama", {"think": False}),
    ],
)
def test_thinking_has_the_words_of_each_api(thinking: object, wire: str, options: dict[str, object]) -> None:
    crossed = cross(Request(HI, options={"thinking": thinking}), "anthropic", wire)
    assert (crossed.request.options, crossed.dropped) == (options, ())


def test_plain_json_is_asked_for_everywhere() -> None:
    asked = Request(HI, extra={"response_format": {"type": "json_object"}})
    assert cross(asked, "openai", "ollama").request.extra == {"format": "json"}
    assert cross(asked, "openai", "anthropic").dropped == ("response_format",)
    asked = Request(HI, extra={"format": "json"})
    assert cross(asked, "ollama", "openai").request.extra == {"response_format": {"type": "json_object"}}


def test_options_of_another_api_would_be_refused() -> None:
    """The reason for the list: a format refuses what its API has no word for."""
    with pytest.raises(ConfigError):
        formats.get("anthropic").build(Request(HI, options={"seed": 1}), "m")


@pytest.mark.parametrize("wire", WIRES)
def test_fields_of_one_api_do_not_reach_another(wire: str) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    messages = (
        Message("system", "s", extra={"role": "developer", **mark}),
        Message("user", ({"type": "text", "text": "hi", **mark},), extra=mark),
        Message("assistant", "", "hm", (ToolCall("a", "f", {"x": 1}, extra=mark),), extra=mark),
        Message("tool", "1", call_id="a", name="f", extra=mark),
    )
    request = Request(messages, (ToolSpec("f", extra=mark),))
    other = "ollama" if wire != "ollama" else "openai"
    assert "cache_control" not in str(formats.get(wire).build(cross(request, other, wire).request, "m"))
    assert cross(request, wire, wire).request == request
