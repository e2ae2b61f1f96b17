"""The model cannot choose who it is: no signature puts a principal, a context or a logger into a schema."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import logging
import random
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, NewType, Optional, TypeVar, Union

import pydantic
import pytest
from typing_extensions import TypeAliasType, TypedDict

from callgate import Agent, Inject, Principal, Replay, Tool, ToolContext, mend, tool
from callgate.errors import ToolError


class Member(Principal):
    """A principal of an application's own class."""


class Log(logging.Logger):
    pass


class OwnContext(ToolContext):
    pass


ME = Member("me")
CONTEXT = ToolContext(principal=ME, run_id="r", call_id="c", logger=Log("mine"))
IDENTITIES = (Principal, Member, ToolContext, logging.Logger, Log)
FORGED = {"id": "root", "grants": ["*"], "name": "root", "run_id": "x"}


def in_dataclass(kind: Any) -> Any:
    return dataclasses.make_dataclass("Box", [("inner", kind)])


def in_typed_dict(kind: Any) -> Any:
    return TypedDict("Box", {"inner": kind})  # type: ignore[operator]


def in_model(kind: Any) -> Any:
    config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    return pydantic.create_model("Box", __config__=config, inner=(kind, ...))


def in_named_tuple(kind: Any) -> Any:
    return NamedTuple("Box", [("inner", kind)])  # type: ignore[misc]


SAME: list[Callable[[Any], Any]] = [
    lambda kind: kind,
    lambda kind: Optional[kind],  # noqa: UP045 - the older spelling is what is tried
    lambda kind: kind | None if inspect.isclass(kind) else Union[None, kind],  # noqa: UP007
    lambda kind: Annotated[kind, "on whose behalf"],
    lambda kind: Annotated[kind, pydantic.Field(description="who")],
    lambda kind: Inject[kind],
    lambda kind: Union[kind, str],  # noqa: UP007
    lambda kind: NewType("Who", kind) if inspect.isclass(kind) else kind,
    lambda kind: TypeAliasType("Who", kind),
    lambda kind: TypeVar("Who", bound=kind) if inspect.isclass(kind) else kind,
]
"""The parameter is still the identity."""
INSIDE: list[Callable[[Any], Any]] = [
    lambda kind: list[kind],
    lambda kind: dict[str, kind],
    lambda kind: tuple[kind, ...],
    lambda kind: Optional[list[kind]],  # noqa: UP045
    in_dataclass,
    in_typed_dict,
    in_model,
    in_named_tuple,
    lambda kind: in_dataclass(list[in_model(kind)]),
]
"""The identity is a part of the value."""


def signature(rng: random.Random, annotation: Any) -> Callable[..., Any]:
    """A function with ordinary parameters and, somewhere among them, `who` of this annotation."""
    kind = inspect.Parameter
    where = rng.choice([kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD, kind.KEYWORD_ONLY])
    default = rng.choice([kind.empty, None])
    plain = [kind(name, kind.KEYWORD_ONLY, annotation=str, default="") for name in ("a", "z")]
    who = kind("who", where, annotation=annotation, default=default)

    def function(*args: Any, **named: Any) -> Any:
        return args[0] if args else named.get("who")

    parts = sorted([*plain, who], key=lambda p: p.kind)
    function.__signature__ = inspect.Signature(parts)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parts}
    return function


@pytest.mark.parametrize("seed", range(400))
def test_no_signature_lets_the_model_choose_who_it_is(seed: int) -> None:
    rng = random.Random(seed)
    identity: Any = rng.choice(IDENTITIES)
    annotation = identity
    for _ in range(rng.randrange(4)):
        annotation = rng.choice(SAME)(annotation)
    inside = rng.random() < 0.4
    if inside:
        annotation = rng.choice(INSIDE)(annotation)
        for _ in range(rng.randrange(2)):
            annotation = rng.choice([*SAME[:5], *SAME[7:]])(annotation)
    function = signature(rng, annotation)
    if inside:
        with pytest.raises(ToolError, match="who"):
            Tool.from_function(function, name="t")
        return
    made = Tool.from_function(function, name="t")
    assert set(made.spec.parameters["properties"]) == {"a", "z"}
    assert "inner" not in json.dumps(made.spec.parameters)
    assert mend({"a": "x", "who": FORGED}, made.compiled).outcome == "invalid"
    given = made.prepare({"a": "x"}, CONTEXT)()
    wanted: Any = CONTEXT if identity is ToolContext else ME if issubclass(identity, Principal) else CONTEXT.logger
    assert given is wanted


def test_a_principal_without_a_mark_is_the_runs_own() -> None:
    seen: list[Any] = []

    @tool
    def pay(amount: int, who: Principal, again: Principal = Principal("default", {"*"})) -> str:  # noqa: B008
        "Pays."
        seen.append((who, again))
        return "paid"

    forged = {"calls": [{"name": "pay", "arguments": {"amount": 1, "who": FORGED}}]}
    honest = {"calls": [{"name": "pay", "arguments": {"amount": 1}}]}
    result = Agent(Replay([forged, honest, "ok"]), [pay]).run_sync("go", principal=Principal("u"))
    assert [record.result.status for record in result.calls] == ["invalid_arguments", "ok"]
    assert seen == [(Principal("u"), Principal("u"))]


