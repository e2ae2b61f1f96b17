"""The JSON scanner finds where values end, for every cut, and reads strictly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.jsonstream import DECODE_ERRORS, MAX_DEPTH, JsonScanner, load, load_object, quote

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CONTAINERS = st.lists(VALUES, max_size=3) | st.dictionaries(st.text(max_size=5), VALUES, max_size=3) | st.text()


def end_of(chunks: list[str]) -> int | None:
    scan, before = JsonScanner(), 0
    for chunk in chunks:
        end = scan.feed(chunk)
        if end is not None:
            assert not scan.broken
            return before + end
        before += len(chunk)
    return None


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(CONTAINERS, st.booleans(), st.lists(st.integers(0, 200), max_size=5))
def test_the_end_of_a_value_is_found_for_every_cut(value: object, ascii_only: bool, points: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    rest = '  {"next": 1}'
    points = sorted(point for point in points if point <= len(text + rest))
    chunks = [(text + rest)[a:b] for a, b in zip([0, *points], [*points, len(text + rest)], strict=True)]
    assert end_of([text + rest]) == len(text)
    assert end_of(list(text + rest)) == len(text)
    assert end_of(chunks) == len(text)
    assert all(end_of([text[:n]]) is None for n in range(len(text)))


@pytest.mark.parametrize("text", ["12 ", "-1.5e3,", "true]", "null}"])
def test_a_bare_value_ends_before_what_cannot_belong_to_it(text: str) -> None:
    assert end_of([text]) == len(text) - 1
    assert end_of(list(text)) == len(text) - 1
    assert end_of([text[:-1]]) is None


@pytest.mark.parametrize(("text", "at"), [('{"a": <', 6), ("{'a'", 1), ('{"a": [1}', 8), ('{"a" = 1', 5), ("[1)", 2)])
def test_what_cannot_stand_in_json_breaks_the_value_there(text: str, at: int) -> None:
    for chunks in ([text], list(text)):
        scan, before = JsonScanner(), 0
        for chunk in chunks:
            end = scan.feed(chunk)
            if end is not None:
                assert scan.broken
                assert before + end == at
                break
            before += len(chunk)
        else:
            pytest.fail("not noticed")


def test_strict_reading_refuses_a_raw_newline_in_a_string() -> None:
    scan = JsonScanner(strict=True)
    assert scan.feed('{"a": "b\nc"}') == 8
    assert scan.broken
    assert JsonScanner().feed('{"a": "b\nc"}') == 12


def test_depth_is_counted_and_limited() -> None:
    scan = JsonScanner()
    assert scan.feed("[[{") is None
    assert scan.depth == 3
    deep = JsonScanner()
    assert deep.feed("[" * (MAX_DEPTH + 1)) == MAX_DEPTH
    assert deep.too_deep


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{", "1 2", "", " ", "9" * 5000, "[" * 100_000, "tru"])
def test_loading_is_strict(text: str) -> None:
    with pytest.raises(DECODE_ERRORS):
        load(text)
    assert load_object(text) is None


def test_loading_keeps_integers_exact_and_objects_only() -> None:
    assert load(" 12345678901234567890123 ") == 12345678901234567890123
    assert load_object(' {"a": 1}\n') == {"a": 1}
    assert load_object("[1]") is None


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.text(max_size=100))
def test_quoting_gives_the_inside_of_a_json_string(text: str) -> None:
    assert json.loads(f'"{quote(text)}"') == text
