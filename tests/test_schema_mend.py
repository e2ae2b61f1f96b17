"""`mend`, rule by rule."""

from __future__ import annotations

import enum
import json
import math
import time
from collections import OrderedDict
from typing import Any

import pytest

from callgate import compile_schema, mend
from callgate.errors import ConfigError

ANY: dict[str, Any] = {"type": "object"}


INT, NUM, BOOL, STR = {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "string"}


class Rank(enum.IntEnum):
    LOW = 1


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# --- reading ------------------------------------------------------------------------------------------------------

REPAIRED = {
    "fence": ('```json\n{"a": 1}\n```', {"a": 1}),
    "fence without an end": ('```\n{"a": 1}', {"a": 1}),
    "prose before": ('Sure! Here: {"a": 1}', {"a": 1}),
    "placeholders in the prose": ('For {city} in {the country}: {"a": 1}', {"a": 1}),
    "prose after": ('{"a": 1} done, I hope.', {"a": 1}),
    "a call around it": ('get({"a": 1})', {"a": 1}),
    "surplus closer": ('{"a": 1}}', {"a": 1}),
    "typographic double": ("{“a”: “x”}", {"a": "x"}),
    "typographic low": ("{„a“: „x“}", {"a": "x"}),
    "typographic single": ("{‘a’: ‘it’s’}", {"a": "it’s"}),
    "full width": ("｛＂a＂：［1，2］｝", {"a": [1, 2]}),
    "single quotes": ("{'a': 'it\\'s'}", {"a": "it's"}),
    "apostrophe in single quotes": ("{'a': 'what's up', 'b': 1}", {"a": "what's up", "b": 1}),
    "python literals": ("{'a': None, 'b': [True, False]}", {"a": None, "b": [True, False]}),
    "trailing commas": ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}),
    "line comment": ('{"a": 1, // one\n "b": "// two"}', {"a": 1, "b": "// two"}),
    "block comment": ('{/* x */"a": 1 /* y * / */}', {"a": 1}),
    "hash comment": ('{"a": 1 # one\n}', {"a": 1}),
    "raw newline and tab": ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
    "lone backslash": (r'{"a": "\d+\.\d"}', {"a": r"\d+\.\d"}),
    "lone backslash before u": (r'{"a": "C:\\x \umbrella"}', {"a": r"C:\x \umbrella"}),
    "windows path": (r'{"a": "C:\Users\me"}', {"a": r"C:\Users\me"}),
    "unquoted keys": ("{a: 1, b_c: 2}", {"a": 1, "b_c": 2}),
    "missing comma": ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
    "missing comma at a line end": ('{"a": "x"\n"b": 2}', {"a": "x", "b": 2}),
    "inner quotes": ('{"a": "say "hi" now", "b": "c"}', {"a": 'say "hi" now', "b": "c"}),
    "json5 numbers": ('{"a": .5, "b": -.5, "c": 5.}', {"a": 0.5, "b": -0.5, "c": 5.0}),
    "double encoding": (json.dumps(json.dumps({"a": "x"})), {"a": "x"}),
    "triple encoding": (json.dumps(json.dumps(json.dumps({"a": 1}))), {"a": 1}),
    "double encoding of broken JSON": (json.dumps("{'a': 1,}"), {"a": 1}),
    "byte order mark": ('\ufeff{"a": 1}', {"a": 1}),
    "surrogate pair": ("{'a': '\\ud83d\\ude00'}", {"a": "😀"}),
    "a key with an apostrophe": ('{"a": "x", "it\'s": 2,}', {"a": "x", "it's": 2}),
    "a key with quotes": ('{"a": "x", "say \\"hi\\"": 2,}', {"a": "x", 'say "hi"': 2}),
    "a very long key": ('{"a": "x", "' + "k" * 500 + '": 2,}', {"a": "x", "k" * 500: 2}),
    "escaped typographic quotes": ("{“a”: “say \\“hi\\” now”}", {"a": "say “hi” now"}),
    "JSON in a string beside single quotes": (
        '{\'a\': 1, "b": "{\\"c\\": \\"d\\", \\"e\\": {}}"}',
        {"a": 1, "b": '{"c": "d", "e": {}}'},
    ),
    "unquoted word": ('{"a": Oslo, "b": 1}', {"a": "Oslo", "b": 1}),
}


