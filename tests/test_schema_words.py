"""What a model is told about its arguments: where, what was expected, what came."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import mend

STR, INT = {"type": "string"}, {"type": "integer"}

ORDER = {
    "type": "object",
    "properties": {
        "city": STR,
        "days": {"type": "integer", "minimum": 1},
        "unit": {"enum": ["C", "F"]},
        "who": {"anyOf": [INT, {"type": "null"}]},
        "key": {"type": "string", "writeOnly": True, "maxLength": 3},
        "at": {"type": "object", "properties": {"x": INT}, "required": ["x"], "additionalProperties": False},
        "tags": {"type": "array", "items": STR, "minItems": 1},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        ({}, [("/city", "missing")]),
        ({"city": 7}, [("/city", "expected string, got the number 7")]),
        ({"city": "x", "town": 1}, [("/town", "unknown argument; known: city, days, unit, who, key, at, tags")]),
        ({"city": "x", "days": "0"}, [("/days", "the value is less than the minimum of 1, got the number 0")]),
        ({"city": "x", "unit": "K"}, [("/unit", 'expected one of "C", "F", got the string "K"')]),
        ({"city": "x", "who": "me"}, [("/who", 'expected integer or null, got the string "me"')]),
        ({"city": "x", "key": "secret"}, [("/key", "the value is longer than 3 characters")]),
        ({"city": "x", "at": {"y": 1}}, [("/at/y", "unknown argument; known: x"), ("/at/x", "missing")]),
        ({"city": "x", "tags": []}, [("/tags", "the value has less than 1 item, got an empty array")]),
        ({"city": "x", "at": "y" * 99}, [("/at", f'expected object, got the string "{"y" * 59}…')]),
    ],
)
def test_errors_say_where_what_was_expected_and_what_came(arguments: Any, errors: Any) -> None:
    got = mend(arguments, ORDER)
    assert sorted(got.errors) == sorted(errors)
    assert "secret" not in got.explain()
    assert got.explain().splitlines()[1:] == [f"{pointer}: {message}" for pointer, message in got.errors]


FITS = "The arguments do not fit the tool's schema. Nothing was run. Call again with these corrected:"
READS = "The arguments cannot be read as a JSON object. Nothing was run. Call again with valid JSON:"
WHOLE = "The arguments were cut off. Nothing was run. Call again, with the whole JSON object."


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ('{"city": "x"}', ["The arguments are valid."]),
        ('{"city": "x', [WHOLE, "/: the text ends inside the object"]),
        ("[1]", [READS, "/: expected an object, got an array"]),
        ("{}", [FITS, "/city: missing"]),
    ],
)
def test_each_outcome_has_one_shape_of_words(arguments: str, lines: list[str]) -> None:
    assert mend(arguments, ORDER).explain().splitlines() == lines


def test_what_was_mended_is_no_error_any_more() -> None:
    got = mend("{'city': 'x', 'days': '2', 'unit': 'K',}", ORDER)
    assert (got.outcome, got.coerced, [pointer for pointer, _ in got.errors]) == ("invalid", ["/days"], ["/unit"])


def test_a_thousand_errors_are_told_as_twenty() -> None:
    got = mend({"tags": list(range(1000)), "city": "x"}, ORDER)
    assert len(got.errors) == 21
    assert got.errors[-1] == ("", "and more; the first 20 errors are listed")
