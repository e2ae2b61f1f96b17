"""The laws of the ledger, over every store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from callgate import ledger as ledgers
from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.events import dump_event
from callgate.ledger import Ledger, arguments_hash, idempotency_key, intent
from callgate.types import Entry, ToolCall, ToolResult
from ledger_stores import PAY, Opener, ended, find, open_store, postgres, started

__all__ = ["open_store", "postgres"]

pytestmark = pytest.mark.anyio

# --- entries ------------------------------------------------------------------------------------------------------


async def test_what_was_appended_is_read_back_by_whoever_opens_the_ledger(open_store: Opener) -> None:
    first = open_store()
    wild = {"text": "héllo \x00 \ud800 \u2028 😀", "n": 2**80, "f": 0.1, "deep": [[{"a": None}]], "t": True}
    entries = [started(), Entry("turn", wild), intent("r", PAY, "u"), ended("c1", value={"receipt": 7})]
    back = await first.append("r", entries)
    assert [(e.seq, e.kind) for e in back] == [(1, "run_started"), (2, "turn"), (3, "call_intent"), (4, "call_result")]
    second = open_store()
    assert await second.read("r") == back
    assert await second.read("r", after=2) == back[2:]
    assert dict(back[1].data) == wild
    assert [name async for name, _ in second.scan(kinds={"turn"})] == ["r"]
    assert await second.result("r", "c1") == ToolResult("c1", "ok", "done")
    assert (await second.result("r", "c1")).value == {"receipt": 7}  # type: ignore[union-attr]
    assert (await second.read("nobody"), await second.run("nobody"), await second.result("r", "c9")) == ([], None, None)
    assert (await second.verify()).problems == ()


async def test_an_append_is_all_or_nothing(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r", [started(), intent("r", PAY, "u")])
    for refused in (intent("r", PAY, "u"), Entry("nonsense", {}), Entry("message", {}), Entry("turn", {}, version=9)):
        with pytest.raises(LedgerError):
            await ledger.append("r", [Entry("turn", {"n": 1}), refused])
    assert [e.kind for e in await ledger.read("r")] == ["run_started", "call_intent"]
    assert (await ledger.verify()).problems == ()


async def test_what_becomes_of_a_value_after_it_was_appended_changes_nothing(open_store: Opener) -> None:
    ledger = open_store()
    value: dict[str, Any] = {"items": [1, {"deep": "old"}], "password": "hunter22"}
    await ledger.append("r", [started(), Entry("turn", value)])
    value["items"][1]["deep"] = "new"
    value["items"].append(2)
    (_, entry) = await ledger.read("r")
    assert entry.data == {"items": [1, {"deep": "old"}], "password": "[masked]", "masked": ["/password"]}
    assert (await ledger.verify()).problems == ()


async def test_one_refused_append_costs_the_others_nothing(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r0", [started(), intent("r0", PAY, "u")])
    outcomes = await asyncio.gather(
        *(ledger.append(f"r{n}", [intent(f"r{n}", PAY, "u")]) for n in range(20)), return_exceptions=True
    )
    assert [isinstance(o, LedgerError) for o in outcomes] == [True] + [False] * 19
    assert all([len(await ledger.read(f"r{n}")) == 1 for n in range(1, 20)])


async def test_appends_of_many_tasks_are_numbered_without_gaps(open_store: Opener) -> None:
    ledger = open_store()
    await asyncio.gather(*(ledger.append("r", [Entry("turn", {"n": n})], durable=n % 9 == 0) for n in range(100)))
    entries = await ledger.read("r")
    assert [e.seq for e in entries] == list(range(1, 101))
    assert sorted(e.data["n"] for e in entries) == list(range(100))
    assert (await ledger.verify()).problems == ()


async def test_a_write_starts_once_and_a_call_ends_once(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r", [intent("r", PAY, "u")])
    with pytest.raises(LedgerError, match="started before"):
        await ledger.append("r", [intent("r", PAY, "u")])
    await ledger.append("r", [ended("c1")])
    with pytest.raises(LedgerError, match="result already"):
        await ledger.append("r", [ended("c1", "failed")])
    settled = {"call_id": "c2", "result": dump_event(ToolResult("c2", "ok", "")), "by": "person"}
    with pytest.raises(LedgerError, match="nothing to settle"):
        await ledger.append("r", [Entry("call_settled", settled)])


async def test_time_never_runs_backwards_within_a_run(open_store: Opener) -> None:
    now = iter([1000.0] * 3 + [500.0] * 50)
    ledger = open_store(clock=lambda: next(now))
    for n in range(4):
        await ledger.append("r", [Entry("turn", {"n": n})])
    dates = [e.at for e in await ledger.read("r")]
    assert dates == sorted(dates)
    assert (await ledger.verify("r")).problems == ()


async def test_what_json_cannot_hold_is_made_plain_and_not_refused(open_store: Opener) -> None:
    ledger = open_store()
    loop: list[Any] = []
    loop.append(loop)
    await ledger.append("r", [Entry("turn", {"nan": float("nan"), "set": {2, 1}, "bytes": b"\xff", "loop": loop})])
    (entry,) = await ledger.read("r")
    json.dumps(dict(entry.data), allow_nan=False)
    assert entry.data["set"] == [1, 2]
    deep: Any = {"password": "hunter22"}
    for _ in range(400):
        deep = [deep]
    await ledger.append("deep", [Entry("turn", {"deep": deep})])
    (entry,) = await ledger.read("deep")
    assert json.dumps(entry.data["deep"]) == "[" * 400 + '{"password": "[masked]"}' + "]" * 400


async def test_secrets_are_masked_before_they_are_stored(open_store: Opener) -> None:
    ledger = open_store()
    login = ToolCall("c1", "login", {"user": "bob", "Pass-Word": "hunter22", "note": "key sk-abcdefghijklmnop1234"})
    await ledger.append("r", [started(prompt="my token is ghp_abcdefghijklmnopqrst1234"), intent("r", login, "u")])
    text = json.dumps([dict(e.data) for e in await open_store().read("r")])
    assert "hunter22" not in text
    assert "sk-abc" not in text
    assert "ghp_" not in text
    assert (await ledger.run("r")).prompt == "my token is [masked]"  # type: ignore[union-attr]
    wanted = arguments_hash("login", login.arguments, key=b"")
    found = await ledger.find_write(principal="u", tool="login", arguments_hash=wanted, run_id="r")
    assert found is not None  # identical calls are still known by the hash of what was really asked


async def test_masked_places_are_named_out_of_band(open_store: Opener) -> None:
    ledger = open_store()
    login = ToolCall("c1", "login", {"a/b": [{"password": "hunter22"}], "note": "[masked]", "~": "ghp_" + "a" * 24})
    proposed = Entry("call_proposed", {"call": dump_event(login)})
    await ledger.append("r", [proposed, Entry("turn", {"text": "[masked]"})])
    entry, plain = await open_store().read("r")
    assert entry.data["masked"] == ["/call/arguments/a~1b/0/password", "/call/arguments/~0"]
    assert "masked" not in plain.data
    assert (await ledger.verify()).problems == ()


async def test_what_json_cannot_hold_changes_nothing_beside_it(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r", [Entry("turn", {"amount": float("inf"), "id": "\ud800", "n": 2**90})])
    (entry,) = await ledger.read("r")
    assert dict(entry.data) == {"amount": "inf", "id": "\ud800", "n": 2**90}


# --- runs ---------------------------------------------------------------------------------------------------------


async def test_runs_are_listed_last_first(open_store: Opener) -> None:
    ledger = open_store()
    for n, (name, reason) in enumerate([("a", "answered"), ("b", "waiting"), ("c", None)]):
        await ledger.append(name, [started("u" if n else "v", f"prompt {name}")])
        if reason:
            await ledger.append(name, [Entry("run_finished", {"reason": reason})])
        await asyncio.sleep(0.002)
    runs = await ledger.runs()
    assert [(r.run_id, r.reason, r.prompt) for r in runs] == [
        ("c", None, "prompt c"),
        ("b", "waiting", "prompt b"),
        ("a", "answered", "prompt a"),
    ]
    assert [r.run_id for r in await ledger.runs(limit=1)] == ["c"]
    assert [r.run_id for r in await ledger.runs(reason="open")] == ["c"]
    assert [r.run_id for r in await ledger.runs(reason="waiting")] == ["b"]
    assert [r.run_id for r in await ledger.runs(principal="v")] == ["a"]
    assert [r.run_id for r in await ledger.runs(before=runs[0].updated)] == ["b", "a"]
    await ledger.append("b", [Entry("run_started", {"model": "m", "principal": "u", "resumed": True})])
    taken_up = await ledger.run("b")
    assert taken_up is not None
    assert (taken_up.reason, taken_up.prompt, taken_up.entries) == (None, "prompt b", 3)


# --- identical writes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "same_run", "other_run"),
    [
        (None, True, True),  # started, and nothing came back
        ("unknown_outcome", True, True),
        ("ok", True, False),
        ("failed", False, False),
        ("not_found", False, False),
        ("denied", False, False),
        ("not_started", False, False),
    ],
)
async def test_an_identical_write_is_answered_from_the_ledger(
    open_store: Opener, status: str | None, same_run: bool, other_run: bool
) -> None:
    ledger = open_store()
    await ledger.append("r", [started(), intent("r", PAY, "u")])
    if status:
        await ledger.append("r", [ended("c1", status)])
    for who in (ledger, open_store()):
        assert (await find(who, "r") is not None) == same_run
        assert (await find(who, "other") is not None) == other_run
        assert await find(who, "other", "somebody else") is None
        assert await find(who, "r", key="another key") is None
        assert (await find(who, "r", key=idempotency_key("r", "c1")) is not None) == same_run


async def test_a_write_is_known_also_if_its_id_looks_like_a_secret(open_store: Opener) -> None:
    """An id is a name: an answer, a lookup and a settlement find the call by it, so it is not masked."""
    ledger = open_store()
    await ledger.append("r", [started(), intent("r", replace(PAY, id="sk-abcdefghijklmnop1234"), "u")])
    await ledger.append("r", [ended("sk-abcdefghijklmnop1234")])
    for who in (ledger, open_store()):
        found = await find(who, "r")
        assert found is not None
        assert found.call_id == "sk-abcdefghijklmnop1234"
        assert [e.data.get("masked") for e in await who.read("r")] == [None] * 3
        assert await who.write("r", found.call_id) == found
        assert (await who.result("r", found.call_id)).status == "ok"  # type: ignore[union-attr]


async def test_a_write_that_is_still_running_elsewhere_is_not_unknown(open_store: Opener) -> None:
    ledger = open_store()
    async with ledgers.hold(ledger, "r") as held:
        await ledger.append("r", [started(), intent("r", PAY, "u")], fence=held.fence)
        assert await find(ledger, "other") is None
        assert await find(ledger, "r") is not None
    assert await find(ledger, "other") is not None


async def test_what_is_settled_later_is_what_is_known(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r", [started(), intent("r", PAY, "u"), ended("c1", "unknown_outcome")])
    before = await ledger.write("r", "c1")
    assert before is not None
    assert before.unknown
    result = ToolResult("c1", "ok", "it was paid")
    await ledger.append("r", [Entry("call_settled", {"call_id": "c1", "result": dump_event(result), "by": "person"})])
    after = await open_store().write("r", "c1")
    assert after is not None
    assert (after.result, after.settled_by, after.unknown) == (result, "person", False)
    assert await find(ledger, "other") is None
    assert (await ledger.result("r", "c1")).status == "unknown_outcome"  # type: ignore[union-attr]
    early = dump_event(ToolResult("c1", "failed", "a person saw that nothing happened"))
    settled = Entry("call_settled", {"call_id": "c1", "result": early, "by": "person"})
    await ledger.append("s", [started(), intent("s", PAY, "u"), settled, ended("c1", "unknown_outcome")])
    assert (await ledger.write("s", "c1")).result.status == "failed"  # type: ignore[union-attr]
    assert (await ledger.verify()).problems == ()


# --- leases -------------------------------------------------------------------------------------------------------


async def test_of_many_that_take_up_one_run_exactly_one_wins(open_store: Opener) -> None:
    first = open_store()
    await first.append("r", [started()])
    stores = [first, *(open_store() for _ in range(4))]
    outcomes = await asyncio.gather(*(s.lease("r") for s in stores * 3), return_exceptions=True)
    won = [o for o in outcomes if not isinstance(o, BaseException)]
    assert len(won) == 1
    assert all(isinstance(o, RunBusy) for o in outcomes if o is not won[0])
    await stores[1].release(won[0])
    assert (await stores[2].lease("r")).fence == won[0].fence + 1


async def test_the_old_owner_writes_nothing_more(open_store: Opener) -> None:
    ledger = open_store()
    old = await ledger.lease("r", seconds=0.0)  # has run out already
    await ledger.append("r", [started()], fence=old.fence)
    new = await open_store().lease("r")
    with pytest.raises(RunBusy):
        await ledger.append("r", [Entry("turn", {})], fence=old.fence)
    with pytest.raises(RunBusy):
        await ledger.renew(old)
    await ledger.release(old)
    await ledger.append("r", [Entry("turn", {})], fence=new.fence)
    assert [e.kind for e in await ledger.read("r")] == ["run_started", "turn"]


async def test_a_fence_of_a_run_that_was_removed_fits_no_later_one(open_store: Opener) -> None:
    ledger = open_store()
    never = await ledger.lease("r")
    await ledger.release(never)  # nothing was written, so nothing is left
    old = await ledger.lease("r")
    await ledger.append("r", [started(), Entry("run_finished", {"reason": "answered"})], fence=old.fence)
    await ledger.release(old)
    assert (await ledger.prune(older_than=-10)).run_ids == ("r",)
    new = await open_store().lease("r")
    assert len({never.fence, old.fence, new.fence}) == 3
    for stale in (never, old):
        with pytest.raises(RunBusy):
            await ledger.append("r", [Entry("turn", {})], fence=stale.fence)
        await ledger.release(stale)
    assert len(await ledger.append("r", [started()], fence=new.fence)) == 1


async def test_a_lease_of_a_dead_process_is_free_at_once_and_one_of_another_machine_is_not(open_store: Opener) -> None:
    from callgate.ledger import _owners

    place, _, _, nonce = _owners.me().split("/")
    ledger = open_store()
    await ledger.lease("r", owner=f"{place}/{2**22 + 1}/1/{nonce}", seconds=60)
    await ledger.lease("r", owner=f"another-machine/{2**22 + 1}/1/{nonce}", seconds=60)
    with pytest.raises(RunBusy, match="another-machine"):
        await ledger.lease("r")


async def test_a_held_lease_is_renewed_and_hears_of_a_wish_to_cancel(open_store: Opener) -> None:
    ledger = open_store()
    async with ledgers.hold(ledger, "r", seconds=1.5) as held:
        assert await ledger.run("r") is None
        await ledger.append("r", [started()], fence=held.fence)
        assert (await ledger.run("r")).owner == held.lease.owner  # type: ignore[union-attr]
        await asyncio.sleep(1.8)
        with pytest.raises(RunBusy):
            await open_store().lease("r")
        assert not held.cancelled.is_set()
        assert await open_store().cancel("r")
        await asyncio.wait_for(held.cancelled.wait(), 5)
    assert not await ledger.cancel("r")
    assert not await ledger.cancel("nobody")
    assert (await ledger.run("r")).owner is None  # type: ignore[union-attr]


async def test_a_lost_lease_is_noticed(open_store: Opener) -> None:
    ledger = open_store()
    async with ledgers.hold(ledger, "r", seconds=1.0) as held:
        owner = held.lease.owner
        await ledger.lease("r", owner=owner)  # the same name again: a new fence, so the old one has lost
        await asyncio.wait_for(held.lost.wait(), 5)
        with pytest.raises(RunBusy):
            await ledger.append("r", [started()], fence=held.fence)


# --- keeping ------------------------------------------------------------------------------------------------------


async def test_prune_removes_old_runs_but_none_that_is_needed(open_store: Opener) -> None:
    now = 1000.0
    ledger = open_store(clock=lambda: now)
    await ledger.append(
        "old", [started(), intent("old", PAY, "u"), ended("c1"), Entry("run_finished", {"reason": "answered"})]
    )
    await ledger.append("unknown", [started(), intent("unknown", replace(PAY, id="c2"), "u")])
    await ledger.lease("held", seconds=10_000)
    await ledger.append("held", [started()])
    now = 5000.0
    await ledger.append("new", [started()])
    pruned = await ledger.prune(older_than=3600)
    assert (pruned.run_ids, pruned.entries) == (("old",), 4)
    assert sorted(r.run_id for r in await ledger.runs()) == ["held", "new", "unknown"]
    assert (await ledger.write("old", "c1"), await ledger.result("old", "c1")) == (None, None)
    assert (await ledger.prune(older_than=3600, keep_unknown=False)).run_ids == ("unknown",)
    assert (await ledger.prune(older_than=3600)).runs == 0
    assert (await ledger.verify()).problems == ()


async def test_prune_brings_the_ledger_under_its_size(open_store: Opener) -> None:
    ledger = open_store()
    for n in range(10):
        await ledger.append(f"r{n}", [Entry("turn", {"text": "x" * 1000})])
        await asyncio.sleep(0.002)
    pruned = await ledger.prune(max_size=5000)
    assert pruned.run_ids == tuple(f"r{n}" for n in range(6))
    assert sum(r.size for r in await ledger.runs()) <= 5000
    assert (await ledger.prune(max_size=5000)).runs == 0


async def test_a_scan_goes_through_everything_in_order(open_store: Opener) -> None:
    ledger = open_store()
    for name in ("b", "a", "ü\\\x00"):
        await ledger.append(name, [Entry("turn", {"n": n}) for n in range(600)])
    seen: dict[str, list[int]] = {}
    async for name, entry in ledger.scan():
        seen.setdefault(name, []).append(entry.seq)
    assert seen == {name: list(range(1, 601)) for name in ("b", "a", "ü\\\x00")}
    assert len([1 async for _ in ledger.scan(run_id="a")]) == 600
    assert [1 async for _ in ledger.scan(since=9e12)] == []


async def test_a_closed_ledger_takes_nothing_more(open_store: Opener) -> None:
    ledger = open_store()
    await ledger.append("r", [started()])
    await ledger.aclose()
    with pytest.raises(LedgerError, match="closed"):
        await ledger.append("r", [started()])


@pytest.mark.parametrize("where", ["", "file", "redis://x", "sqlite:", "sqlite::memory:", "_sql:x"])
def test_an_unknown_store_is_refused_with_what_to_write(where: str) -> None:
    with pytest.raises(ConfigError, match="memory"):
        ledgers.open(where)


def test_an_open_ledger_is_given_back_as_it_is() -> None:
    ledger = ledgers.open()
    assert ledgers.open(ledger) is ledger
    assert isinstance(ledger, Ledger)


async def test_arguments_nested_beyond_any_recursion_are_kept_or_refused_as_ours(open_store: Opener) -> None:
    ledger = open_store()
    for depth in (500, 3000, 100_000):
        deep: Any = {"password": "hunter2hunter"}
        for _ in range(depth):
            deep = [deep]
        call = ToolCall("c", "login", {"deep": deep})
        entry = Entry(
            "call_proposed", {"call": {"id": f"c{depth}", "arguments": call.arguments}}, held={"c": {"d": deep}}
        )
        try:
            await ledger.append("r", [entry])
            await ledger.held("r")
        except LedgerError:
            continue
    entries = await ledger.read("r")
    assert "hunter2" not in repr(entries)