@pytest.mark.parametrize(("text", "value"), REPAIRED.values(), ids=REPAIRED)
def test_what_can_be_read_in_one_way_is_read_and_said_to_be_repaired(text: str, value: Any) -> None:
    got = mend(text, ANY)
    assert (got.outcome, got.value, got.repaired) == ("ok", value, True), got
    assert any(note.startswith("repaired: ") for note in got.notes)
    again = mend(got.value, ANY)
    assert (again.outcome, again.value, again.repaired, again.coerced) == ("ok", value, False, [])


MALFORMED = {
    "no object": "I would call the tool now.",
    "a word": "hello",
    "a list": "[1, 2]",
    "a list of one object": '[{"a": 1}]',
    "a loose list of one object": "[{'a': 1}]",
    "triple quotes": '{"a": """x"""}',
    "triple single quotes": "{'a': '''x'''}",
    "a set": "{Oslo}",
    "an object in what is none": '{a, {"b": 1}}',
    "two objects": '{"a": 1} {"b": 2}',
    "a list of objects without brackets": "{'a': 1}, {'b': 2}",
    "fields before": '"a": 1, {"b": 2}',
    "fields after": '{"a": 1}, "b": 2',
    "odd inner quotes": '{"a": "say "hi, b": 1}',
    "inner quotes that look like a key": '{"a": "use "x", "y": z", "b": 1}',
    "inner quotes before a colon": '{"a": "key": "v"}',
    "inner quotes in a list that look like a key": '{"a": ["", "b": ""]}',
    "a backslash that hides the closer before a comment": "{c: '\\', a: '# h'\n}",
    "a folder that ends in a backslash": "{'a': 'C:\\x\\', 'b': 1}",
    "a lone backslash as value": "{'a': '\\', 'b': ']'}",
    "wrong closer": '{"a": [1, 2}',
    "wrong closer for an object": '{"a": {"b": 1]}',
    "ellipsis": '{"a": [1, 2, ...]}',
    "placeholder": '{"a": <city>}',
    "undefined": '{"a": undefined}',
    "NaN": '{"a": NaN}',
    "Infinity": '{"a": [-Infinity]}',
    "loose Infinity": "{'a': Infinity}",
    "overflow": '{"a": 1e999}',
    "loose overflow": "{'a': 1e999}",
    "octal": '{"a": 007}',
    "hex": '{"a": 0x1F}',
    "thousands": '{"a": 1,000}',
    "double comma": '{"a": [1,,2]}',
    "no value": '{"a": , "b": 1}',
    "no colon": '{"a" 1}',
    "path with an escape that means two things": r'{"a": "C:\Users\temp\new"}',
    "endless digits": '{"a": ' + "9" * 5000 + "}",
    "text in text": json.dumps(json.dumps("hello")),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_what_could_mean_two_things_or_nothing_is_refused(text: str) -> None:
    got = mend(text, ANY)
    assert (got.outcome, got.value) == ("malformed", None), got
    assert got.errors
    assert got.errors[0][1]


CUT = {
    "fenced": '```json\n{"a": "b',
    "after prose": "Here: {'a': [1, ",
    "single quotes": "{'a': 'b",
    "double encoded": '"{\\"a\\": 1',
    "inner object of a string": json.dumps('{"a": 1'),
    "endless comment": '{"a": 1 /* and',
    "python literal": "{'a': Tru",
    "lone minus": "{'a': -",
}


@pytest.mark.parametrize("text", CUT.values(), ids=CUT)
def test_what_is_cut_off_is_incomplete_and_never_closed(text: str) -> None:
    got = mend(text, ANY)
    assert (got.outcome, got.value) == ("incomplete", None), got


@pytest.mark.parametrize(
    "text",
    [
        '{"it\'s": "x", "k\\"": "\\u00e9\\ud83d\\ude00", "l": 1}',
        '{"a": "b, \\"c\\": {", "d\\u00e9\\n": [1.5e+3, -0, true, null, {"x": []}], "e": "\\ud83d\\ude00", "f,": "}"}',
        '{"k": ["x", "y", "z: \\"q\\", "], "}": "]", "n": -1E-2}',
        "{}",
        '  { "a" : { "b" : false } } ',
    ],
)
def test_every_prefix_of_an_object_is_incomplete(text: str) -> None:
    body = text.strip()
    for i in range(1, len(body)):
        assert mend(body[:i], ANY).outcome == "incomplete", body[:i]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "null", " null "])