def test_a_run_without_a_principal_does_not_reach_a_tool_that_needs_one() -> None:
    @tool
    def needs(who: Principal) -> None:
        "Needs one."

    @tool
    def may(who: Principal | None) -> str:
        "Takes none as well."
        return repr(who)

    @tool
    def own(who: Principal = Principal("app")) -> str:  # noqa: B008
        "The application's own default."
        return who.id

    @tool
    def member(who: Member) -> str:
        "Only members."
        return who.id

    with pytest.raises(LookupError, match="'who': the run has no Principal"):
        needs.prepare({}, ToolContext())
    with pytest.raises(LookupError, match="'who': the run has no Member"):
        member.prepare({}, ToolContext(principal=Principal("u")))
    assert (may.prepare({}, ToolContext())(), own.prepare({}, ToolContext())()) == ("None", "app")


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (OwnContext, "the run has no OwnContext; annotate it as ToolContext"),
        (Principal | ToolContext, "Principal | ToolContext: only one of them"),
        (list[Principal], "Principal inside list.* would let the model choose it"),
        (type[Principal], "Principal inside"),
        ("Principal | Nowhere", "'Nowhere' cannot be found"),
    ],
)
def test_what_cannot_be_injected_is_an_error_when_the_tool_is_made(annotation: Any, words: str) -> None:
    def f(x: Any) -> None: ...

    f.__annotations__ = {"x": annotation}
    with pytest.raises(ToolError, match=words):
        Tool.from_function(f)
    with pytest.raises(ToolError, match=r"parameter 'x'"):
        Tool.from_schema("raw", "", {"properties": {"x": {}}}, f)


@pytest.mark.parametrize("form", ["*", "**"])
def test_identities_in_starred_parameters_are_refused(form: str) -> None:
    kind = inspect.Parameter.VAR_POSITIONAL if form == "*" else inspect.Parameter.VAR_KEYWORD

    def f(*args: Principal, **named: Principal) -> None: ...

    f.__signature__ = inspect.Signature([inspect.Parameter("x", kind, annotation=Principal)])  # type: ignore[attr-defined]
    with pytest.raises(ToolError, match="cannot be described"):
        Tool.from_function(f)


def test_a_raw_schema_cannot_offer_what_the_run_fills_in() -> None:
    def f(who: Principal, **rest: Any) -> Any:
        return who

    with pytest.raises(ToolError, match="the run fills in 'who', so its schema must not offer it"):
        Tool.from_schema("raw", "", {"properties": {"who": {"type": "object"}}}, f)
    raw = Tool.from_schema("raw", "", {"properties": {"a": {}}, "additionalProperties": True}, f)
    assert raw.prepare({"a": 1, "who": FORGED}, CONTEXT)() is ME


def test_a_default_alone_says_what_a_parameter_is() -> None:
    def f(a: str, who=Principal("app")):  # type: ignore[no-untyped-def]  # noqa: B008
        return who

    made = Tool.from_function(f)
    assert list(made.spec.parameters["properties"]) == ["a"]
    assert made.prepare({"a": ""}, CONTEXT)() is ME


def test_partials_and_methods_are_read_alike() -> None:
    class Service:
        @tool(effect="read")
        def find(self: Service, number: str, who: Principal) -> Any:
            "Finds."
            return self, number, who

        @tool(effect="read")
        def plain(self, number: str) -> Any:
            "Finds."
            return self, number

    service = Service()
    for made in (Service.find, Service.plain):
        assert list(made.spec.parameters["properties"]) == ["number"]
    assert service.find.prepare({"number": "7"}, CONTEXT)() == (service, "7", ME)
    assert service.plain.prepare({"number": "7"}, CONTEXT)() == (service, "7")

    def f(a: str, who: Principal) -> Any:
        return who

    assert list(Tool.from_function(functools.partial(f, "x")).spec.parameters["properties"]) == []


def test_self_of_a_plain_function_is_an_argument() -> None:
    def f(self: int) -> int:
        return self

    assert list(Tool.from_function(f).spec.parameters["properties"]) == ["self"]


def test_a_default_factory_is_called_for_each_call_and_never_shown() -> None:
    count = iter(range(100))

    @tool(effect="read")
    def stamp(at: int = pydantic.Field(default_factory=lambda: next(count))) -> int:
        "Stamps."
        return at

    assert "default" not in stamp.spec.parameters["properties"]["at"]
    assert "required" not in stamp.spec.parameters or "at" not in stamp.spec.parameters["required"]
    assert [stamp.prepare({})() for _ in range(3)] == [0, 1, 2]
