"""The demo's tools do what they say, offline, and refuse the rest with a reason."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.apps.demo import TOOLS, arithmetic, clock, documentation, parcels
from callgate.apps.demo.arithmetic import evaluate, show
from callgate.errors import NoEffect, NotFound


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("17 * 23", "391"),
        ("17 × 23 =", "391"),
        ("2^3^2", "512"),
        ("2 ** 10", "1024"),
        ("-2^2", "-4"),
        ("2^-2", "0.25"),
        ("2*-3", "-6"),
        ("10 - 4 - 3", "3"),
        ("100 / 10 / 5", "2"),
        ("7 // 2 + 7 % 2", "4"),
        ("(3 + 4) / 5", "1.4"),
        ("0.1 + 0.2", "0.3"),
        ("1/3", "about 0.333333333333"),
        ("sqrt(16/9) * 3", "4"),
        ("sqrt(2)", "about 1.41421356237"),
        ("max(1,234) + min(5, 2, 9)", "236"),
        ("round(2.567, 2)", "2.57"),
        ("abs(-3) + floor(2.7) + ceil(2.1)", "8"),
        ("1e3 + .5", "1000.5"),
        ("123456789012345678901234567890 + 1", "123456789012345678901234567891"),
        ("log(100, 10)", "2"),
        ("10^400/3", "about 3.33333333333e+399"),
        ("2 pi / 2 pi", None),
    ],
)
def test_arithmetic_is_exact(expression: str, shown: str | None) -> None:
    if shown is None:
        with pytest.raises(NoEffect, match="an operator is missing before 'pi'"):
            evaluate(expression)
    else:
        assert show(evaluate(expression)) == shown


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "ends where a number is missing"),
        ("1 +", "ends where a number is missing"),
        ("(1", "')' is missing before 'the end'"),
        ("1)", "an operator is missing before ')'"),
        ("1/0", "division by zero"),
        ("0^-1", "division by zero"),
        ("9^9^9", "more than"),
        ("10^2000 * 10^2000", "more than"),
        ("round(2, 9^9)", "from 0 to 30"),
        ("sqrt(1, 2)", "sqrt: 2 arguments"),
        ("log(0)", "cannot be worked out"),
        ("sqrt(-1)", "not a real number"),
        ("__import__('os')", "no number, operator or bracket"),
        ("foo(1)", "before 'foo'"),
        ("(" * 60 + "1" + ")" * 60, "nested more than"),
        ("1+" * 300 + "1", "at most 500"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_place_and_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(NoEffect) as refused:
        evaluate(expression)
    assert reason in str(refused.value)


expressions = st.recursive(
    st.integers(0, 999).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
        lambda t: f"({t[0]}) {t[1]} ({t[2]})"
    ),
    max_leaves=8,
)


@given(expressions)
def test_arithmetic_agrees_with_python(expression: str) -> None:
    exact = re.sub(r"[0-9]+", r"F(\g<0>)", expression)
    try:
        expected = eval(exact, {"__builtins__": {}, "F": Fraction})
    except ZeroDivisionError:
        with pytest.raises(NoEffect, match="division by zero"):
            evaluate(expression)
        return
    assert evaluate(expression) == expected


@given(st.text(alphabet="0123456789+-*/%^().,eE sqrtloginmax", max_size=60))
def test_arithmetic_never_fails_in_another_way(text: str) -> None:
    with contextlib.suppress(NoEffect):
        show(evaluate(text))


def test_time_is_that_of_the_zone() -> None:
    told = clock.time_in(place="Tokyo")
    assert told["zone"] == "Asia/Tokyo"
    assert told["offset"] == "+0900"


@pytest.mark.parametrize(
    ("place", "zone"),
    [
        ("new york", "America/New_York"),
        ("Paris, France", "Europe/Paris"),
        ("europe/paris", "Europe/Paris"),
        ("UTC", "UTC"),
        ("Munich", "Europe/Berlin"),
    ],
)
def test_cities_and_zones_are_found_in_any_case(place: str, zone: str) -> None:
    assert clock.zone_of(place) == zone


def test_an_unknown_place_is_not_guessed() -> None:
    with pytest.raises(NotFound, match="Atlantis"):
        clock.zone_of("Atlantis")


def test_a_parcel_is_found_by_any_writing_of_its_number_and_labelled() -> None:
    for number in ("P-1003", "p-1003", " 1003 ", "#P-1003"):
        found = parcels.find_parcel(number=number)
        assert (found["status"], found["source"]) == ("held at customs", "demo data, invented")
    with pytest.raises(NotFound, match="there are P-1001"):
        parcels.find_parcel(number="'; DROP TABLE parcels; --")


def test_the_parcel_file_is_the_one_that_its_source_makes(tmp_path: Path) -> None:
    parcels.build(tmp_path / "made.sqlite")
    dumps = []
    for path in (tmp_path / "made.sqlite", parcels.FILE):
        database = sqlite3.connect(path)
        dumps.append(list(database.iterdump()))
        database.close()
    assert dumps[0] == dumps[1]


def test_the_documentation_is_searched_by_its_words() -> None:
    pages = {section.page for section in documentation.sections()}
    assert "commands.md" in pages
    found = documentation.search_docs(query="zero-width characters are shown as escapes")
    assert "commands.md" in [entry["page"] for entry in found]
    with pytest.raises(NotFound):
        documentation.search_docs(query="xyzzy")


def test_the_best_section_is_the_one_with_the_rarest_words() -> None:
    def section(title: str, text: str) -> documentation.Section:
        words = documentation.Counter(text.split())
        return documentation.Section("p.md", title, text, words)

    among = (section("a", "the run ends"), section("b", "the run is cancelled"), section("c", "the end"))
    assert [s.title for s in documentation.best("cancelled run", among)] == ["b", "a"]


def test_every_demo_tool_reads_only_and_is_described() -> None:
    assert [tool.name for tool in TOOLS] == ["calculate", "time_in", "find_parcel", "search_docs"]
    for tool in TOOLS:
        assert tool.spec.effect == "read"
        for schema in tool.spec.parameters["properties"].values():
            assert schema["description"]
            assert schema["maxLength"] <= arithmetic.MAX_LENGTH
