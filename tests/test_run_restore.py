"""A run from its journal: at every step, through a real masking store, and from damaged journals."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import os
import random
from typing import Any

import pytest

from callgate.errors import LedgerError, ToolsChanged
from callgate.keys import arguments_hash, idempotency_key
from callgate.ledger import memory
from callgate.policy import Answer
from callgate.run import Answered, Began, Execute, Ran, Received, Record, Resumed, Run, RunConfig, Settled, restore
from callgate.types import Entry, Finish, Message, Principal, TextDelta, ToolCall, ToolResult, ToolSpec
from run_script import INFO, RULES, SPECS, Script, check_calls, config

SEEDS = range(int(os.environ.get("CALLGATE_SEEDS", "120")))
PROTOCOLS = ("native", "json", "hermes", "bracket_tool", "react", "pythonic")
TEXTS = (
    "def f(password: str): pass",
    "the secret: patience",
    "https://u:p@h/",
    "-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----",
    "sk-abcdefghijklmnop1234",
    "[masked]",
    "half \ud800 a pair",
    "plain",
)
OPEN = {
    "type": "object",
    "properties": {"n": {"type": "number"}, "text": {"type": "string"}, "password": {"type": "string"}},
    "additionalProperties": False,
}
OPEN_SPECS = (
    ToolSpec("look", "Look.", OPEN, effect="read"),
    ToolSpec("put", "Put.", OPEN, effect="write", has_lookup=True),
    ToolSpec("pay", "Pay.", OPEN, effect="write", confirm=True, unknown="same"),
)


def open_config(**more: Any) -> RunConfig:
    return config(tools=OPEN_SPECS, hash_key=b"k" * 32, principal=Principal("u"), retries=1, **more)


class Masked(Script):
    """A script whose arguments may be masked, in the form of a protocol, through a real ledger."""

    protocol = "native"

    def _deltas(self) -> list[Any]:
        if self.choose("answers", [False, False, True]):
            return [TextDelta("done: " + self.choose("text", list(TEXTS))), Finish("stop", {"input": 3, "output": 2})]
        calls = []
        for index in range(self.choose("count", [1, 1, 2, 3])):
            arguments: dict[str, Any] = {"n": self.choose("n", [1, 2, 1e400, 10**30])}
            if self.choose("has text", [True, False]):
                arguments["text"] = self.choose("what", list(TEXTS))
            if self.choose("has password", [True, False]):
                arguments["password"] = self.choose("secret", ["hunter22", "[masked]", ""])
            name = self.choose("tool", ["look", "put", "put", "pay", "nowhere"])
            own = self.choose("own id", ["", "", "c\ud800", "sk-abcdefghijklmnop1234", f"own{self.now}{index}"])
            calls.append(ToolCall(own, name, arguments, index))
        finish = Finish("stop", {"input": 5, "output": 5}) if self.choose("usage", [True, False]) else Finish("stop")
        text = written(self.protocol, calls)
        return [*calls, finish] if text is None else [TextDelta(text), finish]


def written(protocol: str, calls: list[ToolCall]) -> str | None:
    """The calls as a model writes them; None: as values."""
    dumped = [json.dumps(c.arguments) for c in calls]
    match protocol:
        case "json":
            return json.dumps({"tool": calls[0].name, "args": calls[0].arguments})
        case "hermes":
            pairs = zip(calls, dumped, strict=True)
            return "\n".join(
                f'<tool_call>\n{{"name": "{c.name}", "arguments": {text}}}\n</tool_call>' for c, text in pairs
            )
        case "react":
            return f"Thought: go\nAction: {calls[0].name}\nAction Input: {dumped[0]}\n"
        case "bracket_tool":
            given = ", ".join(f"{k}={json.dumps(v)}" for k, v in calls[0].arguments.items())
            return f"[TOOL: {calls[0].name}({given})]"
        case "pythonic":
            each = [f"{c.name}({', '.join(f'{k}={v!r}' for k, v in c.arguments.items())})" for c in calls]
            return f"[{', '.join(each)}]"
        case _:
            return None


def played(seed: int) -> Masked:
    print(f"seed {seed}")
    protocol = PROTOCOLS[seed % len(PROTOCOLS)]
    chance = random.Random(seed)
    script = Masked(Run(open_config(protocol=protocol)), lambda label, options: chance.choice(options))
    script.protocol = protocol
    return script


def snapshot(run: Run) -> dict[str, Any]:
    """What must be the same of a run and the run that its journal gives."""
    state, gate = run.state, run.state.gate
    return {
        "phase": run.phase,
        "turn": run.turn,
        "requests": run.requests,
        "usage": run.usage,
        "spent": state.spent,
        "protocol": run.protocol,
        "reason": run.reason,
        "error": run.error,
        "problems": len(run.problems),  # their texts may be shown masked
        "roles": [(m.role, m.call_id, m.name, [c.id for c in m.calls]) for m in run.messages],
        "unknown": [m.call_id for m in run.messages if m.unknown],
        "pending": [(p.id, p.name, p.rule, p.arguments) for p in run.pending],
        "open": [(i.call, i.hash, i.approved) for i in gate.batch.items if i.state != "done"] if gate.batch else [],
        "writes": {h: (r.call.id, r.result.status) for h, r in gate.writes.items()},
        "approved": (gate.same, gate.tools, gate.released),
        "records": [(r.call.id, r.call.name, r.call.flags, r.result.status, r.result.replayed) for r in run.records],
        "finished": [r.call.id for r in state.finished],
        "tools": [s.name for s in state.tools],
        "asking": [(f, getattr(state.asking, f)) for f in ("failures", "attempts", "finalizing", "budget", "covered")],
        "scratch": [m.role for m in state.asking.scratch],
    }


def same(live: Run, restored: Run, where: Any) -> None:
    """The live run shows its texts, the restored one may show them masked."""
    one, other = snapshot(live), snapshot(restored)
    for name in one:
        if live.ended and name in ("asking", "scratch"):
            continue  # nothing is asked any more
        assert one[name] == other[name], (name, where)


async def through(ledger: memory.Store, run_id: str, script: Script) -> None:
    """Plays a script; after each step the ledger gives the run as it stands."""
    step = script.run.start([Message("user", "go " + TEXTS[0])])
    script.keep(step)
    compared = 0
    while not script.run.ended:
        for step in script.steps[compared:]:
            entries = [c.entry for c in step.commands if isinstance(c, Record)]
            await ledger.append(run_id, entries)
        compared = len(script.steps)
        restored = restore(script.run.config, await ledger.read(run_id), await ledger.held(run_id))
        same(script.run, restored, (run_id, compared))
        act = [c for c in script.steps[-1].commands if not isinstance(c, Record)]
        if script.run.phase == "parked":
            script.feed(Resumed(script.now))
        else:
            assert len(act) == 1
            script.act(act[0])
    for step in script.steps[compared:]:
        await ledger.append(run_id, [c.entry for c in step.commands if isinstance(c, Record)])
    restored = restore(script.run.config, await ledger.read(run_id))
    same(script.run, restored, (run_id, "end"))
    unknown = {r.call.id for r in script.run.records if r.result.status in ("unknown_outcome", "timeout", "cancelled")}
    assert set(await ledger.held(run_id)) <= unknown, "arguments are kept of calls that have ended"


def test_a_journal_gives_the_state_of_the_live_run_at_every_step() -> None:
    async def work() -> None:
        ledger = memory.Store()
        for seed in SEEDS:
            await through(ledger, str(seed), played(seed))

    asyncio.run(work())


def test_a_journal_gives_the_state_after_each_single_input() -> None:
    """Between the calls of a batch, too. The start of a read has no entry: until it ends it counts as not started."""
    compared = 0
    for seed in SEEDS:
        script = played(seed)
        entries: list[Entry] = []
        keep = script.keep

        def compare(step: Any, script: Script = script, entries: list[Entry] = entries, keep: Any = keep) -> None:
            nonlocal compared
            keep(step)
            entries += [c.entry for c in step.commands if isinstance(c, Record)]
            if not step.commands and script.run.phase == "model":
                return  # a part of an answer: nothing of it counts yet
            batch = script.run.state.gate.batch
            if batch is None or not any(i.state == "begun" and not i.write for i in batch.items):
                compared += 1
                same(script.run, restore(script.run.config, entries), len(entries))

        script.keep = compare  # type: ignore[method-assign]
        script.play()
    assert compared > len(SEEDS) * 2


def test_every_prefix_of_a_journal_goes_on_and_starts_no_write_twice() -> None:
    async def work() -> None:
        for seed in list(SEEDS)[:40]:
            script = played(seed)
            script.play()
            entries = [c.entry for s in script.steps for c in s.commands if isinstance(c, Record)]
            for cut in range(1, len(entries), 3):
                ledger = memory.Store()
                await ledger.append("r", entries[:cut])
                run = restore(script.run.config, await ledger.read("r"), await ledger.held("r"))
                if run.ended:
                    continue
                begun = {e.data["call_id"] for e in entries[:cut] if e.kind == "call_intent"}
                chance = random.Random(cut)
                again = Masked(run, lambda label, options, chance=chance: chance.choice(options))
                again.protocol = script.protocol
                again.go_on()
                check_calls(again, whole=False)
                assert not begun & set(again.ran)
                started = [r for r in run.records if r.call.id in begun | set(again.ran) and r.call.name != "look"]
                effective: set[str] = set()
                for record in started:
                    if record.result.status in ("failed", "not_found") or record.result.replayed:
                        continue
                    key = arguments_hash(record.call.name, record.call.arguments, key=b"")
                    if record.call.id in again.ran:
                        assert key not in effective or again.cleared
                    effective.add(key)

    asyncio.run(work())


# --- what a call was, and with which tools it goes on -----------------------------------------------------------------


async def waiting(ledger: memory.Store, **arguments: Any) -> Run:
    """A run that waits for a person about `pay`."""
    run = Run(open_config())
    steps = [run.start([Message("user", "go")])]
    steps.append(run.receive(Received([ToolCall("", "pay", arguments), Finish("stop")], 1.0)))
    await ledger.append("r", [c.entry for s in steps for c in s.commands if isinstance(c, Record)])
    assert run.pending
    return run


@pytest.mark.parametrize("text", [text for text in TEXTS if text.isascii()])
def test_an_approved_call_runs_with_its_true_arguments(text: str) -> None:
    async def work() -> None:
        ledger = memory.Store()
        live = await waiting(ledger, n=1, text=text)
        entries, held = await ledger.read("r"), await ledger.held("r")
        for given, lost in ((held, False), ({}, any("masked" in e.data for e in entries[1:]))):
            run = restore(open_config(), entries, given)
            run.receive(Resumed(2.0))
            step = run.receive(Answered(live.pending[0].id, Answer(True), 3.0))
            execute = [c for c in step.commands if isinstance(c, Execute)]
            if lost:
                assert not execute
                assert run.records[0].result.status == "not_started"
                assert "hold_secrets" in run.records[0].result.content
            else:
                assert execute[0].calls[0].arguments == live.pending[0].arguments
                began = run.receive(Began(live.pending[0].id, 4.0))
                intent = next(c.entry for c in began.commands if isinstance(c, Record))
                true = arguments_hash("pay", live.pending[0].arguments, key=b"k" * 32)
                assert intent.data["arguments_hash"] == true
                assert intent.data["key"] == idempotency_key("run1", live.pending[0].id)

    asyncio.run(work())


def changed(**changes: Any) -> RunConfig:
    return (
        open_config()
        if not changes
        else dataclasses.replace(
            open_config(), tools=tuple(dataclasses.replace(s, **changes) if s.name == "pay" else s for s in OPEN_SPECS)
        )
    )


def more(**fields: Any) -> dict[str, Any]:
    return {**OPEN, "properties": {**OPEN["properties"], **fields}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (changed(effect="read"), "its effect was 'write' and is 'read'"),
        (changed(permission="money"), "its permission was None and is 'money'"),
        (changed(parameters=more(to={"type": "string"})), "the parameter 'to' was added"),
        (changed(parameters={**OPEN, "properties": {}}), "the parameter 'n' was removed"),
        (changed(parameters=more(n={"type": "integer"})), "the schema of its parameters was changed"),
        (changed(name="pay2"), "there is no such tool any more"),
        (dataclasses.replace(open_config(), tools=OPEN_SPECS[:2]), "there is no such tool any more"),
        (changed(description="Pays money."), None),
        (changed(parameters=more(n={"type": "number", "description": "how much", "title": "N"})), None),
        (dataclasses.replace(open_config(), tools=(OPEN_SPECS[2], SPECS[3])), None),
    ],
)
def test_a_call_that_waits_goes_on_with_the_same_tool_or_the_resume_says_what_differs(
    given: RunConfig, words: str | None
) -> None:
    async def work() -> None:
        ledger = memory.Store()
        await waiting(ledger, n=1)
        if given.tools[-1].name == SPECS[3].name and len(given.tools) == 2:
            tools = (OPEN_SPECS[2],)
            assert restore(dataclasses.replace(given, tools=tools), await ledger.read("r")).pending
        elif words is None:
            assert restore(given, await ledger.read("r")).pending
        else:
            with pytest.raises(ToolsChanged, match="pay") as caught:
                restore(given, await ledger.read("r"))
            assert words in str(caught.value)

    asyncio.run(work())


def test_a_journal_of_an_older_version_gives_its_result_and_is_not_carried_on() -> None:
    call = {"type": "tool_call", "id": "c", "name": "look", "arguments": {"n": 1}}
    result = {"type": "tool_result", "call_id": "c", "status": "ok", "content": "seen"}
    old = [
        Entry("run_started", {"model": "m", "principal": None, "protocol": "native", "tools": ["look"],
                              "messages": [{"role": "user", "content": "go"}]}),
        Entry("request", {"n": 1, "turn": 1, "protocol": "native"}),
        Entry("turn", {"turn": 1, "counts": True, "finish": "tool_calls"}),
        Entry("call_proposed", {"call": call, "turn": 1, "notes": []}),
        Entry("call_judged", {"call_id": "c", "verdict": {"type": "allow"}}),
        Entry("call_result", {"call_id": "c", "tool": "look", "result": result, "duration": 0.1}),
        Entry("message", {"message": {"role": "assistant", "content": "", "calls": [call]}}),
        Entry("message", {"message": {"role": "tool", "content": "seen", "call_id": "c", "name": "look"}}),
        Entry("run_finished", {"reason": "answered", "text": "done", "error": None, "usage": {}}),
    ]  # fmt: skip
    run = restore(open_config(), old)
    assert (run.ended, run.text, [r.result.content for r in run.records]) == (True, "done", ["seen"])
    for cut in range(1, len(old)):
        with pytest.raises(LedgerError, match="older callgate"):
            restore(open_config(), old[:cut])


# --- damage -----------------------------------------------------------------------------------------------------------

JUNK: tuple[Any, ...] = (None, True, -1, 1e400, "", "x", [], [1], {}, {"type": "text"}, {"id": []}, [[]], "native")


def mutate(chance: random.Random, entries: list[Entry]) -> list[Entry]:
    """The journal with one fault."""
    out = [dataclasses.replace(e, data=copy.deepcopy(dict(e.data))) for e in entries]
    at = chance.randrange(len(out))
    match chance.choice(["drop", "twice", "swap", "kind", "field", "field", "field", "deep", "deep", "deep"]):
        case "drop":
            del out[at]
        case "twice":
            out.insert(at, out[at])
        case "swap":
            other = chance.randrange(len(out))
            out[at], out[other] = out[other], out[at]
        case "kind":
            out[at] = dataclasses.replace(out[at], kind=chance.choice(out).kind)
        case how:
            place: Any = out[at].data
            while how == "deep":
                inner = [
                    v
                    for v in (place.values() if isinstance(place, dict) else place)
                    if isinstance(v, (dict, list)) and v
                ]
                if not inner or chance.random() < 0.3:
                    break
                place = chance.choice(inner)
            key = chance.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
            if isinstance(place, dict) and chance.random() < 0.3:
                del place[key]
            else:
                place[key] = copy.deepcopy(chance.choice(JUNK))
    return out


def test_a_damaged_journal_gives_a_ledger_error_and_nothing_else() -> None:
    refused = 0
    for seed in range(int(os.environ.get("CALLGATE_SEEDS", "1200"))):
        script = played(seed % 30)
        script.play()
        entries = [c.entry for s in script.steps for c in s.commands if isinstance(c, Record)]
        chance = random.Random(f"damage {seed}")
        kept = chance.randint(1, len(entries))
        damaged = mutate(chance, entries[:kept])
        try:
            run = restore(script.run.config, damaged)
        except (LedgerError, ToolsChanged):
            refused += 1
            continue
        before = {e.data.get("call_id") for e in damaged if e.kind == "call_intent"}
        again = Masked(run, lambda label, options, chance=chance: chance.choice(options))
        again.protocol = script.protocol
        if not run.ended:
            again.go_on()
        _ = run.messages, run.records, run.pending
        assert not before & set(again.ran), "a write that had begun was started again"
    assert refused > 100


# --- an unknown write holds its tool ----------------------------------------------------------------------------------


def test_what_is_known_late_of_a_write_lets_its_tool_go_on() -> None:
    run = Run(dataclasses.replace(open_config(), rules=RULES, info=INFO))
    run.start([Message("user", "go")])
    run.receive(Received([ToolCall("a", "put", {"n": 1}), Finish("stop")], 1.0))
    run.receive(Began("a", 1.0))
    run.receive(Ran("a", ToolResult("a", "unknown_outcome", "?"), 0.1, 1.0))
    step = run.receive(Received([ToolCall("b", "put", {"n": 2}), Finish("stop")], 2.0))
    assert not any(isinstance(c, Execute) for c in step.commands)
    assert [(p.id, p.rule) for p in run.pending] == [("b", "unknown_write")]
    assert "call a" in run.pending[0].reason
    step = run.receive(Answered("b", Answer(True), 3.0))
    assert [c.id for e in step.commands if isinstance(e, Execute) for c in e.calls] == ["b"]
    run.receive(Began("b", 3.0))
    run.receive(Ran("b", ToolResult("b", "ok", "done"), 0.1, 3.0))
    run.receive(Settled("a", ToolResult("a", "ok", "it was done"), 4.0))
    step = run.receive(Received([ToolCall("c", "put", {"n": 3}), Finish("stop")], 5.0))
    assert [c.id for e in step.commands if isinstance(e, Execute) for c in e.calls] == ["c"]
    again = run.receive(Ran("c", ToolResult("c", "not_started", ""), None, 6.0))
    assert not any(isinstance(c, Execute) for c in again.commands)
    step = run.receive(Received([ToolCall("d", "put", {"n": 1}), Finish("stop")], 7.0))
    assert run.records[-1].result.content == "it was done", "an identical call is answered with what is known now"
