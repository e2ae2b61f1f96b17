"""The fast path of `Reader` beside the slow one: raw text goes straight to the machine, without a turn around it.

The slow path is `TurnReader`, fed with a delta for each chunk. It knows two things less: that a raw text cannot end
unsoundly, so calls come out as soon as they are complete, and that only a call which was cut makes it "interrupted".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Reader, Reply, dialects, formats
from callgate.reply import TurnReader
from callgate.types import BadCall, Delta, Finish, ReasoningDelta, TextDelta, ToolCall
from dialect_reading import cuts, merge
from dialect_render import TOOLS, WRITERS
from test_dialects_laws import SETTINGS, chunked, markers_of, messages, timeout

NAMES = [*sorted(WRITERS), "auto"]


def slow(dialect: str | None, chunks: Sequence[str], tail: str = "") -> tuple[Reply, list[Delta]]:
    machine = None if dialect is None else dialects.reader(dialect, tools=TOOLS, prompt_tail=tail)
    turn = TurnReader(machine)
    out = [delta for chunk in chunks for delta in turn.feed([TextDelta(chunk)])]
    out += turn.feed([Finish("stop")])
    reply = turn.reply
    if reply.incomplete:
        reply = replace(reply, finish="interrupted")
    return reply, out


def fast(dialect: str | None, chunks: Sequence[str], tail: str = "") -> tuple[Reply, list[Delta]]:
    """And what the reply tells on the way is what came out."""
    reader = Reader(dialect, tools=TOOLS, prompt_tail=tail)
    out: list[Delta] = []
    for chunk in chunks:
        out += reader.feed(chunk)
        so_far = reader.reply
        assert so_far.content == text_of(out, TextDelta)
        assert so_far.reasoning == text_of(out, ReasoningDelta).strip()
        assert [*so_far.calls, *so_far.incomplete] == [*of(out, ToolCall), *of(out, BadCall)]
        assert so_far.finish == "interrupted"
    out += reader.finish()
    return reader.reply, out


def of(deltas: Sequence[Delta], kind: type[Delta]) -> list[Delta]:
    return [delta for delta in deltas if isinstance(delta, kind)]


def text_of(deltas: Sequence[Delta], kind: type[TextDelta | ReasoningDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, kind))


def compare(dialect: str | None, chunks: Sequence[str], tail: str = "") -> None:
    expected, slowly = slow(dialect, chunks, tail)
    reply, quickly = fast(dialect, chunks, tail)
    reply.calls.sort(key=lambda call: call.index)
    reply.incomplete.sort(key=lambda call: call.index)
    assert reply == expected
    settled = (ToolCall, BadCall, Finish)
    fragments = [[d for d in out if not isinstance(d, settled)] for out in (quickly, slowly)]
    assert fragments[0] == fragments[1], "not delta for delta the same"
    assert quickly[-1] == replace(slowly[-1], reason=expected.finish)  # type: ignore[type-var]


@timeout
@pytest.mark.parametrize("dialect", NAMES)
@SETTINGS
@given(data=st.data())
def test_text_is_read_as_a_turn_is(dialect: str, data: st.DataObject) -> None:
    before, calls = data.draw(messages("hermes" if dialect == "auto" else dialect))
    text = before + WRITERS["hermes" if dialect == "auto" else dialect](calls) + data.draw(st.sampled_from(["", " ok"]))
    compare(dialect, chunked(data, text))
    compare(dialect, list(text))


@timeout
@pytest.mark.parametrize("dialect", NAMES)
def test_noise_is_read_as_a_turn_is(dialect: str) -> None:
    rng = random.Random(dialect)
    pieces = [
        *markers_of("hermes" if dialect == "auto" else dialect),
        *" \n\n{}<>|'\"`:,[]()",
        "get",
        "a b",
        "天。",
        "\n> ",
    ]
    for _ in range(10):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 30)))
        for chunks in cuts(text, every=False, some=2, seed=rng.randint(0, 999)):
            compare(dialect, chunks, rng.choice(["", "<think>\n"]))


@pytest.mark.parametrize("dialect", [None, "hermes"])
def test_bytes_cut_in_the_middle_of_a_character_are_read_as_text_is(dialect: str | None) -> None:
    text = 'Grüße 🦆 <tool_call>\n{"name": "search", "arguments": {"text": "天気🦆"}}\n</tool_call>\n'
    whole = Reader(dialect, tools=TOOLS)
    expected = merge([*whole.feed(text), *whole.finish()])
    for size in (1, 2, 3, 5, 7):
        reader = Reader(dialect, tools=TOOLS)
        raw = text.encode()
        out = [delta for at in range(0, len(raw), size) for delta in reader.feed(raw[at : at + size])]
        assert merge([*out, *reader.finish()]) == expected
        assert reader.reply == whole.reply


def test_a_string_of_another_class_and_half_a_character_are_text() -> None:
    class Word(str):
        __slots__ = ()

    reader = Reader("hermes")
    assert reader.feed(Word("a\ud83d")) == [TextDelta("a\ud83d")]
    reader.finish()
    assert reader.reply.content == "a\ud83d"


def test_calls_of_a_wire_keep_the_deltas_that_the_loader_made() -> None:
    """What comes out of a single source needs no renumbering and no copy."""
    loaded: list[Delta] = [*(TextDelta(c) for c in "天气 ok"), ReasoningDelta("x")]
    assert [a is b for a, b in zip(TurnReader().feed(loaded), loaded, strict=True)] == [True] * len(loaded)
    loader = formats.get("openai").Loader()
    fragment = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"a": 1}'}}
    deltas = loader.take({"object": "chat.completion.chunk", "choices": [{"delta": {"tool_calls": [fragment]}}]})
    assert deltas
    assert all(a is b for a, b in zip(TurnReader().feed(deltas), deltas, strict=True))
