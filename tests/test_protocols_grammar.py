"""What holds a model to a tool's schema: patterns, ranges and whole schemas as grammars, and what they write."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.protocols._bounding import MAX_NODES
from callgate.protocols._engines import ENGINES
from callgate.protocols._grammar import FORMATS, grammar
from callgate.protocols._language import ANY, NEVER, State, both, holds, states, times
from callgate.protocols._numbers import language_of_number
from callgate.protocols._patterns import Unreadable, language_of_pattern
from callgate.protocols._schemas import bounded, token_limit
from callgate.schema.compiled import compile_schema
from gbnf import Grammar

LOCAL = ENGINES["local"]
KEPT: dict[str, Any] = {
    row["id"]: row["schema"]
    for row in map(json.loads, (Path(__file__).parent / "schemas_to_keep.jsonl").read_text("utf-8").strip().split("\n"))
}
IMPOSSIBLE = frozenset({"length-8", "recursive-13"})
"""A text of 10¹² characters; a tree in which every list of children needs a child."""


def written(found: Sequence[State], rng: random.Random) -> str:
    """A random text of the rules."""
    out, at = "", 0
    while True:
        state = found[at]
        if state.end and (not state.ways or rng.random() < 0.3):
            return out
        ranges, at = rng.choice(state.ways)
        low, high = rng.choice(ranges)
        out += chr(rng.randint(low, min(high, low + 40)))


PATTERNS = [
    r"^[A-Z]{2}-\d{4}$", "ab+c", r"^(?!foo)\w+$", r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{8,12}$", r"^\d{3}|x$",
    r"^(a|b)*c?$", r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", r"^https?://", r"[\"\\]", r"(foo|bar)$", r"^$", r"^\S+$",
    r"^[\u4e00-\u9fa5]{2,4}$", r"^v\d+\.\d+(-[\w.]+)?$", r"^(?:(?:25[0-5]|1?\d?\d)(?:\.(?!$)|$)){4}$", r"^a{2}b{1,}$",
    r"^(?:(?!--)[a-z-])$", r"^[\]\-^]+$", r"a|^b|c$", r"^(^a)b$", r"^\x41\u0042[\t ]$", r"^(?<y>\d{4})-\d$",
    r"^\p{L}+$", *FORMATS.values(),
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_rules_of_a_pattern_write_what_it_matches_and_nothing_else(pattern: str) -> None:
    rng = random.Random(7)
    valid = compile_schema({"pattern": pattern}).valid
    found = states(both([language_of_pattern(pattern), times(ANY, 0, 40)]))
    assert found
    assert all(valid(written(found, rng)) for _ in range(60))
    language = language_of_pattern(pattern)
    for _ in range(200):  # and the other way: what does not match is not in it
        text = "".join(rng.choice('aAb0-.x@ /:foo"\\') for _ in range(rng.randint(0, 6)))
        assert not (holds(language, text) and not valid(text)), text
        if "\\p" not in pattern and pattern not in FORMATS.values():
            assert holds(language, text) == valid(text), text


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", r"\bword\b", r"(?<=a)b", r"(?:a$)*", "(", "[z-a]", r"\p{Thai}", "*a", r"\k<x>"]
)
def test_what_is_no_language_is_refused_and_never_guessed(pattern: str) -> None:
    with pytest.raises(Unreadable):
        language_of_pattern(pattern)
    made = bounded({"type": "string", "pattern": pattern, "maxLength": 3}, LOCAL)
    assert (
        len(json.loads(Grammar(grammar(made)).text(1))) <= 3
    )  # the text alone; the check of the arguments does the rest


BOUNDS = st.one_of(st.integers(-2000, 2000), st.decimals(-30, 30, places=3).map(float))


@settings(deadline=None)
@given(
    low=st.none() | BOUNDS,
    high=st.none() | BOUNDS,
    open_=st.booleans(),
    step=st.none() | st.sampled_from([1, 3, 7, 10, 0.5, 0.25, 0.01, 2.5]),
    whole=st.booleans(),
    seed=st.integers(0, 99),
    value=st.decimals(-40, 40, places=3),
)
def test_the_rules_of_a_range_write_the_numbers_within_it_and_no_others(
    low: Any, high: Any, open_: bool, step: Any, whole: bool, seed: int, value: Any
) -> None:
    names = ("exclusiveMinimum", "exclusiveMaximum") if open_ else ("minimum", "maximum")
    schema = {k: v for k, v in zip((*names, "multipleOf"), (low, high, step), strict=True) if v is not None}
    valid = jsonschema_rs.validator_for({"type": "integer" if whole else "number", **schema}).is_valid
    language = language_of_number(schema, whole=whole)
    found, rng = states(language), random.Random(seed)
    for _ in range(5 if found else 0):
        text = written(found, rng)
        assert valid(json.loads(text)), text
    text = f"{value:f}".rstrip("0").rstrip(".")
    text = "0" if text in ("", "-0") else text
    if not (whole and "." in text):
        assert holds(language, text) == valid(json.loads(text)), text


@pytest.mark.parametrize("name", KEPT)
def test_what_a_grammar_writes_fits_its_schema(name: str) -> None:
    """And the tool's own one, without its model's help: whatever is written at random is valid."""
    made = bounded(KEPT[name], LOCAL)
    rules = Grammar(grammar(made))
    valid = compile_schema(KEPT[name]).valid
    for seed in range(25):
        text = rules.text(seed)
        value = json.loads(text)
        assert "\n" not in text
        assert len(text.encode()) <= max(token_limit(made), 4096)
        assert valid(value) or name in IMPOSSIBLE, text


@pytest.mark.parametrize("name", KEPT)
def test_no_repetition_stands_inside_another(name: str) -> None:
    """llama.cpp multiplies them, and refuses the grammar above 2,000: then nothing holds the model at all."""
    plain = re.sub(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]', "x", grammar(bounded(KEPT[name], LOCAL)))
    assert re.findall(r"\([^()]*\{\d[^()]*\)\{", plain) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", KEPT)
def test_a_bounded_schema_admits_only_what_the_true_one_takes(name: str, engine: str) -> None:
    """As far as the engine can say it: what no grammar of its kind knows is taken out of both sides."""
    made = bounded(KEPT[name], ENGINES[engine])
    text = json.dumps(made)
    assert '"$ref": "#' not in text
    assert len(re.findall(r'"type"', text)) <= 3 * MAX_NODES
    if engine not in ("local", "openai") and not re.search(
        r"pattern|format|multipleOf|uniqueItems|contains|not|prefixItems", name + json.dumps(KEPT[name])
    ):
        rules, valid = Grammar(grammar(made)), compile_schema(KEPT[name]).valid
        assert all(valid(json.loads(rules.text(seed))) or name in IMPOSSIBLE or _nulls(made) for seed in range(10))


def _nulls(made: Any) -> bool:
    """OpenAI's form has a null for what is left out, which `mend` drops."""
    return '"null"' in json.dumps(made)


def test_a_contradiction_and_a_huge_pattern_leave_a_schema_that_has_an_end() -> None:
    for schema in (
        {"type": "number", "minimum": 5, "maximum": 3},
        {"type": "string", "pattern": "^(a|b|c|d){0,400}(x|y){300}$"},
    ):
        json.loads(Grammar(grammar(bounded(schema, LOCAL))).text(3))
    assert states(NEVER) == ()