def test_nothing_at_all_counts_as_no_arguments(text: str) -> None:
    assert mend(text, ANY) == mend({}, ANY)
    got = mend(text, {**ANY, "required": ["a"]})
    assert (got.outcome, got.errors) == ("invalid", [("/a", "missing")])


def test_integers_stay_exact_and_strings_stay_strings() -> None:
    text = '{"n": 123456789012345678901234567890, "z": "0020", "m": -9007199254740993}'
    got = mend(text, object_of(n={"type": "integer"}, z={"type": "string"}, m={"type": "integer"}))
    assert got.value == {"n": 123456789012345678901234567890, "z": "0020", "m": -9007199254740993}
    assert not got.coerced
    assert mend('{"n": "123456789012345678901234567890"}', object_of(n={"type": "integer"})).value == {
        "n": 123456789012345678901234567890
    }


def test_duplicate_keys_are_told_and_a_liberty_if_they_differ() -> None:
    differ = mend('{"a": 1, "a": 2}', ANY)
    assert (differ.value, differ.repaired) == ({"a": 2}, True)
    same = mend('{"a": 1, "a": 1}', ANY)
    assert (same.value, same.repaired) == ({"a": 1}, False)
    loose = mend("{'a': 1, 'a': 2}", ANY)
    assert all("duplicate key 'a'" in " ".join(one.notes) for one in (differ, same, loose))


# --- coercion -----------------------------------------------------------------------------------------------------


COERCED: list[tuple[Any, Any, Any]] = [
    (INT, "5", 5),
    (INT, "-0", 0),
    (NUM, "1e3", 1000.0),
    (NUM, "5", 5),
    (NUM, "-2.50", -2.5),
    (BOOL, "true", True),
    (BOOL, "False", False),
    ({"type": ["integer", "null"]}, "null", None),
    ({"type": ["integer", "null"]}, "7", 7),
    ({"anyOf": [INT, {"type": "null"}]}, "7", 7),
    ({"anyOf": [INT, NUM]}, "7", 7),
    ({"anyOf": [BOOL, INT]}, "7", 7),
    ({"oneOf": [BOOL, {"type": "array"}]}, "[1]", [1]),
    ({"allOf": [NUM, {"minimum": 3}]}, "7", 7),
    ({"type": "array", "items": INT}, '["1", 2]', [1, 2]),
    ({"type": "array", "prefixItems": [INT, BOOL], "items": NUM}, ["1", "true", "2.5"], [1, True, 2.5]),
    ({"type": "object", "additionalProperties": INT}, {"x": "1"}, {"x": 1}),
    ({"type": "object", "properties": {"y": INT}}, '{"y": "2"}', {"y": 2}),
    ({"enum": ["low", "high"]}, " High ", "high"),
    ({"enum": [1, 2, 3]}, "2", 2),
    ({"const": "Go"}, "go", "Go"),
    ({"type": "string", "enum": ["a", "b"]}, "A", "a"),
    ({"$ref": "#/$defs/N"}, "4", 4),
    ({"type": "array", "items": {"$ref": "#/$defs/Tree"}}, [{"v": "1", "kids": [{"v": "2"}]}], None),
]


