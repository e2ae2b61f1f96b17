"""The laws of the reader over generated messages, for every dialect.

`CALLGATE_FUZZ=2000` makes each of these tests try that many new examples; `scripts/check fuzz` does so for a minute.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from callgate import dialects
from callgate.types import CallDelta
from dialect_reading import bad_of, calls_of, check_streams, read, text_of
from dialect_render import GUARDED, LINES, TOOLS, WRITERS, Call

FUZZ = int(os.environ.get("CALLGATE_FUZZ", "0"))
SETTINGS = settings(
    max_examples=FUZZ or 12,
    deadline=None,
    derandomize=not FUZZ,
    database=None,
    phases=(Phase.generate, Phase.shrink) if FUZZ else (Phase.generate,),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
timeout = pytest.mark.timeout(max(20, FUZZ))

NAMES = st.sampled_from([tool.name for tool in TOOLS])
PIECES = [
    *(
        "a",
        "b ",
        " ",
        "\n",
        '"',
        "'",
        "\\",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        "|",
        ",",
        ":",
        "=",
        "é",
        "日本",
        "🦆",
    ),
    *("\t", "&amp;", "</", "x<y", "\n\n", "None", "true", "7", "```", "*", ";", "\\n", '{"a": 1}', "</tool_call", "<|"),
]
STRINGS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
WORDS = st.sampled_from(["Hello", "there.", "日本語", "a < b", '"quoted"', "{braces}", "it is 3", "[1]", "and", "|x|"])
PROSE = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)

# What a family's notation cannot say, whoever reads it.
TYPED_BY_SCHEMA = frozenset(
    [
        "qwen_xml",
        "beam",
        "seed_oss",
        "glm_xml",
        "iquest",
        "hunyuan_v3",
        "minimax_m2",
        "minimax_m3",
        "dots",
        "step3",
        "minicpm5",
        "solar_open2",
        "k2_horizon",
        "glimmer_atem",
    ]
)
ONE_CALL = frozenset({"gigachat3"})
NO_PROSE_BEFORE = frozenset({"harmony", "llm_jp_harmony", "beam", "glimmer_atem"})
STOP_TOKEN_ENDS = frozenset({"beam"})
"""Parameters without a closer around them: the end of the text ends the call (its closer is a stop token)."""


def can_say(dialect: str, arguments: dict[str, Any]) -> bool:
    maybe, text = arguments.get("maybe"), arguments.get("text")
    if dialect in TYPED_BY_SCHEMA and isinstance(maybe, str) and maybe.strip() in ("None", "null"):
        return False
    if dialect == "seed_oss" and any(isinstance(v, str) and v[:1] == v[-1:] == "\n" for v in (maybe, text)):
        return False
    return dialect != "minimax_m3" or (arguments.get("items") != [] and arguments.get("options") != {})


def arguments(dialect: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "text": STRINGS,
            "count": st.integers(),
            "ratio": st.sampled_from([0.5, -2.25, 1e10, 3]),
            "on": st.booleans(),
            "maybe": st.none() | STRINGS | st.sampled_from(["null!", "N", "nul"]),
            "items": st.lists(STRINGS, max_size=3),
            "options": st.fixed_dictionaries({}, optional={"depth": st.integers(0, 9), "label": STRINGS}),
        },
    ).filter(lambda given: can_say(dialect, given))


def messages(dialect: str) -> st.SearchStrategy[tuple[str, list[Call]]]:
    """Prose (or none), and calls after it."""
    before = st.just("")
    if dialect not in NO_PROSE_BEFORE:
        gap = st.just("\n") if dialect in GUARDED | LINES else st.sampled_from(["", " ", "\n", "\n\n"])
        before = st.just("") | st.builds(str.__add__, PROSE, gap)
    calls = st.lists(st.tuples(NAMES, arguments(dialect)), min_size=1, max_size=1 if dialect in ONE_CALL else 3)
    return st.tuples(before, calls)


def chunked(data: st.DataObject, text: str) -> list[str]:
    points = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *points], [*points, len(text)], strict=True)]


def markers_of(dialect: str) -> list[str]:
    """All literal markers of a dialect, for making noise."""
    spec = dialects.get(dialect)
    found: list[str] = [*spec.drop]
    for region in spec.regions:
        found += [*region.open, *region.close]
    for calls in spec.calls:
        found += [*calls.section, *calls.section_close, *calls.open, *calls.close, *calls.inner]
        for field in ("open", "close", "mid", "key_end", "type_open"):
            found += getattr(calls.payload, field, ())
    if spec.channels is not None:
        found += [*spec.channels.start, *spec.channels.body, *spec.channels.end]
    return sorted(set(found))


@timeout
@pytest.mark.parametrize("dialect", sorted(WRITERS))
@SETTINGS
@given(data=st.data())
def test_generated_calls_are_read_exactly_however_they_are_cut(dialect: str, data: st.DataObject) -> None:
    before, calls = data.draw(messages(dialect))
    text = before + WRITERS[dialect](calls)
    whole = read(dialect, [text], TOOLS)
    check_streams(whole)
    assert [(call.name, call.arguments) for call in calls_of(whole)] == calls
    assert text_of(whole) == before.rstrip()
    assert not any("recovered" in call.flags for call in calls_of(whole))
    assert read(dialect, list(text), TOOLS) == whole
    assert read(dialect, chunked(data, text), TOOLS) == whole


@timeout
@pytest.mark.parametrize("dialect", sorted(WRITERS))
@SETTINGS
@given(data=st.data())
def test_a_cut_off_message_invents_nothing_and_shows_no_markup(dialect: str, data: st.DataObject) -> None:
    _, calls = data.draw(messages(dialect))
    text = WRITERS[dialect](calls)
    whole = calls_of(read(dialect, [text], TOOLS))
    openers = [m for m in markers_of(dialect) if len(m) > 3 and text.startswith(m)]
    begun = max(map(len, openers), default=len(text))
    for end in range(len(text)) if len(text) < 400 else range(0, len(text), 7):
        deltas = read(dialect, [text[:end]], TOOLS)
        check_streams(deltas)
        if dialect not in STOP_TOKEN_ENDS:
            assert all(call.arguments == whole[call.index].arguments for call in calls_of(deltas))
        assert {bad.name for bad in bad_of(deltas)} <= {None, *(name for name, _ in calls)}
        assert all(bad.reason == "truncated" for bad in bad_of(deltas))
        if end >= begun and dialect not in GUARDED | LINES:
            shown = text_of(deltas).strip()  # half a marker at the very end is text (policy F)
            assert not shown or any(m.startswith(shown) for m in markers_of(dialect))


@timeout
@pytest.mark.parametrize("dialect", [*sorted(WRITERS), "auto"])
@SETTINGS
@given(data=st.data())
def test_noise_of_markers_is_read_the_same_for_every_cut(dialect: str, data: st.DataObject) -> None:
    """Never an exception, one end for every index, the same deltas: whatever markers stand in whatever order."""
    pieces = [
        *PIECES,
        *markers_of("hermes" if dialect == "auto" else dialect),
        *(
            '{"name": "look_up"',
            '"arguments": {',
            "look_up",
            "save",
            '{"tool": "save", "args": {}}',
            '[save(text="x")]',
        ),
    ]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=24)))
    whole = read(dialect, [text], TOOLS)
    check_streams(whole)
    assert read(dialect, list(text), TOOLS) == whole
    assert read(dialect, chunked(data, text), TOOLS) == whole


@timeout
@pytest.mark.parametrize("dialect", [*sorted(WRITERS), "auto"])
@SETTINGS
@given(data=st.data())
def test_text_without_markup_comes_back_byte_for_byte(dialect: str, data: st.DataObject) -> None:
    """No marker, no change: not a space is lost, and only a possible marker's beginning is ever held."""
    safe = [p for p in PIECES if "<" not in p and "[" not in p and "{" not in p and "`" not in p]
    text = "".join(data.draw(st.lists(st.sampled_from([*safe, "< ", "a <b", " [x", "{ x", "word "]), max_size=30)))
    machine = dialects.reader(dialect, tools=TOOLS)
    shown, longest = "", max(map(len, markers_of("hermes" if dialect == "auto" else dialect)), default=0) + 80
    for n, char in enumerate(text, 1):
        shown += text_of(machine.feed(char))
        assert len(text[:n].rstrip()) - len(shown.rstrip()) <= longest
    assert shown + text_of(machine.finish()) == text
    assert machine.problems == []


LAG = 48
"""Characters that may be fed before the argument they belong to goes out: a closer and what may follow it."""


@pytest.mark.parametrize("parameter", ["text", "maybe"])
@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_arguments_go_out_while_they_are_written(dialect: str, parameter: str) -> None:
    """In every dialect a string argument is seen as it grows, and its name before it; nothing waits for the end."""
    value = "a value that is written word by word, and < that | { is [ no ( marker. " * 4
    text = WRITERS[dialect]([("save", {parameter: value})])
    start = text.index(value)
    machine = dialects.reader(dialect, tools=TOOLS)
    shown, names = "", []
    for n, char in enumerate(text, 1):
        for delta in machine.feed(char):
            if isinstance(delta, CallDelta):
                shown += delta.arguments
                names += [delta.name] if delta.name else []
        if start < n <= start + len(value):
            so_far = shown.partition(f'"{parameter}"')[2].lstrip(': "')
            assert n - start - len(so_far) <= LAG
    assert names == ["save"]
    assert [call.arguments for call in calls_of(machine.finish())] in ([], [{parameter: value}])
