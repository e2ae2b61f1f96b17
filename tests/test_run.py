"""Laws of the pure run, whatever model, tools and people do."""

from __future__ import annotations

import dataclasses
import os
import random
from typing import Any

from callgate.events import RunFinished
from callgate.run import Run, restore
from callgate.types import Message
from run_script import SPECS, Script, check_calls, config

WRITES = {s.name for s in SPECS if s.effect == "write"}
SEEDS = range(int(os.environ.get("CALLGATE_SEEDS", "150")))
PROTOCOLS = ("native", "json", "constrained", "marker", "hermes")


def played(seed: int, **more: Any) -> Script:
    print(f"seed {seed}")
    chance = random.Random(seed)
    script = Script(Run(config(**more)), lambda label, options: chance.choice(options))
    script.play()
    return script


def test_a_run_always_ends_with_one_result_for_every_call() -> None:
    for seed in SEEDS:
        script = played(seed, protocol=PROTOCOLS[seed % len(PROTOCOLS)])
        check_calls(script)
        assert isinstance(script.events[-1], RunFinished)
        assert script.run.reason is not None
        assert sum(isinstance(e, RunFinished) and e.reason != "waiting" for e in script.events) == 1


def test_a_started_write_is_never_started_again() -> None:
    for seed in SEEDS:
        script = played(seed)
        assert len(script.ran) == len(set(script.ran)), "a call began twice"
        started = [r for r in script.run.records if r.call.id in script.ran and r.call.name in WRITES]
        effective: set[Any] = set()
        for record in started:
            key = (record.call.name, str(sorted(record.call.arguments.items())))
            assert key not in effective, "an identical write was started though the first may have taken effect"
            if record.result.status not in ("failed", "not_found") and key not in script.cleared:
                effective.add(key)
        for record in started:
            assert not record.call.flags, "a flagged write ran"


def test_the_same_inputs_give_the_same_events_and_commands() -> None:
    for seed in SEEDS:
        script = played(seed)
        fresh = Run(config())
        again = [fresh.start([Message("user", "go")])]
        again += [fresh.receive(value) for value in script.inputs]
        for before, after in zip(script.steps, again, strict=True):
            assert before.events == after.events
            assert [type(c) for c in before.commands] == [type(c) for c in after.commands]
        assert fresh.messages == script.run.messages


def test_a_journal_gives_the_same_run() -> None:
    """Of an ended run its journal gives the result; tests/test_run_restore.py compares every step on the way."""
    for seed in SEEDS:
        script = played(seed)
        fresh = restore(config(), script.entries)
        assert (fresh.reason, fresh.error, fresh.text) == (script.run.reason, script.run.error, script.run.text)
        assert fresh.messages == script.run.messages
        assert [dataclasses.replace(r, duration=None) for r in fresh.records] == [
            dataclasses.replace(r, duration=None) for r in script.run.records
        ]


def test_a_run_that_was_cut_off_anywhere_goes_on_and_starts_no_write_twice() -> None:
    for seed in SEEDS:
        script = played(seed)
        chance = random.Random(-seed - 1)
        kept = chance.randrange(1, len(script.steps) + 1)
        cut = Script(Run(config()), lambda label, options, chance=chance: chance.choice(options))
        for step in script.steps[:kept]:
            cut.keep(step)
        fresh = restore(config(), cut.entries)
        begun = {e.data["call_id"] for e in cut.entries if e.kind == "call_intent"}
        results = {e.data["call_id"]: e.data["result"]["status"] for e in cut.entries if e.kind == "call_result"}
        again = Script(fresh, lambda label, options, chance=chance: chance.choice(options))
        again.go_on()
        assert fresh.ended
        check_calls(again, whole=False)
        assert not begun & set(again.ran), "a write that had begun was started again"
        assert not set(results) & set(again.ran), "a finished call ran again"
        for record in fresh.records:
            if record.call.id in results:
                assert record.result.status == results[record.call.id]
