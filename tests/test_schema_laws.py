"""The laws of `mend`, over generated schemas, values and damage."""

from __future__ import annotations

import json
import math
import re
import warnings
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.utils import many
from jsonschema import Draft202012Validator

from callgate import compile_schema, mend


def _more(self: Any) -> bool:
    """hypothesis-jsonschema still draws by `many.more()`, which newer versions of hypothesis no longer have."""
    if not hasattr(self, "_drawing"):
        self._drawing = iter(self.__enter__())
    if next(self._drawing, self) is None:
        return True
    self.__exit__(None)
    return False


if not hasattr(many, "more"):
    many.more = _more  # type: ignore[attr-defined]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from hypothesis_jsonschema import from_schema

LAWS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

SCALARS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": "integer", "minimum": -3, "maximum": 9},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "string"},
    {"type": "string", "maxLength": 3},
    {"enum": ["low", "High", 3, None, 1.5]},
    {"const": "go"},
    {"type": ["string", "null"]},
    {},
]


def _grow(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 3}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda values: {"type": "object", "additionalProperties": values, "maxProperties": 3}, inner),
        _objects(inner),
    )


def _objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["a", "b", "c d", "e/f", "~", "type"])
    properties = st.dictionaries(names, inner, max_size=4)

    def build(props: dict[str, Any], needed: list[bool], closed: bool) -> dict[str, Any]:
        required = [name for name, need in zip(props, needed, strict=False) if need]
        out = {"type": "object", "properties": props, "required": required}
        return {**out, "additionalProperties": False} if closed else out

    return st.builds(build, properties, st.lists(st.booleans(), min_size=4, max_size=4), st.booleans())


SCHEMAS = _objects(st.recursive(st.sampled_from(SCALARS), _grow, max_leaves=6))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON, max_size=4)
ANY: dict[str, Any] = {"type": "object"}


def same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@LAWS
@given(st.data(), SCHEMAS)
def test_valid_input_comes_back_identical(data: st.DataObject, schema: dict[str, Any]) -> None:
    value = data.draw(from_schema(schema))
    if jsonschema_rs.validator_for(schema, offline=True).is_valid(value):
        for arguments in (value, json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
            got = mend(arguments, schema)
            assert (got.outcome, got.repaired, got.coerced, got.errors) == ("ok", False, [], [])
            assert same(got.value, value)


@LAWS
@given(SCHEMAS, OBJECTS | JSON)
def test_what_is_accepted_is_valid_and_mending_it_again_changes_nothing(schema: dict[str, Any], value: Any) -> None:
    wild = {**value, "a": "5", "c d": "TRUE", "type": '["1"]'} if isinstance(value, dict) else value
    for arguments in (value, wild, json.dumps(wild)):
        got = mend(arguments, schema)
        if got.outcome == "ok":
            assert jsonschema_rs.validator_for(schema, offline=True).is_valid(got.value)
            again = mend(got.value, schema)
            assert (again.outcome, again.coerced, again.repaired) == ("ok", [], False)
            assert same(again.value, got.value)
        elif got.outcome == "invalid":
            assert got.errors
        assert finite(got.value)


def finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(finite(child) for child in children)


@LAWS
@given(OBJECTS, st.booleans(), st.sampled_from([None, 2]))
def test_every_proper_prefix_of_an_object_is_incomplete(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    for end in range(1, len(text)):
        assert mend(text[:end], ANY).outcome == "incomplete", text[:end]
    assert mend(text, ANY).outcome == "ok"


@LAWS
@given(st.data(), SCHEMAS, OBJECTS)
def test_without_coercion_it_decides_as_the_reference_implementation_does(
    data: st.DataObject, schema: dict[str, Any], value: Any
) -> None:
    """The reference implementation passes the official suite (test_schema_suite)."""
    value = data.draw(st.just(value) | from_schema(schema))
    got = mend(value, schema)
    untouched = got.outcome == "ok" and not got.coerced and same(got.value, value)
    assert untouched == Draft202012Validator(schema).is_valid(value)


WORDS = re.compile(r"[^\s\"'“”„‟＂‘’‚‛＇{}\[\]:,\\：，｛｝［］/*#`()._\-+\ufeff\u200b]+")


@LAWS
@given(st.data(), OBJECTS)
def test_damaged_text_never_yields_words_that_were_not_written(data: st.DataObject, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        if data.draw(st.booleans()):
            text = text[:at] + text[at + 1 :]
        else:
            text = text[:at] + data.draw(st.sampled_from(list("{}[]:,\"'\\ \nx1“”/#"))) + text[at:]
    got = mend(text, ANY)
    if got.outcome != "ok":
        assert got.outcome in ("malformed", "incomplete", "invalid")
        return
    assume("\\" not in text)  # an escape is written otherwise than it reads
    for piece in pieces(got.value):
        for word in WORDS.findall(piece):
            assert word in text, (text, got)


def pieces(value: Any) -> list[str]:
    """Every key, text and whole number inside a value, as it must have been written."""
    if isinstance(value, dict):
        return [*value, *(piece for child in value.values() for piece in pieces(child))]
    if isinstance(value, list):
        return [piece for child in value for piece in pieces(child)]
    return [str(value)] if type(value) in (str, int) else []


@LAWS
@given(st.text(max_size=60) | st.text(st.sampled_from(list("{}[]:,\"' \\/*#\n“”‘’：，ab1-.eEtrufalsn`")), max_size=60))
def test_any_text_gives_an_outcome_and_never_an_exception(text: str) -> None:
    for schema in (ANY, {}, {"type": "array"}, {"type": "string"}, True, False):
        got = mend(text, schema)
        assert got.outcome in ("ok", "invalid", "malformed", "incomplete")
        assert got.explain()


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": {"a": {"type": "integer"}}}, True])
@LAWS
@given(OBJECTS)
def test_a_compiled_schema_gives_what_the_schema_gives(schema: Any, value: Any) -> None:
    text = json.dumps(value)
    assert mend(text, compile_schema(schema)) == mend(text, schema)