@pytest.mark.parametrize(("schema", "value", "wanted"), COERCED)
def test_a_field_that_fails_is_converted_where_exactly_one_reading_fits(schema: Any, value: Any, wanted: Any) -> None:
    tree = {"type": "object", "properties": {"v": INT, "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    whole = {**object_of(x=schema, keep=STR), "$defs": {"N": INT, "Tree": tree}}
    got = mend({"x": value, "keep": "5"}, whole)
    if wanted is None and isinstance(value, list):
        wanted = [{"v": 1, "kids": [{"v": 2}]}]
    assert (got.outcome, got.value) == ("ok", {"x": wanted, "keep": "5"}), got
    assert repr(got.value["x"]) == repr(wanted)
    assert got.coerced
    assert all(pointer.startswith("/x") for pointer in got.coerced)
    assert mend(got.value, whole).coerced == []


REFUSED: list[tuple[Any, Any]] = [
    (INT, "5.5"),
    (INT, " 5"),
    (INT, "+5"),
    (INT, "05"),
    (INT, "0x5"),
    (INT, "5 days"),
    (INT, "five"),
    (INT, ""),
    (INT, "٥"),
    (INT, 5.5),
    (INT, True),
    (INT, "9" * 5000),
    (NUM, "NaN"),
    (NUM, "Infinity"),
    (NUM, "-1e999"),
    (NUM, "1,5"),
    (NUM, False),
    (BOOL, "yes"),
    (BOOL, 1),
    (BOOL, "1"),
    (STR, 5),
    (STR, None),
    (STR, ["a"]),
    ({"type": "array"}, "a, b"),
    ({"type": "array"}, "[1, 2"),
    ({"type": "array", "items": INT}, 5),
    ({"type": "object"}, "[1]"),
    ({"enum": ["a", "A"]}, " A x"),
    ({"enum": ["json", "JSON"]}, "Json"),
    ({"anyOf": [{"enum": ["a"]}, {"enum": ["A"]}]}, " a\n".upper() + "?"),
    ({"oneOf": [{"enum": ["Ab"]}, {"enum": ["aB"]}]}, "ab"),
    ({"type": "integer", "maximum": 3}, "5"),
    (False, "anything"),
]


@pytest.mark.parametrize(("schema", "value"), REFUSED)
def test_what_is_no_exact_reading_stays_as_it_came_and_is_invalid(schema: Any, value: Any) -> None:
    whole = {**object_of(x=schema), "required": ["x"]}
    got = mend({"x": value}, whole)
    assert got.outcome == "invalid", got
    assert got.errors[0][0].startswith("/x")
    if not (isinstance(value, str) and value == "5"):
        assert got.value == {"x": value}


def test_a_null_is_dropped_only_where_the_parameter_is_optional_and_null_is_wrong() -> None:
    schema = {**object_of(a=STR, b={"type": ["string", "null"]}, c=STR), "required": ["c"]}
    assert mend({"a": None, "b": None, "c": "x"}, schema).value == {"b": None, "c": "x"}
    inner = {**object_of(c=STR, o=object_of(c=STR)), "required": ["c"]}
    assert mend({"c": "x", "o": {"c": None}}, inner).value == {"c": "x", "o": {}}
    assert mend({"c": None}, schema).errors == [("/c", "expected string, got null")]


def test_what_was_given_is_not_changed() -> None:
    given = {"x": {"n": "1"}, "l": ["2"], "o": None}
    schema = object_of(x=object_of(n=INT), l={"type": "array", "items": INT}, o=STR)
    assert mend(given, schema).value == {"x": {"n": 1}, "l": [2]}
    assert given == {"x": {"n": "1"}, "l": ["2"], "o": None}


# --- schemas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (object_of(x={"$ref": "#/$defs/none"}), "leads nowhere"),
        (
            {**object_of(x={"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
            "loops",
        ),
        ({"allOf": [{"$ref": "#"}], **object_of()}, "loops"),
        (object_of(x={"$ref": "https://example.com/schema.json"}), "leaves the document"),
        (object_of(x={"$ref": "file:///etc/passwd"}), "leaves the document"),
        ({**object_of(x={"$ref": "other.json"}), "$id": "https://example.com/"}, "leaves the document"),
        ({**object_of(), "$schema": "https://example.com/meta"}, "no known dialect"),
    ],
)
def test_a_reference_that_leads_nowhere_constrains_nothing_and_is_noted(schema: Any, word: str) -> None:
    got = mend('{"x": 7}', schema)
    assert (got.outcome, got.value) == ("ok", {"x": 7})
    assert any(word in note for note in got.notes), got.notes


def test_a_schema_may_refer_to_itself_by_its_own_name() -> None:
    name = "https://example.com/order"
    schema = {**object_of(n={"$ref": f"{name}#/$defs/N"}, sub={"$ref": name}), "$id": name, "$defs": {"N": INT}}
    got = mend({"n": "1", "sub": {"n": "2"}}, schema)
    assert (got.value, got.notes) == ({"n": 1, "sub": {"n": 2}}, [])


def test_words_of_another_draft_say_nothing() -> None:
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["a"]}
    inner = {"type": "array", "prefixItems": [{"minLength": 2.5}, INT], "minItems": 3}
    got = mend({"l": ["x", "1"], "n": "1"}, {**old, **object_of(l=inner, n=INT)})
    assert [pointer for pointer, _ in got.errors] == ["/a", "/l"]
    assert got.coerced == ["/n"]


def test_properties_may_be_called_like_keywords() -> None:
    names = {"$ref": STR, "$id": STR, "default": {"$ref": "#/$defs/N"}, "enum": INT, "properties": INT, "title": STR}
    schema = {**object_of(**names), "$defs": {"N": INT}, "additionalProperties": False}
    got = mend({"$ref": "a", "$id": "b", "default": "1", "enum": "2", "properties": "3", "title": "t"}, schema)
    assert got.value == {"$ref": "a", "$id": "b", "default": 1, "enum": 2, "properties": 3, "title": "t"}


def test_pointers_of_odd_names_work_in_the_schema_and_in_the_answer() -> None:
    names = ["a/b", "c~d", "e f", "100%", 'q"', "ü", "#", "?x", "{y}", ""]
    got = mend(dict.fromkeys(names, "1"), object_of(**dict.fromkeys(names, INT)))
    assert got.value == dict.fromkeys(names, 1)
    assert got.coerced[:2] == ["/a~1b", "/c~0d"]


@pytest.mark.parametrize(
    "schema", [[], "object", {"type": "no such type"}, {"pattern": "("}, {"minimum": "x"}, {1: 2}, {"properties": []}]
)
def test_what_is_no_schema_is_an_error_of_the_caller(schema: Any) -> None:
    with pytest.raises(ConfigError, match=r"^schema: "):
        compile_schema(schema)


def test_an_error_in_a_schema_says_where() -> None:
    with pytest.raises(ConfigError, match=r"^schema: /properties/a~1b/minLength: "):
        compile_schema(object_of(**{"a/b": {"minLength": -1}}))


def test_odd_parts_of_a_schema_do_not_disturb_the_errors() -> None:
    schema = object_of(a={"anyOf": [True, {"type": "integer"}], "type": "integer"}, b={"allOf": [False]})
    got = mend({"a": "x", "b": 1}, schema)
    assert [pointer for pointer, _ in got.errors] == ["/a", "/b"]


def test_a_schema_has_limits() -> None:
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"properties": {"a": deep}}
    with pytest.raises(ConfigError, match="MAX_SCHEMA_DEPTH"):
        compile_schema(deep)
    with pytest.raises(ConfigError, match="MAX_NODES"):
        compile_schema({"properties": {str(i): {} for i in range(60_000)}})


# --- limits -------------------------------------------------------------------------------------------------------


def nested(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize("levels", [200, 3_000, 100_000])
def test_depth_is_limited_by_name_and_never_a_recursion_error(levels: int) -> None:
    for text in (nested(levels), nested(levels).replace('"', "'"), nested(levels) + " and so on"):
        got = mend(text, ANY)
        assert got.outcome == "malformed"
        assert "MAX_DEPTH" in got.errors[0][1] or "nested deeper" in got.errors[0][1]
    for text in (nested(levels)[: levels + 5], nested(levels)[:-1], "{'a':" + "[" * levels):
        assert mend(text, ANY).outcome == "incomplete"
    assert mend(json.dumps(nested(levels)), ANY).outcome == "malformed"
    value: Any = []
    for _ in range(levels):
        value = [value]
    assert mend({"a": value}, ANY).outcome == "malformed"
    assert mend({"a": nested(levels)[5:-1]}, object_of(a={"type": "array"})).outcome == "invalid"
    while value:  # unwound by hand: freeing it at once is not what is tested
        value = value.pop()


def test_values_that_are_no_json_are_refused_where_they_stand() -> None:
    for odd in (math.nan, math.inf, {1}, b"x", object(), "\ud800", 1j):
        got = mend({"a": [odd]}, {})
        assert (got.outcome, got.errors[0][0]) == ("invalid", "/a/0")
    assert mend({1: 2}, {}).outcome == "invalid"
    assert mend('{"a": "\\ud800"}', {}).errors == [("/a", "holds half of a surrogate pair, which is no text")]


@pytest.mark.parametrize(
    "schema", [{}, object_of(a=STR), object_of(a={"enum": ["x"]}), {"propertyNames": {"maxLength": 2}}]
)
@pytest.mark.parametrize("form", ["raw", "escaped", "value", "loose"])
@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"\udfff": 1}, {"a": ["x", {"b": "\ud83d"}]}])
def test_half_characters_are_never_let_through(schema: Any, form: str, value: Any) -> None:
    forms = {
        "raw": json.dumps(value, ensure_ascii=False),
        "escaped": json.dumps(value),
        "value": value,
        "loose": json.dumps(value, ensure_ascii=False)[:-1] + ",}",
    }
    assert mend(forms[form], schema).outcome == "invalid"
    assert mend(json.dumps({"a": "😀"}), {}).value == {"a": "😀"}


