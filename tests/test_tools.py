"""Tools, toolboxes, injected parameters and names."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from callgate import Agent, Inject, Principal, Replay, Tool, Toolbox, ToolContext, mend, tool
from callgate.errors import ToolError
from callgate.tools import as_toolbox, resolve_name
from callgate.types import ToolSpec


@tool(effect="read", group="mail")
def read_mail(id: str) -> str:
    """Reads one message."""
    return id


@tool(group="mail", permission="mail.send", confirm=True, timeout=5, rate="5/min", lookup=str)
def send_mail(id: str) -> str:
    """Sends one message."""
    return id


@tool
def now() -> str:
    """The time."""
    return "12:00"


# --- tools --------------------------------------------------------------------------------------------------------


def test_tools_that_declare_no_effect_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    def tick() -> str:
        "Ticks."
        return "tock"

    def tock() -> str:
        "Tocks."
        return "tick"

    described = {"type": "function", "function": {"name": "elsewhere", "parameters": {"type": "object"}}}
    with caplog.at_level(logging.WARNING, logger="callgate.tools"):
        Agent(
            Replay([]),
            tools=[tick, tock, read_mail, described, Tool.from_function(tick, name="b").with_spec(effect="read")],
        )
        Agent(Replay([]), tools=[tick]).run_sync("?")
        Agent(Replay([]), tools=[tick, tock])
    (record,) = caplog.records
    assert record.getMessage().startswith("tick, tock: no effect declared, so taken for a write:")


def test_a_tool_that_says_nothing_is_a_write() -> None:
    assert now.spec.effect == "write"
    assert read_mail.spec.effect == "read"


def test_what_is_declared_is_in_the_spec() -> None:
    spec = send_mail.spec
    declared = (spec.group, spec.permission, spec.confirm, spec.timeout, spec.rate, spec.has_lookup)
    assert declared == ("mail", "mail.send", True, 5, "5/min", True)


def test_the_kind_is_known_before_it_is_called() -> None:
    async def a() -> None: ...

    def g() -> Iterator[int]:
        yield 1

    async def ag() -> AsyncIterator[int]:
        yield 1

    class Slow:
        async def __call__(self) -> None: ...

    kinds = [Tool.from_function(f, name="t").kind for f in (lambda: 1, a, g, ag, Slow())]
    assert kinds == ["sync", "async", "generator", "async_generator", "async"]
    assert [Tool.from_function(f, name="t").is_async for f in (a, g, ag)] == [True, False, True]


def test_calling_a_tool_calls_its_function() -> None:
    assert read_mail("7") == "7"
    assert now() == "12:00"


def test_a_raw_schema_is_taken_as_it_is_and_closed_at_the_gate() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    raw = Tool.from_schema("raw", "Raw.", schema, lambda **k: k)
    assert raw.spec.parameters == schema
    assert raw.prepare({"a": 1})() == {"a": 1}
    assert mend({"a": 1, "b": 2}, schema).ok
    assert mend({"a": 1, "b": 2}, raw.compiled).errors == [("/b", "unknown argument; known: a")]
    for extra in (
        {"additionalProperties": True},
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^b": {}}},
    ):
        assert mend({"a": 1, "b": 2}, Tool.from_schema("raw", "", {**schema, **extra}).compiled).ok
    assert mend({"b": 1}, Tool.from_schema("raw", "", schema, strict=False).compiled).ok


def test_unknown_arguments_are_known_through_references_and_combiners() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {}}}],
        "anyOf": [{"properties": {"c": {}}}, {"required": ["a"]}],
        "if": {"properties": {"a": {"const": 1}}},
        "then": {"properties": {"d": {}}},
        "$defs": {"A": {"properties": {"a": {}}}},
    }
    compiled = Tool.from_schema("t", "", schema).compiled
    assert mend({"a": 1, "b": 1, "c": 1, "d": 1}, compiled).ok
    assert mend({"a": 1, "e": 1}, compiled).errors[0][0] == "/e"


@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": "string"}, {"enum": [1]}])
def test_a_schema_that_admits_no_object_is_no_tool(schema: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="admits no object"):
        Tool.from_schema("t", "", schema)


def test_a_json_description_can_be_read_but_not_run() -> None:
    inner = {
        "name": "f",
        "description": "F.",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
    }
    forms = [inner, {"type": "function", "function": inner}, {"name": "f", "inputSchema": inner["parameters"]}]
    for form in forms:
        (made,) = as_toolbox([form])
        assert (made.name, made.function) == ("f", None)
        assert mend('{"x": "1"}', made.compiled).value == {"x": 1}
        with pytest.raises(ToolError, match="only a description"):
            made.prepare({"x": 1})
    for odd in ({}, {"name": 1}, {"name": "f", "parameters": "x"}, 7, "f"):
        with pytest.raises(ToolError):
            as_toolbox([odd])  # type: ignore[list-item]
        with pytest.raises(ToolError):
            as_toolbox(odd)  # type: ignore[arg-type]


def test_one_tool_is_a_toolbox_of_one_and_none_is_an_empty_one() -> None:
    for form in (now, now.function, now.spec, {"name": "now"}):
        assert as_toolbox(form).specs == as_toolbox([form]).specs
    assert as_toolbox(None).specs == ()


# --- injection ----------------------------------------------------------------------------------------------------


def test_injected_parameters_are_not_in_the_schema_and_a_model_that_supplies_one_is_refused() -> None:
    def f(
        q: str,
        context: ToolContext,
        who: Inject[Principal | None],
        run_id: Inject[str],
        log: Inject[logging.Logger],
        db: Inject[dict[str, int]],
        late: Annotated[Inject[int], "extra"] = 7,
        maybe: ToolContext | None = None,
    ) -> Any:
        return q, context, who, run_id, log, db, late, maybe

    made = Tool.from_function(f)
    assert list(made.spec.parameters["properties"]) == ["q"]
    context = ToolContext(principal=Principal("u"), run_id="r1", deps={"a": 1})
    assert made.prepare({"q": "x"}, context)() == (
        "x",
        context,
        Principal("u"),
        "r1",
        context.logger,
        {"a": 1},
        7,
        context,
    )
    for name in inspect.signature(f).parameters:
        if name != "q":
            assert mend({"q": "x", name: {}}, made.compiled).errors == [(f"/{name}", "unknown argument; known: q")]
    with pytest.raises(LookupError, match="'db'"):
        made.prepare({"q": "x"}, ToolContext())


def test_a_raw_tool_may_ask_for_its_context() -> None:
    def f(context: ToolContext, **arguments: Any) -> Any:
        return context.call_id, arguments

    raw = Tool.from_schema("raw", "", {"properties": {"a": {}}}, f)
    assert raw.prepare({"a": 1}, ToolContext(call_id="c1"))() == ("c1", {"a": 1})


def test_a_lookup_takes_what_it_names() -> None:
    def found(id: str, context: ToolContext) -> Any:
        return id, context.idempotency_key

    @tool(lookup=found)
    def send(id: str, text: str) -> None:
        """Sends."""

    assert send.prepare_lookup({"id": "7", "text": "x"}, ToolContext(idempotency_key="k"))() == ("7", "k")


# --- toolboxes ----------------------------------------------------------------------------------------------------


def test_a_toolbox_keeps_order_and_refuses_two_tools_of_one_name() -> None:
    box = as_toolbox([send_mail, Toolbox([read_mail]), now.function, {"name": "raw"}])
    assert box.names == ("send_mail", "read_mail", "now", "raw")
    assert [spec.name for spec in box.specs] == list(box.names)
    assert box.get("now") is not None
    assert box.get("none") is None
    assert Toolbox([read_mail, read_mail]).names == ("read_mail",)
    with pytest.raises(ToolError, match="two tools are called 'now'"):
        Toolbox([now, {"name": "now"}])


def test_toolboxes_narrow_join_and_rename() -> None:
    box = Toolbox([read_mail, send_mail, now])
    assert box.only("*_mail").names == ("read_mail", "send_mail")
    assert box.without("send_*").names == ("read_mail", "now")
    assert box.filter(lambda spec: spec.effect == "read").names == ("read_mail",)
    assert {name: inner.names for name, inner in box.groups.items()} == {
        "mail": ("read_mail", "send_mail"),
        "": ("now",),
    }
    joined = box.prefixed("a_") + box.prefixed("b_") + [now]
    assert len(joined) == 7
    assert joined["a_now"].prepare({})() == "12:00"
    assert box.grouped("g").specs[2].group == "g"
    with pytest.raises(ToolError, match="no tool is called 'nothing'"):
        box.only("nothing")


def test_a_thousand_tools_are_found_by_name() -> None:
    box = Toolbox([Tool.from_schema(f"t{i}", "", {"properties": {"a": {}}}) for i in range(1000)])
    assert len(box) == 1000
    assert box["t999"].name == "t999"


# --- names --------------------------------------------------------------------------------------------------------

SPECS = (
    ToolSpec("get_weather", effect="read"),
    ToolSpec("send_email"),
    ToolSpec("list_files", effect="read"),
    ToolSpec("listFiles2", effect="read"),
    ToolSpec("a_b", effect="read"),
    ToolSpec("ab", effect="read"),
)


@pytest.mark.parametrize(
    "name",
    ["getWeather", "get-weather", "GET_WEATHER", "functions.get_weather", "functions.getWeather",
     "default_api:get_weather", "tools/get_weather", "get weather", "mcp__get_weather"],
)  # fmt: skip
def test_a_read_is_found_after_case_separators_and_a_known_prefix(name: str) -> None:
    assert resolve_name(name, SPECS) == (SPECS[0], True, ())


@pytest.mark.parametrize("name", ["send_emial", "sendEmail", "functions.send_email", "Send_Email", "email_send"])
def test_a_write_is_found_by_its_exact_name_only(name: str) -> None:
    found, renamed, hint = resolve_name(name, SPECS)
    assert (found, renamed) == (None, False)
    assert name == "email_send" or "send_email" in hint


@pytest.mark.parametrize(
    "name", ["get_wether", "weather", "get_weather2", "foo.get_weather", "A-B", "", "." * 9, "x" * 9999]
)
def test_nothing_is_ever_found_by_similarity_or_among_several(name: str) -> None:
    found, renamed, hint = resolve_name(name, SPECS)
    assert (found, renamed) == (None, False)
    assert len(hint) <= 3


def test_an_exact_name_wins_over_everything_else() -> None:
    for spec in SPECS:
        assert resolve_name(spec.name, SPECS) == (spec, False, ())


def test_what_is_hidden_is_no_hint() -> None:
    assert resolve_name("sekret", (ToolSpec("secret", hidden=True),))[2] == ()
