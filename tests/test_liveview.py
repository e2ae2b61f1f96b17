"""The live view: at every prefix the values are those that are certain, and the last view is the whole."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import liveview
from callgate.liveview import LiveArguments


def views(text: str) -> list[Any]:
    """A copy of the view after each character."""
    view, seen = LiveArguments(), []
    for character in text:
        view.feed(character)
        seen.append(deepcopy(view.value))
    return seen


def view_of(text: str) -> LiveArguments:
    view = LiveArguments()
    view.feed(text)
    return view


def begins(part: Any, whole: Any) -> bool:
    """Whether `part` is `whole` or a beginning of it: only the last thing in it may still grow."""
    match part, whole:
        case str(), str():
            return whole.startswith(part)
        case list(), list():
            return (
                len(part) <= len(whole)
                and part[:-1] == whole[: max(0, len(part) - 1)]
                and (not part or begins(part[-1], whole[len(part) - 1]))
            )
        case dict(), dict():
            keys = list(part)
            return keys == list(whole)[: len(keys)] and all(
                begins(part[key], whole[key]) if key == keys[-1] else part[key] == whole[key] for key in keys
            )
        case _:
            return type(part) is type(whole) and part == whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        (" ", {}),
        ("{", {}),
        ('{"ci', {}),
        ('{"city"', {}),
        ('{"city": ', {}),
        ('{"city": "', {"city": ""}),
        ('{"city": "Par', {"city": "Par"}),
        ('{"city": "Par\\', {"city": "Par"}),
        ('{"city": "Par\\u00e', {"city": "Par"}),
        ('{"city": "Par\\u00e9', {"city": "Paré"}),
        ('{"n": 12', {}),
        ('{"n": 12,', {"n": 12}),
        ('{"n": -0.5e3}', {"n": -500.0}),
        ('{"ok": tru', {}),
        ('{"ok": true ', {"ok": True}),
        ('{"ok": null}', {"ok": None}),
        ('{"a": [', {"a": []}),
        ('{"a": [1, "x', {"a": [1, "x"]}),
        ('{"a": [{}, {"b"', {"a": [{}, {}]}),
        ('{"big": 123456789012345678901234567890}', {"big": 123456789012345678901234567890}),
        ('{"a": 1, "a": "tw', {"a": "tw"}),
        ('"just text', "just text"),
        ("[[],", [[]]),
    ],
)
def test_the_value_so_far(text: str, value: Any) -> None:
    """What is certain is there, what may still change is not; whole or a character at a time."""
    assert view_of(text).value == value
    assert views(text)[-1:] == ([value] if text else [])


@pytest.mark.parametrize(
    ("escaped", "growth"),
    [
        ("\\ud83d\\ude00!", ["😀", "😀!"]),
        ("\\ud83dx", ["\ud83dx"]),
        ("\\ud83d\\n", ["\ud83d\n"]),
        ("\\ud83d\\u0041", ["\ud83d", "\ud83dA"]),
        ("\\ud83d\\ud83d\\ude00", ["\ud83d", "\ud83d😀"]),
        ("\\ude00\\ud83d", ["\ude00"]),
        ("\\\\u00e9", ["\\", "\\u", "\\u0", "\\u00", "\\u00e", "\\u00e9"]),
        ("\\\\\\u00e9", ["\\", "\\é"]),
    ],
)
def test_a_cut_escape_waits_for_its_rest(escaped: str, growth: list[str]) -> None:
    """Half a pair is never shown while its other half may come; a lone half is what json.loads makes of it."""
    seen = [value.get("t") for value in views('{"t": "' + escaped)]
    assert list(dict.fromkeys(text for text in seen if text)) == growth
    assert view_of('{"t": "' + escaped + '"}').value == json.loads('{"t": "' + escaped + '"}')


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
texts = st.text(alphabet='\\"/\n\t\x00abé气😀\ud83d\ude00{}[],:')
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=5)


@given(objects, st.booleans(), st.sampled_from([None, 1]))
def test_every_prefix_is_a_beginning_of_the_whole(whole: dict[str, Any], plain: bool, indent: int | None) -> None:
    """Nothing shown is ever taken back or changed, and each view has grown from the one before."""
    text = json.dumps(whole, ensure_ascii=plain, indent=indent)
    whole = json.loads(text)  # two halves of a pair, escaped side by side, are one character
    before: Any = {}
    view = LiveArguments()
    for character in text:
        view.feed(character)
        now = deepcopy(view.value)
        assert begins(now, whole)
        assert begins(before, now)
        before = now
    assert view.value == whole
    assert view.complete
    assert view.stopped is None


@given(objects, st.booleans(), st.lists(st.integers(0, 400), max_size=6))
def test_cuts_do_not_matter(whole: dict[str, Any], plain: bool, cuts: list[int]) -> None:
    """After the same text the view is the same, however it came."""
    text = json.dumps(whole, ensure_ascii=plain)
    whole = json.loads(text)
    view, done = LiveArguments(), 0
    for cut in sorted(cut for cut in cuts if cut < len(text)):
        view.feed(text[done:cut])
        done = cut
        assert view.value == view_of(text[:cut]).value
        assert view.path == view_of(text[:cut]).path
    view.feed(text[done:])
    assert view.value == whole


@given(st.text(alphabet='{}[]",:\\u0d8c1e+-.tfn \n"', max_size=30))
def test_it_never_raises_and_agrees_with_json_loads(text: str) -> None:
    """Any text: whatever json.loads reads the view shows, and what the view calls complete json.loads reads."""
    view = LiveArguments()
    for character in text:
        view.feed(character)
    try:
        whole = json.loads(text, strict=False)
    except ValueError:
        assert not view.complete or view.stopped
    else:
        assert view.stopped is None
        if isinstance(whole, dict | list | str):
            assert view.value == whole
            assert view.complete


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ('{"a": 1} x', {"a": 1}, "'x' where nothing more was expected"),
        ('{"a": 1, }', {"a": 1}, "'}' where a key was expected"),
        ('{"a": 1]', {"a": 1}, "']' where ',' or the end of what is open was expected"),
        ('{"a" 1', {}, "'1' where ':' was expected"),
        ('{"a": tru}', {}, "'tru' where a value was expected"),
        ('{"a": 01}', {}, "'01' where a value was expected"),
        ("{'a'", {}, "\"'\" where a key or '}' was expected"),
        ('{"a": "x\\q', {"a": "x"}, "an escape that JSON does not know"),
        ('{"a": "x\\u12g', {"a": "x"}, "an escape that JSON does not know"),
        ('{"a": ' + "1" * 5000 + "}", {}, "a number of more than 4300 characters (MAX_NUMBER)"),
    ],
)
def test_what_is_no_json_stops_the_view(text: str, value: Any, why: str) -> None:
    """It says why, keeps what was certain, and takes no more."""
    for view in (view_of(text), LiveArguments()):
        for character in text if view.stopped is None else "":
            view.feed(character)
        view.feed('"more": "text"')
        assert view.value == value
        assert view.stopped == why


def test_depth_has_a_limit() -> None:
    """Up to MAX_DEPTH levels are followed; one more stops the view without an exception."""
    deep = view_of("[" * liveview.MAX_DEPTH + "]" * liveview.MAX_DEPTH)
    assert deep.complete
    deeper = view_of("[" * 100_000)
    assert deeper.stopped == "nested deeper than 512 levels (MAX_DEPTH)"


def test_the_path_leads_to_what_is_being_written() -> None:
    """Keys and indices from the outside in, for scrolling and highlighting."""
    assert LiveArguments().path == ()
    view = view_of('{"items": [1, {"text": "ab')
    assert view.path == ("items", 1, "text")
    view.feed('c"}], "z": 1}')
    assert view.path == ()
    assert view.value == {"items": [1, {"text": "abc"}], "z": 1}


def test_numbers_beyond_floats_are_what_json_loads_makes_of_them() -> None:
    """1e999 is infinite and NaN is accepted, as everywhere in Python."""
    value = view_of('{"a": 1e999, "b": NaN, "c": -Infinity}').value
    assert value["a"] == math.inf
    assert math.isnan(value["b"])
    assert value["c"] == -math.inf


def test_each_character_is_looked_at_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: what the scanner visits in 4-character fragments is linear in the length of the text."""
    visited = 0

    class Counting:
        def __init__(self, pattern: Any) -> None:
            self.pattern = pattern

        def match(self, text: str, at: int) -> Any:
            nonlocal visited
            found = self.pattern.match(text, at)
            visited += (found.end() if found else at) - at + 1
            return found

        def fullmatch(self, text: str) -> Any:
            return self.pattern.fullmatch(text)

    for name in ("_PIECES", "_BLANK", "_SCALAR", "_CUT_ESCAPE"):
        monkeypatch.setattr(liveview, name, Counting(getattr(liveview, name)))
    counts = []
    for size in (1_000, 100_000):
        text = json.dumps({"items": [{"n": 1.5, "text": 'é"\n\\' * 20, "ok": [True, None]}] * (size // 150)})
        view = LiveArguments()
        visited = 0
        for start in range(0, len(text), 4):
            view.feed(text[start : start + 4])
            assert len(view._held) <= 11
        assert view.value == json.loads(text)
        counts.append(visited / len(text))
    assert counts[1] < 3
    assert counts[1] < counts[0] * 1.1


def test_a_long_string_grows_where_it_lies() -> None:
    """A megabyte in 4-character fragments moves in memory a few times, not once a fragment."""
    view = view_of('{"text": "')
    places = set()
    for _ in range(250_000):
        view.feed("abcd")
        places.add(id(view.value["text"]))
    assert len(view.value["text"]) == 1_000_000
    assert len(places) < 5_000