def test_subclasses_of_json_types_are_taken_as_what_they_are() -> None:
    class Word(str):
        __slots__ = ()

    value = {"a": OrderedDict(b=Word("x")), "c": (1, 2), "d": Rank.LOW}
    got = mend(value, object_of(a={"type": "object"}, c={"type": "array", "items": INT}, d=INT))
    assert (got.outcome, got.value) == ("ok", value)


def test_a_megabyte_costs_linear_time() -> None:
    row = '{"id": "%d", "text": "a \\"quoted\\" word, and more", "n": [1, 2.5, null, true]},'

    def seconds(rows: int, loose: bool) -> float:
        body = "".join(row % i for i in range(rows))
        text = '{"rows": [' + (body if loose else body[:-1]) + "]}"
        schema = compile_schema(object_of(rows={"type": "array", "items": object_of(id=INT)}))
        start = time.process_time()
        assert mend(text, schema).outcome == "ok"
        return time.process_time() - start

    for loose in (False, True):
        small, large = (min(seconds(n, loose) for _ in range(2)) for n in (2_000, 8_000))
        assert large < 4 * small * 2, (loose, small, large)


def test_a_bomb_of_alternatives_gives_up_in_time() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"t": {"$ref": "#/$defs/T"}},
        "$defs": {
            "T": {
                "anyOf": [
                    {"type": "object", "required": [c], "properties": {"k": {"$ref": "#/$defs/T"}}} for c in "abc"
                ]
            }
        },
    }
    value: dict[str, Any] = {"z": 1}
    for _ in range(60):
        value = {"k": value}
    start = time.process_time()
    assert mend({"t": value}, schema).outcome == "invalid"
    assert time.process_time() - start < 5
    bomb = object_of(s={"type": "string", "pattern": "^(a+)+$"})
    start = time.process_time()
    assert mend({"s": "a" * 5000 + "!"}, bomb).outcome == "invalid"
    assert time.process_time() - start < 5
