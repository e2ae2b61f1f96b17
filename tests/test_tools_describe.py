"""From a signature to a schema and back to Python values."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import typing
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, Required, Union

import pydantic
import pytest
from typing_extensions import Doc, TypedDict

from callgate import Tool, compile_schema, mend, tool
from callgate.errors import ToolError
from callgate.schema import strict_form


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Rank(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Filter(TypedDict, total=False):
    """Which rows."""

    limit: int


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Order:
    number: str
    lines: list[str] = dataclasses.field(default_factory=list)


class Node(pydantic.BaseModel):
    name: str
    kids: list[Node] = []


class Even(pydantic.BaseModel):
    value: int

    @pydantic.field_validator("value")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


ANNOTATIONS: list[tuple[Any, Any, Any]] = [
    (str, "a", "a"),
    (int, 5, 5),
    (float, 5, 5.0),
    (bool, True, True),
    (Any, {"x": [1]}, {"x": [1]}),
    (Optional[int], None, None),  # noqa: UP045 - the older spelling is what is tested
    (int | str, "5", "5"),
    (Union[int, None], 5, 5),  # noqa: UP007
    (Literal["a", 2], 2, 2),
    (Color, "red", Color.RED),
    (Rank, 2, Rank.HIGH),
    (list[int], [1, 2], [1, 2]),
    (Sequence[str], ["a"], ["a"]),
    (set[str], ["a"], {"a"}),
    (frozenset[int], [1], frozenset({1})),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Filter, {"limit": 3}, {"limit": 3}),
    (Point, [1, 2], Point(1, 2)),
    (Order, {"number": "7", "lines": ["a"]}, Order("7", ["a"])),
    (list[Order], [{"number": "7", "lines": []}], [Order("7")]),
    (Node, {"name": "a", "kids": [{"name": "b", "kids": []}]}, Node(name="a", kids=[Node(name="b")])),
    (dt.date, "2026-02-28", dt.date(2026, 2, 28)),
    (dt.datetime, "2026-02-28T10:00:00", dt.datetime(2026, 2, 28, 10)),
    (dt.time, "10:30", dt.time(10, 30)),
    (dt.timedelta, "PT5M", dt.timedelta(minutes=5)),
    (uuid.UUID, "12345678123456781234567812345678", uuid.UUID("12345678123456781234567812345678")),
    (Path, "a/b", Path("a/b")),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
    (bytes, "abc", b"abc"),
    (Annotated[int, pydantic.Field(ge=1, le=3)], 2, 2),
    (type(None), None, None),
]


@pytest.mark.parametrize(("annotation", "json_value", "python_value"), ANNOTATIONS, ids=lambda x: str(x)[:40])
def test_every_kind_of_annotation_goes_to_a_schema_and_back(
    annotation: Any, json_value: Any, python_value: Any
) -> None:
    def take(value):  # type: ignore[no-untyped-def]
        return value

    take.__annotations__ = {"value": annotation}
    made = Tool.from_function(take)
    got = mend(json.dumps({"value": json_value}), made.compiled)
    assert (got.outcome, got.value, got.coerced) == ("ok", {"value": json_value}, []), got
    value = made.prepare(got.value)()
    assert (value, type(value)) == (python_value, type(python_value))
    assert "title" not in json.dumps(made.spec.parameters)


def test_the_schema_is_closed_and_says_what_the_signature_says() -> None:
    @tool
    def find(
        city: str,
        days: Annotated[int, pydantic.Field(ge=1, description="From today on.")] = 3,
        *,
        unit: Literal["C", "F"] = "C",
        near: str | None = None,
        order: Order | None = None,
    ) -> dict[str, Any]:
        """Looks up the weather.

        Works for all cities.

        Args:
            city: Its name,
                in any language.
            days: not this
            near: A landmark.

        Returns:
            The weather.
        """
        return {}

    assert find.spec.description == "Looks up the weather.\n\nWorks for all cities."
    assert find.spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name, in any language."},
            "days": {"type": "integer", "minimum": 1, "description": "From today on.", "default": 3},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "near": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "A landmark."},
            "order": {"anyOf": [{"$ref": "#/$defs/Order"}, {"type": "null"}]},
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {
            "Order": {
                "type": "object",
                "properties": {
                    "number": {"type": "string"},
                    "lines": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["number"],
                "additionalProperties": False,
            }
        },
    }


STYLES = {
    "google": "Sum.\n\nArgs:\n    a (int): the first\n    b: the second",
    "numpy": "Sum.\n\nParameters\n----------\na : int\n    the first\nb : int\n    the second",
    "sphinx": "Sum.\n\n:param a: the first\n:param int b: the second",
    "epytext": "Sum.\n\n@param a: the first\n@param b: the second",
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES)
def test_docstrings_of_four_styles_describe_the_parameters(text: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = text
    made = Tool.from_function(add)
    assert made.spec.description == "Sum."
    assert [p["description"] for p in made.spec.parameters["properties"].values()] == ["the first", "the second"]


def test_annotated_texts_are_descriptions_and_win_over_the_docstring() -> None:
    def f(a: Annotated[str, "Its name."], b: Annotated[int, Doc("How many."), pydantic.Field(ge=1)], c: str) -> None:
        """Does.

        Args:
            a: not this
            c: The rest.
        """

    properties = Tool.from_function(f).spec.parameters["properties"]
    assert [part["description"] for part in properties.values()] == ["Its name.", "How many.", "The rest."]


class Service:
    def method(self, q: str) -> str:
        """Finds."""
        return f"m {q}"

    @classmethod
    def of_class(cls, q: str) -> str:
        return f"c {q}"

    @staticmethod
    def static(q: str) -> str:
        return f"s {q}"

    def __call__(self, q: str) -> str:
        """Called."""
        return f"o {q}"

    @tool(effect="read")
    def decorated(self, q: str) -> str:
        """Decorated."""
        return f"d {q}"


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (Service().method, "m x"),
        (Service.of_class, "c x"),
        (Service.static, "s x"),
        (Service(), "o x"),
        (Service().decorated, "d x"),
        (functools.partial(Service().method), "m x"),
        (lambda q: f"l {q}", "l x"),
    ],
)
def test_every_kind_of_callable_can_be_a_tool(function: Callable[..., Any], answer: str) -> None:
    made = function if isinstance(function, Tool) else Tool.from_function(function, name="t")
    assert list(made.spec.parameters["properties"]) == ["q"]
    assert made.prepare({"q": "x"})() == answer


def test_a_partial_has_what_is_left_and_keeps_its_defaults() -> None:
    def f(a: int, b: int, c: int = 3) -> int:
        return a + b + c

    made = Tool.from_function(functools.partial(f, b=2))
    assert made.spec.parameters["required"] == ["a"]
    assert made.prepare({"a": 1})() == 6


def test_parameters_by_position_and_pydantic_defaults_arrive() -> None:
    def f(
        a: int,
        b: int = 2,
        /,
        *,
        c: int = pydantic.Field(3, ge=1),
        d: list[int] = pydantic.Field(default_factory=list),  # noqa: B008
    ):  # type: ignore[no-untyped-def]
        return a, b, c, d

    made = Tool.from_function(f)
    assert made.prepare({"a": 1})() == (1, 2, 3, [])
    assert made.prepare({"a": 1, "c": 4})() == (1, 2, 4, [])
    assert mend({"a": 1, "c": 0}, made.compiled).errors[0][0] == "/c"


class Opaque:
    pass


def _bad(annotation: Any) -> Callable[..., Any]:
    def f(x):  # type: ignore[no-untyped-def]
        return x

    f.__annotations__ = {"x": annotation}
    return f


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda *a: a, r"\*a cannot be described"),
        (lambda **k: k, r"\*\*k cannot be described"),
        (_bad(Callable[[], int]), r"parameter 'x'.*Callable.* cannot be described as JSON; use str, int"),
        (_bad(Opaque), r"parameter 'x'.*Opaque cannot be described as JSON; use str, int.*Inject"),
        (_bad(list[Opaque] | None), r"parameter 'x'.*Opaque.* cannot be described as JSON; use str, int"),
        (_bad("Nowhere"), "annotation 'Nowhere' cannot be found"),
        (_bad("1 +"), "annotations cannot be read"),
        (int, "no signature"),
    ],
)
def test_what_cannot_be_described_is_an_error_when_the_tool_is_made(function: Any, words: str) -> None:
    with pytest.raises(ToolError, match=words) as caught:
        Tool.from_function(function, name="t")
    assert "\n" not in str(caught.value)
    assert "pydantic-core" not in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"name": "two words"}, "tool name"),
        ({"effect": "delete"}, "effect"),
        ({"rate": "often"}, "rate"),
        ({"timeout": 0}, "timeout"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_declaration_is_an_error_when_the_tool_is_made(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        Tool.from_function(lambda: None, **{"name": "t", **declared})


def test_what_the_types_refuse_beyond_the_schema_is_invalid_before_anything_runs() -> None:
    @tool
    def book(day: dt.date, even: Even, secret: pydantic.SecretStr | None = None) -> None:
        """Books."""

    got = mend({"day": "2026-02-30", "even": {"value": 3}}, book.compiled)
    assert got.outcome == "invalid"
    assert dict(got.errors).keys() == {"/day", "/even/value"}
    assert "must be even" in dict(got.errors)["/even/value"]
    hidden = mend({"day": "2026-02-03", "even": {"value": 2}, "secret": 12345}, book.compiled)
    assert [pointer for pointer, _ in hidden.errors] == ["/secret"]
    assert "12345" not in hidden.explain()
    with pytest.raises(ValueError, match="/day: "):
        book.prepare({"day": "tomorrow", "even": {"value": 2}})


def test_types_that_are_local_to_a_function_are_found() -> None:
    class Local(pydantic.BaseModel):
        z: int

    @tool
    def f(x: Local) -> int:
        """Takes."""
        return x.z

    assert f.prepare({"x": {"z": 4}})() == 4


# --- strict form --------------------------------------------------------------------------------------------------


def strict_errors(node: Any, top: bool = True) -> list[str]:
    """What OpenAI's documentation of structured outputs forbids."""
    errors: list[str] = []
    if top and (node.get("type") != "object" or "anyOf" in node):
        errors.append("the root must be an object")
    if not isinstance(node, dict):
        return [f"no schema: {node!r}"]
    allowed = {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "$ref",
        "$defs",
    }
    allowed |= {"description", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    allowed |= {"multipleOf", "minItems", "maxItems", "minLength", "maxLength"}
    errors += [f"keyword {key}" for key in node if key not in allowed]
    if "properties" in node or node.get("type") == "object":
        errors += [] if node.get("additionalProperties") is False else ["not closed"]
        errors += [] if node.get("required") == list(node.get("properties", {})) else ["not all required"]
    if "$ref" in node and len(node) > 1:
        errors.append("something beside $ref")
    if not ({"type", "enum", "const", "anyOf", "$ref"} & node.keys()):
        errors.append("no type")
    children = [*node.get("properties", {}).values(), *node.get("$defs", {}).values(), *node.get("anyOf", [])]
    for child in [*children, *([node["items"]] if "items" in node else [])]:
        errors += strict_errors(child, top=False)
    return errors


@pytest.mark.parametrize(("annotation", "json_value", "python_value"), ANNOTATIONS, ids=lambda x: str(x)[:40])
def test_the_strict_form_obeys_its_rules_and_means_the_same(
    annotation: Any, json_value: Any, python_value: Any
) -> None:
    def take(value, other=None):  # type: ignore[no-untyped-def]
        return value

    take.__annotations__ = {"value": annotation, "other": "int | None"}
    made = Tool.from_function(take)
    strict = strict_form(made.spec.parameters)
    if strict is None:
        assert annotation in (Any, dict[str, int], tuple[int, str], Point)
        return
    assert strict_errors(strict) == []
    assert compile_schema(strict).valid({"value": json_value, "other": None})
    assert mend({"value": json_value, "other": None}, made.compiled).ok


def test_optional_parameters_become_nullable_and_their_nulls_are_dropped() -> None:
    @tool
    def f(a: int, b: str = "x", c: Color = Color.RED, d: list[int] = [], e: Literal["p"] = "p") -> None:  # noqa: B006
        """Takes."""

    strict = strict_form(f.spec.parameters)
    assert strict is not None
    assert strict_errors(strict) == []
    full = {"a": 1, "b": None, "c": None, "d": None, "e": None}
    assert compile_schema(strict).valid(full)
    assert mend(full, f.compiled).value == {"a": 1}


class Line(typing.TypedDict):
    item: str
    count: NotRequired[int]


class Parcel(typing.TypedDict, total=False):
    lines: Required[list[Line]]
    note: Annotated[str | None, pydantic.Field(description="what to say")]


def test_the_typed_dicts_of_the_standard_library_are_described_on_every_python() -> None:
    def send(order: Parcel, by: dict[str, Line] | None = None) -> object:
        """Sends."""
        return order, by

    made = Tool.from_function(send)
    given = {"order": {"lines": [{"item": "egg"}]}, "by": {"x": {"item": "a", "count": 2}}}
    assert made.prepare(given)() == (given["order"], given["by"])
    assert mend(given, made.compiled).ok
    assert mend({"order": {"lines": [{"count": 1}]}}, made.compiled).errors == [("/order/lines/0/item", "missing")]
    assert mend({"order": {}}, made.compiled).errors == [("/order/lines", "missing")]
    assert "what to say" in json.dumps(made.spec.parameters)


def test_a_validators_complaint_quotes_plain_values_and_never_secret_ones() -> None:
    def refuse(value: Any) -> Any:
        raise ValueError("no")

    @tool
    def login(
        user: Annotated[str, pydantic.AfterValidator(refuse)],
        password: Annotated[pydantic.SecretStr, pydantic.AfterValidator(refuse)],
    ) -> None:
        """Logs in."""

    errors = dict(mend({"user": "ann-smith", "password": "hunter2hunter"}, login.compiled).errors)
    assert "ann-smith" in errors["/user"]
    assert "hunter2" not in errors["/password"]
