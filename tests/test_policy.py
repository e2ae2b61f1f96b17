"""The gate: the strictest verdict wins, a rule that fails denies, and every rule keeps its promise."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from callgate import Agent, Principal, Replay, policy, tool
from callgate.errors import ConfigError
from callgate.policy import JudgeContext, Progress, approval, arguments, budget, permission, rate, repetition
from callgate.types import Allow, Ask, CallRecord, Deny, ToolCall, ToolResult, ToolSpec, Verdict

SPEC = ToolSpec("tool", effect="write")
CALL = ToolCall("c1", "tool", {"n": 1})
NOBODY = JudgeContext()


class Says:
    def __init__(self, verdict: Any, name: str = "says") -> None:
        self.name = name
        self.verdict = verdict

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        verdict: Verdict = self.verdict
        return verdict


STRICT = {Allow: 0, Ask: 1, Deny: 2}


def test_the_strictest_verdict_wins_in_any_order_and_adding_a_rule_never_loosens() -> None:
    verdicts = [Allow(), Ask("a", "x"), Deny("d", "y"), ValueError("broken"), "nonsense", None]
    for several in itertools.product(verdicts, repeat=3):
        given = [policy.judge([Says(v) for v in several[:n]], CALL, SPEC, NOBODY) for n in range(4)]
        strictness = [STRICT[type(v)] for v in given]
        assert strictness == sorted(strictness)
        expected = max(STRICT.get(type(v), 2) for v in several)
        assert strictness[-1] == expected


def test_a_rule_that_fails_denies_and_does_not_tell_secrets() -> None:
    verdict = policy.judge([Says(ValueError("password=hunter2"), "mine")], CALL, SPEC, NOBODY)
    assert verdict == Deny("mine", "the rule failed: ValueError")


def test_functions_are_rules() -> None:
    def office_hours(call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Any:
        return {1: True, 2: False, 3: Ask("x", "y"), 4: None}[call.arguments["n"]]

    (rule,) = policy.combine([office_hours])
    got = [policy.judge([rule], ToolCall("c", "tool", {"n": n}), SPEC, NOBODY) for n in (1, 2, 3, 4)]
    assert [type(v) for v in got] == [Allow, Deny, Ask, Deny]
    assert got[1] == Deny("office_hours", "not allowed")


@pytest.mark.parametrize("wrong", [3, object(), Says])
def test_what_is_no_rule_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="policy"):
        policy.combine([wrong])


@pytest.mark.parametrize(
    ("needs", "grants", "allowed"),
    [
        (None, None, True),
        (None, set(), True),
        ("orders.read", None, False),
        ("orders.read", set(), False),
        ("orders.read", {"orders.read"}, True),
        ("orders.read", {"orders.*"}, True),
        ("orders.read", {"*"}, True),
        ("orders.read", {"orders"}, False),
        ("orders.read", {"Orders.Read"}, False),
        ("orders.read", {"orders.write", "mail.*"}, False),
        ("orders.*", {"orders.read"}, False),
    ],
)
def test_permission(needs: str | None, grants: set[str] | None, allowed: bool) -> None:
    spec = ToolSpec("tool", permission=needs)
    who = None if grants is None else Principal("u", grants)
    verdict = permission.Rule().judge(CALL, spec, JudgeContext(who))
    assert isinstance(verdict, Allow) is allowed


def test_a_setting_may_need_more_than_the_tool_does() -> None:
    rule = permission.Rule({"delete_*": "admin"})
    spec = ToolSpec("delete_all", permission="own")
    call = ToolCall("c", "delete_all", {})
    both = JudgeContext(Principal("u", {"own", "admin"}))
    assert rule.judge(call, spec, both) == Allow()
    for grants in ({"own"}, {"admin"}):
        assert isinstance(rule.judge(call, spec, JudgeContext(Principal("u", grants))), Deny)


def test_approval_asks_by_tool_by_name_and_for_all_writes() -> None:
    read, write = ToolSpec("look", effect="read"), ToolSpec("put")
    assert isinstance(approval.Rule().judge(CALL, ToolSpec("x", confirm=True), NOBODY), Ask)
    assert approval.Rule().judge(CALL, write, NOBODY) == Allow()
    assert isinstance(approval.Rule(("pu*",)).judge(CALL, write, NOBODY), Ask)
    assert isinstance(approval.Rule(writes=True).judge(CALL, write, NOBODY), Ask)
    assert approval.Rule(writes=True).judge(CALL, read, NOBODY) == Allow()


@pytest.mark.parametrize(
    ("text", "parsed"), [("5/s", (5, 1.0)), ("20/min", (20, 60.0)), ("100/h", (100, 3600.0)), ("3/10s", (3, 10.0))]
)
def test_rates_are_read(text: str, parsed: tuple[int, float]) -> None:
    assert rate.parse(text) == parsed


@pytest.mark.parametrize("text", ["", "5", "5/", "/s", "5/week", "-1/s", "5 per s", "5/s s", None, 5])
def test_what_is_no_rate_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError, match="rate"):
        rate.parse(text)


def test_rates_count_all_runs_of_a_principal_and_the_calls_before_in_the_turn() -> None:
    @tool(effect="read", rate="3/min")
    def search(n: int) -> str:
        "Search."
        return f"found {n}"

    def calls(*several: int) -> dict[str, Any]:
        return {"calls": [{"name": "search", "arguments": {"n": n}} for n in several]}

    agent = Agent(Replay([calls(1, 2), "ok", calls(3, 4), "ok", calls(5), "ok"]), tools=[search])
    ada, bob = Principal("ada"), Principal("bob")
    first, second, third = (agent.run_sync("go", principal=who) for who in (ada, ada, bob))
    assert [r.result.status for r in first.calls] == ["ok", "ok"]
    assert [r.result.status for r in second.calls] == ["ok", "denied"]
    assert "3/min" in second.calls[1].result.content
    assert [r.result.status for r in third.calls] == ["ok"]


def records(*results: str) -> list[CallRecord]:
    return [CallRecord(CALL, ToolResult(f"c{n}", "ok", text)) for n, text in enumerate(results)]


def test_repetition_counts_identical_calls_with_identical_results() -> None:
    rule = repetition.Rule()

    def stopped(*results: str) -> bool:
        progress = Progress("batch", records=records(*results), batch=[CALL], specs={"tool": SPEC})
        return rule.check(progress) is not None

    assert not stopped("A", "A")
    assert stopped("A", "A", "A")
    assert not stopped("A", "A", "B")
    assert not stopped("A", "B", "A", "B", "A")
    assert stopped("B", "A", "A", "A")
    other = ToolCall("c9", "tool", {"n": 2})
    assert rule.check(Progress("batch", records=records("A", "A", "A"), batch=[other], specs={})) is None
    polling = ToolSpec("tool", polling=True)
    assert rule.check(Progress("batch", records=records(*"AAAA"), batch=[CALL], specs={"tool": polling})) is None
    assert repetition.Rule(stop=0).check(Progress("batch", records=records(*"AAAA"), batch=[CALL])) is None


def test_the_order_of_arguments_is_no_difference_but_their_types_are() -> None:
    same = {repetition.signature(ToolCall("x", "t", a)) for a in ({"a": 1, "b": 2}, {"b": 2, "a": 1})}
    assert len(same) == 1
    different = {repetition.signature(ToolCall("x", "t", {"a": v})) for v in (1, "1", True, None, [1])}
    assert len(different) == 5


@pytest.mark.parametrize(
    ("limits", "progress", "reason"),
    [
        ({"turns": 3}, Progress("batch", turn=3), "turn_limit"),
        ({"turns": 3}, Progress("batch", turn=2), None),
        ({"requests": 4}, Progress("request", requests=4), "request_limit"),
        ({"requests": 4}, Progress("batch", requests=4), "request_limit"),
        ({"requests": 4}, Progress("request", requests=3), None),
        ({"calls_per_turn": 2}, Progress("batch", batch=[CALL] * 3), "call_limit"),
        ({"calls_per_turn": 2}, Progress("batch", batch=[CALL] * 2), None),
        ({"calls": 2}, Progress("batch", batch=[CALL] * 3), "call_limit"),
        ({"seconds": 2}, Progress("request", seconds=2.0), "time_limit"),
        ({"seconds": 2}, Progress("request", seconds=1.9), None),
        ({"tokens": 10}, Progress("batch", tokens=10), "token_limit"),
        ({"tokens": 10}, Progress("batch", tokens=9), None),
        ({"money": 1.0, "prices": {"output": 100.0}}, Progress("batch", usage={"output": 10_000}), "token_limit"),
        ({}, Progress("batch", turn=9, requests=9, seconds=9, batch=[CALL] * 99), None),
    ],
)
def test_budgets(limits: dict[str, Any], progress: Progress, reason: str | None) -> None:
    stop = budget.Rule(**limits).check(progress)
    assert (stop.reason if stop else None) == reason


def test_a_tool_may_have_a_budget_of_its_own() -> None:
    @tool(effect="read")
    def search(n: int) -> str:
        "Search."
        return f"found {n}"

    calls = {"calls": [{"name": "search", "arguments": {"n": n}} for n in range(3)]}
    settings = {"budget": {"per_tool": {"sea*": 2}}}
    result = Agent(Replay([calls, "ok"]), tools=[search], policy=settings).run_sync("go")
    assert [r.result.status for r in result.calls] == ["ok", "ok", "denied"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("notes.txt", True),
        ("a/../b.txt", True),
        ("/srv/data/x", True),
        ("/srv/data", True),
        ("..", False),
        ("../data2/x", False),
        ("a/../../etc/passwd", False),
        ("/etc/passwd", False),
        ("/srv/data2/x", False),
        ("/srv/data/../x", False),
        ("..\\x", False),
        ("C:\\x", False),
        ("~/x", False),
        ("//host/share", False),
        ("x\0y", False),
        (7, False),
        (["a", "../../x"], False),
        (["a", "b"], True),
    ],
)
def test_paths_lie_inside_their_folder(path: Any, allowed: bool) -> None:
    rule = arguments.Rule({"read_*": {"path": arguments.inside("/srv/data")}})
    call = ToolCall("c", "read_file", {"path": path})
    assert isinstance(rule.judge(call, ToolSpec("read_file"), NOBODY), Allow) is allowed
    assert rule.judge(call, ToolSpec("other"), NOBODY) == Allow()


def test_links_are_followed_where_there_is_a_disk(tmp_path: Any) -> None:
    ran: list[str] = []

    @tool(effect="read")
    def read_file(path: str) -> str:
        "Read."
        ran.append(path)
        return "text"

    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("s")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "plain").write_text("p")
    calls = {"calls": [{"name": "read_file", "arguments": {"path": p}} for p in ("plain", "link")]}
    settings = {"arguments": {"read_file": {"path": {"inside": str(inside)}}}}
    result = Agent(Replay([calls, "ok"]), tools=[read_file], policy=settings).run_sync("go")
    assert ([r.result.status for r in result.calls], ran) == (["ok", "denied"], ["plain"])


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://api.example.com/x", True),
        ("http://a.internal:8080/", True),
        ("https://API.EXAMPLE.COM./x", True),
        ("https://example.com/", False),
        ("https://api.example.com.evil.org/", False),
        ("https://api.example.com@evil.org/", False),
        ("https://evil.org/?https://api.example.com/", False),
        ("https://evil.org\\@api.example.com/", False),
        ("ftp://api.example.com/", False),
        ("file:///etc/passwd", False),
        ("//api.example.com/", False),
        ("https://[::1", False),
        ("https://api.example.com:x/", False),
        ("https:// api.example.com", False),
        ("", False),
        (None, False),
    ],
)
def test_hosts_are_on_a_list(url: Any, allowed: bool) -> None:
    rule = arguments.Rule({"*": {"url": arguments.hosts("api.example.com", "*.internal")}})
    assert isinstance(rule.judge(ToolCall("c", "get", {"url": url}), SPEC, NOBODY), Allow) is allowed


@pytest.mark.parametrize(
    ("settings", "good", "bad"),
    [
        ({"matches": r"[a-z]+"}, ["abc"], ["abc1", "", 3, "a\nb"]),
        ({"one_of": ["a", 1]}, ["a", 1], ["b", True, 1.0, None]),
        ({"min": 1, "max": 5}, [1, 5, 2.5], [0, 6, "3", True, None, float("nan")]),
        ({"max": 5}, [-100], [6]),
    ],
)
def test_conditions_from_settings(settings: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    (rule,) = policy.load({"arguments": {"t": {"a.b": settings}}})
    for value in good + bad:
        call = ToolCall("c", "t", {"a": {"b": value}})
        wanted = any(value is g for g in good)
        assert isinstance(rule.judge(call, ToolSpec("t"), NOBODY), Allow) is wanted, value
    assert rule.judge(ToolCall("c", "t", {}), ToolSpec("t"), NOBODY) == Allow()


@pytest.mark.parametrize(
    "settings",
    [
        {"nonsense": {}},
        {"rate": "5/s"},
        {"rate": {"x": "often"}},
        {"budget": {"turn": 3}},
        {"budget": {"turns": -1}},
        {"budget": {"turns": "3"}},
        {"budget": {"turns": True}},
        {"approval": {"tools": "mail"}},
        {"approval": {"writes": "yes"}},
        {"permission": {"need": {}}},
        {"repetition": {"stop": 1}},
        {"arguments": {"t": 3}},
        {"arguments": {"t": {"a": {}}}},
        {"arguments": {"t": {"a": {"insde": "/x"}}}},
        {"arguments": {"t": {"a": {"matches": "("}}}},
    ],
)
def test_a_slip_in_the_settings_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        policy.load(settings)


def test_every_rule_is_found_by_its_file_and_has_defaults() -> None:
    assert policy.names() == ("approval", "arguments", "budget", "permission", "rate", "repetition", "taint")
    for name in policy.names():
        (rule,) = policy.load({name: {}})
        assert rule.name == name
        assert rule.judge(CALL, SPEC, NOBODY) == Allow()


def test_a_rule_of_ones_own_judges_a_copy_and_changes_nothing_that_runs() -> None:
    ran: list[list[int]] = []

    @tool(effect="write")
    def put(numbers: list[int]) -> str:
        "Puts."
        ran.append(numbers)
        return "ok"

    def greedy(call: ToolCall, spec: ToolSpec, context: JudgeContext) -> bool:
        call.arguments["numbers"].append(666)
        call.arguments["more"] = 1
        return True

    script = [{"calls": [{"name": "put", "arguments": {"numbers": [1]}}]}, "ok"]
    result = Agent(Replay(script), tools=[put], policy=[greedy]).run_sync("go")
    assert (ran, result.calls[0].call.arguments) == ([[1]], {"numbers": [1]})
    judged = ToolCall("c", "tool", {"numbers": [1]})
    policy.judge(policy.combine([greedy]), judged, SPEC, NOBODY)
    assert judged.arguments == {"numbers": [1]}
