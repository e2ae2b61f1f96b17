"""The two sides of a run, each alone with a state."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any

import callgate.run
from callgate.policy import Answer
from callgate.run import AskPerson, Execute, Failed, RunConfig, Send
from callgate.run._calls import Calls
from callgate.run._check import Checker
from callgate.run._model_side import ModelSide
from callgate.run._state import AskModel, EndRun, Proposed, RunState, Unusable
from callgate.schema import mend
from callgate.types import BadCall, Finish, Message, Reply, TextDelta, ToolCall
from run_script import INFO, RULES, SPECS, config

HERE = Path(callgate.run.__file__).parent


def state(**more: Any) -> RunState:
    made = RunState.of(config(**more))
    made.history = made.history.say(Message("user", "go"))
    return made


def acts(of: RunState) -> list[Any]:
    return [c for c in of.step.commands if isinstance(c, (Execute, AskPerson, Send))]


def imports(module: str) -> set[str]:
    tree = ast.parse((HERE / f"{module}.py").read_text())
    found = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    return {name.rsplit(".", 1)[-1] for name in found if name.startswith("callgate.run.")}


def test_the_state_knows_neither_side() -> None:
    """Whatever imports whatever, for type checkers too: there is an order, and the state stands before the sides."""
    graph = {path.stem: imports(path.stem) for path in HERE.glob("*.py")}
    done: list[str] = []
    while len(done) < len(graph):
        ready = [m for m in graph if m not in done and graph[m] <= set(done)]
        assert ready, f"a circle among {sorted(set(graph) - set(done))}"
        done += ready
    assert not {"_calls", "_model_side", "_check"} & graph["_state"]
    assert "_model_side" not in graph["_calls"]
    assert "_calls" not in graph["_model_side"]
    text = "\n".join(path.read_text() for path in HERE.glob("*.py"))
    assert "self._run" not in text


def test_the_model_side_asks_a_bounded_number_of_times() -> None:
    for protocol in ("native", "json", "constrained", "marker", "hermes"):
        for retries in range(4):
            of = state(protocol=protocol, retries=retries, rules=())
            side = ModelSide(of)
            move: Any = AskModel()
            asked = 0
            chance = random.Random(f"{protocol} {retries}")
            while not isinstance(move, EndRun):
                if isinstance(move, AskModel):
                    move = side.ask()
                    assert move is None
                asked += 1
                assert asked < 200
                match chance.choice(["empty", "fails", "breaks", "useless"]):
                    case "empty":
                        move = side.received([Finish("stop")])
                    case "fails":
                        move = side.failed(Failed("down", of.now, "Overloaded", again=True))
                    case "breaks":
                        move = side.received([TextDelta("half"), Finish("interrupted")])
                    case _:
                        why = "no such tool"
                        move = AskModel() if side.may_ask_again(why) else EndRun("provider_error", why)
            assert of.requests <= (retries + 1) ** 2 * 6 + 6


def test_calls_come_out_of_the_model_side_with_ids_for_good() -> None:
    of = state(protocol="native")
    side = ModelSide(of)
    assert side.ask() is None
    calls = [ToolCall("", "look", {"n": 1}), ToolCall("x", "look", {}, 1), ToolCall("x", "put", {}, 2)]
    move = side.received([*calls, BadCall(3, None, "put", "{"), Finish("tool_calls")])
    assert isinstance(move, Proposed)
    assert [c.id for c in move.calls] == ["call_1_1", "x", "call_1_3", "call_1_4"]


def test_what_is_not_refused_fits_its_tool() -> None:
    checker = Checker(state())
    chance = random.Random(3)
    for number in range(1500):
        name = chance.choice(["look", "put", "pay", "LOOK", "Put", "functions.look", "nowhere", "", "hidden"])
        arguments = chance.choice([{}, {"n": 1}, {"n": "2"}, {"n": "x"}, {"n": 1e400}, {"o": 1}, {"n": None}])
        flags = frozenset(chance.sample(["loose", "recovered", "repaired"], chance.choice([0, 0, 1])))
        call: Any = ToolCall(f"c{number}", name, dict(arguments), 0, flags)
        if chance.random() < 0.2:
            text = chance.choice(["{", "{'n': 1}", "", "{}", "[1]"])
            call = BadCall(0, f"c{number}", name, text, chance.choice(["malformed", "truncated"]))
        checked = checker.check(call)
        assert checked.call.id == f"c{number}"
        if checked.refusal is not None:
            assert checked.refusal.status in ("invalid_arguments", "unknown_tool")
            continue
        assert checked.spec in SPECS
        assert checked.call.name == checked.spec.name
        assert mend(checked.call.arguments, checker.compiled(checked.spec)).value == checked.call.arguments
        assert not (checked.spec.effect == "write" and checked.call.flags)


def test_only_an_allowed_call_is_executed() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        of = state()
        side = Calls(of)
        names = chance.choices(["look", "put", "pay", "secret"], k=chance.randint(1, 5))
        calls = [ToolCall(f"c{i}", n, {"n": chance.randint(1, 2)}, i) for i, n in enumerate(names)]
        checked = [Checker(of).check(call) for call in calls]
        of.phase = "model"
        move = side.open(Reply(), checked)
        yes: set[str] = set()
        while True:
            for command in acts(of):
                if isinstance(command, Execute):
                    for call in command.calls:
                        assert call.name in ("look", "put") or (call.name == "pay" and call.id in yes)
            if not (pending := side.pending()):
                break
            of.step.commands.clear()
            scope = chance.choice(["once", "same", "tool"])
            answer = Answer(chance.random() < 0.5, scope)
            if answer.allow:
                same = [p.id for p in pending if scope == "tool" or p.arguments == pending[0].arguments]
                yes |= {pending[0].id} | (set(same) if scope != "once" else set())
            move = side.answered(pending[0].id, answer, 0.0)
        assert move is None or isinstance(move, (AskModel, Unusable))


def test_a_state_is_made_of_its_config_alone() -> None:
    given = RunConfig("r", INFO, tools=SPECS, rules=RULES)
    assert RunState.of(given) == RunState.of(given)
    assert list(RunState.of(given).specs) == [s.name for s in SPECS]
