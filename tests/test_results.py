"""What the model sees of a result (X9)."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from collections import namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.results import MIN_LIMIT, compress, page, to_json


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Parcel:
    id: int
    when: datetime.date


class Opaque:
    pass


class Angry:
    def __str__(self) -> str:
        raise RuntimeError("no")


class Model:
    def model_dump(self) -> dict[str, int]:
        return {"a": 1}


class Scalar:
    """As numpy's numbers: not an int, but it has a plain form."""

    def tolist(self) -> int:
        return 7


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": math.nan, "b": math.inf, "c": -math.inf}, {"a": "nan", "b": "inf", "c": "-inf"}),
        ({3, 1, 2}, [1, 2, 3]),
        ({"b", 1}, [1, "b"]),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04:00"),
        (b"abc", "abc"),
        (b"\xff\x00", "base64:/wA="),
        ((1, 2), [1, 2]),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Color.RED, "red"),
        (Parcel(1, datetime.date(2026, 1, 2)), {"id": 1, "when": "2026-01-02"}),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({1: "a", None: "b", (1, 2): "c", Color.RED: "d"}, {"1": "a", "null": "b", "[1, 2]": "c", "red": "d"}),
        (Opaque(), "(Opaque)"),
        (Angry(), "(Angry)"),
        (Model(), {"a": 1}),
        (Model, "<class 'test_results.Model'>"),
        (Scalar(), 7),
        ("a\ud800b", "a?b"),
        (True, True),
        (None, None),
    ],
)
def test_any_value_becomes_plain_json(value, expected):
    plain = to_json(value)
    assert plain == expected
    assert type(plain) is type(expected)
    json.dumps(plain, allow_nan=False)


def test_a_cycle_is_named_and_a_shared_value_is_not_a_cycle():
    loop: dict = {"a": 1}
    loop["self"] = loop
    assert to_json(loop) == {"a": 1, "self": "(cycle: this value contains itself)"}
    shared = [1]
    assert to_json([shared, shared]) == [[1], [1]]


def test_depth_and_huge_integers_are_bounded():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    assert "nested too deeply" in compress(deep)[0]
    assert compress(10**9000)[0].startswith('"0x')


def test_what_fits_is_left_alone():
    assert compress("plain", 8000) == ("plain", 0)
    assert compress({"a": [1, "ü"]}, 8000) == ('{"a": [1, "ü"]}', 0)


def test_a_list_keeps_whole_items_and_tells_the_total():
    items = [{"id": i, "name": f"item {i}"} for i in range(1000)]
    text, size = compress(items, 500)
    shown = json.loads(text)
    assert len(text) <= 500
    assert size == len(json.dumps(items))
    assert shown[:-1] == items[: len(shown) - 1]
    assert shown[-1] == f"… (1000 items in all, the first {len(shown) - 1} are shown)"
    assert len(shown) > 10


def test_a_list_inside_an_object_is_cut_and_its_neighbours_are_not():
    text, _ = compress({"query": "tea", "hits": list(range(5000)), "next": None}, 300)
    shown = json.loads(text)
    assert (shown["query"], shown["next"]) == ("tea", None)
    assert "5000 items in all" in shown["hits"][-1]


def test_long_text_keeps_head_and_tail():
    text = "start " + "x" * 20000 + " end"
    cut, size = compress(text, 1000)
    assert size == len(text)
    assert len(cut) <= 1000
    assert cut.startswith("start ")
    assert cut.endswith(" end")
    assert f"{len(text)} characters in all" in cut


def test_an_object_with_too_many_keys_keeps_the_first_ones():
    text, _ = compress({f"key{i}": i for i in range(3000)}, 400)
    shown = json.loads(text)
    assert shown["key0"] == 0
    assert "3000 fields in all" in shown["…"]


def test_pages_together_are_the_whole_list():
    items = [{"id": i, "t": "x" * (i % 50)} for i in range(300)]
    got, start = [], 0
    while start is not None:
        text, start = page(items, start, 700)
        got += json.loads(text)
    assert got == items


def test_pages_of_text_together_are_the_text():
    whole = "".join(chr(97 + i % 26) for i in range(5000))
    got, start = "", 0
    while start is not None:
        text, start = page(whole, start, 700)
        got += text
    assert got == whole


def test_a_page_whose_first_item_is_too_large_still_moves_on():
    text, following = page(["x" * 5000, "y"], 0, 200)
    assert len(text) <= 200
    assert following == 1
    assert json.loads(text)[0].startswith("x")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=20), inner, max_size=20),
    max_leaves=60,
)


@settings(max_examples=300, deadline=None)
@given(value=VALUES, limit=st.integers(min_value=0, max_value=400))
def test_never_over_the_limit_and_always_strict_json(value, limit):
    text, size = compress(value, limit)
    assert len(text) <= max(limit, MIN_LIMIT)
    text.encode("utf-8")
    if not isinstance(value, str):
        json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert size == 0 or size > max(limit, MIN_LIMIT)
