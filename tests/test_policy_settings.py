"""Rules that can never apply are errors when the agent is made, and so is every setting of the wrong shape."""

from __future__ import annotations

import contextlib
import random
import string
from typing import Any, Literal

import pydantic
import pytest

from callgate import Agent, Principal, Replay, Tool, policy, tool
from callgate.errors import ConfigError
from callgate.policy import JudgeContext, approval, arguments, budget, permission, rate, repetition
from callgate.types import Allow, Deny, ToolCall, ToolSpec


class Address(pydantic.BaseModel):
    street: str
    number: int | None = None


@tool(effect="write")
def transfer(amount: int, to: list[Address], mode: Literal["fast", "slow"] = "slow", note: str | None = None) -> str:
    "Transfers money."
    return "done"


@tool(effect="read")
def read_file(path: str, limit: float = 1.0) -> str:
    "Reads."
    return ""


@tool(effect="read")
def anything(filters: dict[str, int]) -> str:
    "Takes a free table."
    return ""


OPEN = Tool.from_schema("open", "Open.", {"properties": {"a": {}}, "additionalProperties": True}, lambda **k: "")
TOOLS = [transfer, read_file, anything, OPEN]
NAMES = [t.name for t in TOOLS]
CONDITIONS: dict[str, dict[str, Any]] = {
    "transfer.amount": {"max": 5},
    "transfer.to.street": {"matches": "[a-z]+"},
    "transfer.to.number": {"min": 1},
    "transfer.mode": {"one_of": ["fast"]},
    "transfer.note": {"matches": ".*"},
    "read_file.path": {"inside": "/srv"},
    "read_file.limit": {"min": 0, "max": 1.5},
}


def made(settings: dict[str, Any], tools: Any = TOOLS) -> Agent:
    return Agent(Replay(["ok"]), tools, policy=settings)


def slip(word: str, rng: random.Random) -> str:
    """The word with one letter dropped, doubled, changed or moved."""
    at = rng.randrange(len(word))
    letter = rng.choice([c for c in string.ascii_lowercase if c != word[at]])
    swapped = word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :]
    return rng.choice([word[:at] + word[at + 1 :], word[:at] + letter + word[at + 1 :], word + letter, swapped])


def with_name(kind: str, name: str) -> dict[str, Any]:
    return {
        "approval": {"approval": {"tools": [name]}},
        "rate": {"rate": {name: "5/min"}},
        "budget": {"budget": {"per_tool": {name: 3}}},
        "permission": {"permission": {"needs": {name: "admin"}}},
        "arguments": {"arguments": {name: {"amount": {"max": 5}}}},
    }[kind]


@pytest.mark.parametrize("seed", range(200))
def test_a_name_with_a_slip_in_it_never_passes(seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice(["approval", "rate", "budget", "permission", "arguments"])
    right = "transfer" if kind == "arguments" else rng.choice(NAMES)
    made(with_name(kind, right))
    wrong = slip(right, rng)
    if wrong not in NAMES and wrong:
        with pytest.raises(ConfigError, match=f"no tool is called '{wrong}'"):
            made(with_name(kind, wrong))
    place, condition = rng.choice(list(CONDITIONS.items()))
    name, _, path = place.partition(".")
    made({"arguments": {name: {path: condition}}})
    parts = path.split(".")
    at = rng.randrange(len(parts))
    parts[at] = slip(parts[at], rng)
    if ".".join(parts) != path and all(parts):
        with pytest.raises(ConfigError, match=f"{name} has no argument"):
            made({"arguments": {name: {".".join(parts): condition}}})
        with pytest.raises(ConfigError, match="has no argument"):
            made({"arguments": {name[:4] + "*": {".".join(parts): condition}}})


def test_the_message_names_the_place_and_what_may_have_been_meant() -> None:
    with pytest.raises(ConfigError) as caught:
        made({"approval": {"tools": ["trnsfer"]}})
    assert str(caught.value).startswith("policy.approval.tools: no tool is called 'trnsfer' (did you mean 'transfer'?)")
    with pytest.raises(ConfigError) as caught:
        made({"arguments": {"transfer": {"amout": {"max": 5}}}})
    assert str(caught.value) == (
        "policy.arguments.transfer.amout: transfer has no argument 'amout' (did you mean 'amount'?)"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"rate": {"search_*": "5/min"}},
        {"approval": {"tools": ["[x]fer"]}},
        {"approval": {"tools": ["read_result"]}},
        {"arguments": {"open": {"b.c": {"max": 5}}}},
        {"arguments": {"anything": {"filters.whatever": {"max": 5}}}},
        {"arguments": {"*": {"path": {"inside": "/srv"}}}},
        {"arguments": {"none_*": {"path": {"inside": "/srv"}}}},
    ],
)
def test_patterns_open_schemas_and_tools_of_the_run_are_no_errors(settings: dict[str, Any]) -> None:
    made(settings)


def test_without_tools_nothing_is_compared() -> None:
    made({"rate": {"search": "5/min"}}, tools=[])


@pytest.mark.parametrize(
    ("place", "condition", "words"),
    [
        ("transfer.amount", {"max": "5"}, "max: a number is needed, not '5'"),
        ("transfer.amount", {"min": True}, "min: a number"),
        ("transfer.amount", {"min": float("nan")}, "min: a number"),
        ("transfer.amount", {"min": 5, "max": 1}, "min: 5 is more than max: 1"),
        ("transfer.amount", {"matches": "5"}, "is about string, but transfer.amount is integer"),
        ("transfer.amount", {"one_of": ["5"]}, "is about string, but transfer.amount is integer"),
        ("transfer.to.street", {"max": 5}, "is about integer or number, but transfer.to.street is string"),
        ("transfer.mode", {"one_of": ["fast", 3]}, "is about integer or string, but transfer.mode is string"),
        ("transfer.amount", {"max": 5, "matches": "x"}, "the condition is about"),
        ("read_file.path", {"inside": "//srv"}, "inside: a folder, written out, is needed"),
        ("read_file.path", {"inside": "~/x"}, "inside: a folder"),
        ("read_file.path", {"inside": ""}, "inside: a folder"),
        ("read_file.path", {"inside": 7}, "inside: a folder"),
        ("read_file.path", {"matches": "("}, "matches"),
        ("read_file.path", {"matches": "(a+)+"}, "repeats a repetition"),
        ("read_file.path", {"matches": 7}, "matches: a regular expression is needed"),
        ("read_file.path", {"hosts": ["a", 7]}, "hosts: a list of names"),
        ("read_file.path", {"hosts": "a.b"}, "hosts: a list of names"),
        ("read_file.path", {"one_of": "abc"}, "one_of: a list is needed"),
    ],
)
def test_a_condition_that_no_value_can_meet_fails_when_made(place: str, condition: Any, words: str) -> None:
    name, _, path = place.partition(".")
    with pytest.raises(ConfigError, match=f"policy.arguments.{place}: .*{words}"):
        made({"arguments": {name: {path: condition}}})


ODD: list[Any] = [
    None,
    3,
    True,
    "text",
    [1],
    [None],
    ["a", 3],
    [["a"]],
    {1: 2},
    {"a": None},
    {"a": [1]},
    object(),
    b"x",
]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: type(value).__name__)
def test_odd_shapes_are_configuration_errors_whatever_they_are(odd: Any) -> None:
    """Accepted or ConfigError; never a bare TypeError, ValueError or AttributeError."""
    sections: list[dict[str, Any]] = [
        {name: shape}
        for name in policy.names()
        for shape in (odd, *({key: odd} for key in ("tools", "writes", "needs", "per_tool", "prices", "warn", "turns")))
    ]
    sections += [{"arguments": {"transfer": odd}}, {"arguments": {"transfer": {"amount": odd}}}]
    sections += [{"arguments": {"transfer": {"amount": {kind: odd}}}} for kind in arguments._KINDS]
    rules: list[Any] = [odd, *sections]
    makers: list[Any] = [approval.Rule, permission.Rule, rate.Rule, budget.Rule, repetition.Rule, arguments.Rule]
    for settings in rules:
        with contextlib.suppress(ConfigError):
            made(settings)
    for maker in makers:
        with contextlib.suppress(ConfigError):
            maker(odd)


def test_lists_of_names_hold_nothing_but_names() -> None:
    for wrong in (["mail", 3], [None], [["mail"]], "mail"):
        with pytest.raises(ConfigError, match=r"policy.approval.tools: a list of names"):
            policy.load({"approval": {"tools": wrong}})


def test_a_network_path_is_outside_even_if_its_text_lies_inside() -> None:
    rule = arguments.Rule({"read_file": {"path": arguments.inside("/srv")}})
    for path, allowed in (("//srv/data", False), ("\\\\srv\\data", False), ("/srv/data", True)):
        verdict = rule.judge(ToolCall("c", "read_file", {"path": path}), ToolSpec("read_file"), JudgeContext())
        assert isinstance(verdict, Allow if allowed else Deny), path


def test_a_text_that_is_too_long_for_a_pattern_is_denied() -> None:
    rule = arguments.Rule({"read_file": {"path": arguments.matching("a*")}})
    for length, allowed in ((arguments.MAX_MATCHED, True), (arguments.MAX_MATCHED + 1, False)):
        call = ToolCall("c", "read_file", {"path": "a" * length})
        verdict = rule.judge(call, ToolSpec("read_file"), JudgeContext())
        assert isinstance(verdict, Allow if allowed else Deny)


@pytest.mark.parametrize("wrong", [("ann", None), (None,), ("",), (7,), ("ann", "orders.read"), ("ann", [1]), ("a", 3)])
def test_a_principal_of_the_wrong_shape_is_a_configuration_error(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=r"Principal\.(id|grants)"):
        Principal(*wrong)


def test_a_tool_cannot_wait_for_one_that_is_not_there() -> None:
    @tool(effect="read", after=["transfr"])
    def later() -> str:
        "Later."
        return ""

    with pytest.raises(ConfigError, match=r"tool later: after: no tool is called 'transfr' \(did you mean 'transfer'"):
        Agent(Replay(["ok"]), [transfer, later])


def test_a_rule_of_ones_own_may_check_its_names_too() -> None:
    class Mine:
        name = "mine"

        def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Allow:
            return Allow()

        def check_tools(self, specs: Any) -> None:
            raise ConfigError(f"mine: {len(specs)} tools")

    with pytest.raises(ConfigError, match="mine: 1 tools"):
        Agent(Replay(["ok"]), [transfer], policy=[Mine()])
