"""A run against a real bank, in a process of its own that is killed where the test says. Used by test_crash.py.

Started as a program it is a nursery: it has everything imported, reads a list of orders a line (JSON) from standard
input, forks a process for each, and writes one line with their wait statuses when all have ended.

The bank is an SQLite file. A model that is scripted by what it sees asks for every payment of `PAYMENTS` that has no
good result yet, with a look at the balance in between.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from callgate import Agent, NoEffect, Replay, tool
from callgate.errors import LedgerError, RunBusy
from callgate.ledger import postgres as postgres_store
from callgate.ledger import sqlite as sqlite_store
from callgate.ledger._writer import Writer
from callgate.tools import Inject, Tool
from callgate.types import Principal, Request

PAYMENTS = (("bob", 100), ("eve", 250), ("bob", 75), ("kim", 5))
START = 1000


# --- where it dies ------------------------------------------------------------------------------------------------


class Death:
    """Kills this process at the n-th passing of a point."""

    def __init__(self, point: str | None, number: int) -> None:
        self.point = point
        self.number = number
        self.passed: Counter[str] = Counter()

    def pass_(self, point: str) -> None:
        self.passed[point] += 1
        if point == self.point and self.passed[point] == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(10)


death = Death(None, 0)


def lay_points() -> None:
    """Puts the points around every append and every transaction of the ledger."""
    append = sqlite_store.Store.append
    carry_out = sqlite_store._carry_out
    submit = Writer.submit

    async def appending(self: Any, run_id: str, entries: Any, **named: Any) -> Any:
        death.pass_("append.before")
        made = await append(self, run_id, entries, **named)
        death.pass_("append.after")
        return made

    def carrying(task: Any, ask: Any) -> None:
        carry_out(task, ask)
        death.pass_("transaction")

    def submitting(self: Any, work: Any, **named: Any) -> Any:
        def through(ask: Any) -> Any:
            value = work(ask)
            death.pass_("transaction")
            return value

        is_sqlite = isinstance(self._transact.__self__, sqlite_store.Store)
        return submit(self, work if is_sqlite else through, **named)

    sqlite_store.Store.append = appending  # type: ignore[method-assign]
    postgres_store.Store.append = appending  # type: ignore[method-assign]
    sqlite_store._carry_out = carrying
    Writer.submit = submitting  # type: ignore[method-assign]


# --- the bank -----------------------------------------------------------------------------------------------------


def open_bank(path: Path) -> sqlite3.Connection:
    bank = sqlite3.connect(path, timeout=10, isolation_level=None)
    bank.execute("PRAGMA synchronous = OFF")
    return bank


def make_bank(path: Path) -> None:
    bank = open_bank(path)
    bank.execute("CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INTEGER)")
    bank.execute("CREATE TABLE transfers (number INTEGER PRIMARY KEY, key TEXT, receiver TEXT, cents INTEGER)")
    bank.executemany("INSERT INTO accounts VALUES (?, ?)", [("alice", START), ("bob", 0), ("eve", 0), ("kim", 0)])
    bank.close()


def password_of(to: str, cents: int) -> str:
    """What a payment needs to know; the ledger masks it."""
    return f"hunter2-{to}-{cents}"


NOTE = 'def f(password: str): ...  # "api_key": "sk-abcdefghijklmnop12345678", https://user:secret@host/'


def tools_of(path: Path, *, lookup: bool, slow: float = 0.0, masked: bool = False, confirm: bool = False) -> list[Tool]:
    @tool(effect="read")
    def balance(name: str) -> int:
        """Cents on an account."""
        bank = open_bank(path)
        ((cents,),) = bank.execute("SELECT cents FROM accounts WHERE name = ?", (name,)).fetchall()
        bank.close()
        return int(cents)

    def transfer(to: str, cents: int, idempotency_key: Inject[str]) -> str:
        """Sends cents from alice."""
        death.pass_("tool.before")
        time.sleep(slow)
        bank = open_bank(path)
        bank.execute("BEGIN IMMEDIATE")
        bank.execute("INSERT INTO transfers (key, receiver, cents) VALUES (?, ?, ?)", (idempotency_key, to, cents))
        bank.execute("UPDATE accounts SET cents = cents - ? WHERE name = 'alice'", (cents,))
        bank.execute("UPDATE accounts SET cents = cents + ? WHERE name = ?", (cents, to))
        death.pass_("tool.inside")
        bank.execute("COMMIT")
        bank.close()
        death.pass_("tool.after")
        return f"sent {cents} to {to}"

    def find(key: str, arguments: dict[str, Any]) -> str:
        bank = open_bank(path)
        found = bank.execute("SELECT cents FROM transfers WHERE key = ?", (key,)).fetchall()
        bank.close()
        if not found:  # whoever started it is dead, so it will not come any more
            raise NoEffect("there is no such transfer")
        return f"sent {found[0][0]} to {arguments['to']}"

    def fault(text: str) -> None:
        with (path.parent / "faults").open("a") as file:
            file.write(text + "\n")

    def is_true(where: str, to: str, cents: int, password: str, note: str) -> None:
        if (password, note) != (password_of(to, cents), NOTE):
            fault(f"{where}: {password!r}, {note!r}")

    def transfer_masked(to: str, cents: int, password: str, note: str, idempotency_key: Inject[str]) -> str:
        """Sends cents from alice."""
        is_true("tool", to, cents, password, note)
        return transfer(to, cents, idempotency_key)

    def find_masked(key: str, arguments: dict[str, Any]) -> str:
        is_true("lookup", **arguments)
        return find(key, arguments)

    sender = Tool.from_function(
        transfer_masked if masked else transfer,
        name="transfer",
        effect="write",
        lookup=(find_masked if masked else find) if lookup else None,
        confirm=confirm,
    )
    return [balance, sender]


def model(masked: bool = False) -> Replay:
    """Asks for the payments that have no result which settles them, two at a time."""

    def reply(request: Request) -> Any:
        calls = {c.id: c for m in request.messages if m.role == "assistant" for c in m.calls}
        settled: set[tuple[str, int]] = set()
        for message in request.messages:
            call = calls.get(message.call_id or "")
            if call is None or call.name != "transfer":
                continue
            if message.text.startswith("sent") or "may have taken effect" in message.text:
                settled.add((call.arguments["to"], call.arguments["cents"]))
        open_ = [p for p in PAYMENTS if p not in settled]
        if not open_:
            return "all paid"
        wanted: list[dict[str, Any]] = [{"name": "balance", "arguments": {"name": "alice"}}]
        for to, cents in open_[:2]:
            more = {"password": password_of(to, cents), "note": NOTE} if masked else {}
            wanted.append({"name": "transfer", "arguments": {"to": to, "cents": cents, **more}})
        return {"content": "paying", "calls": wanted}

    return Replay([reply] * 40)


# --- one life -----------------------------------------------------------------------------------------------------


def live(order: dict[str, Any]) -> None:
    """Begins or takes up the run, and writes down how it went, if it lives to."""
    death.point, death.number = order.get("die") or (None, 0)
    if death.point == "moment":  # so many milliseconds from now, wherever it is then
        threading.Timer(death.number / 1000, os.kill, (os.getpid(), signal.SIGKILL)).start()
    folder = Path(order["folder"])

    async def work() -> dict[str, Any]:
        agent = Agent(
            model(order.get("masked", False)),
            tools=tools_of(
                folder / "bank.db",
                lookup=order["lookup"],
                slow=order.get("slow", 0.0),
                masked=order.get("masked", False),
                confirm=order.get("confirm", False),
            ),
            ledger=order.get("where") or f"sqlite:{folder}/runs.db",
            dialect="hermes",
            max_turns=20,
            repeat_warn=0,
            repeat_stop=0,
        )
        try:
            if await agent.ledger.read("r"):
                result = await agent.resume("r")
            else:
                result = await agent.run("pay everybody", principal=Principal("alice"), run_id="r")
            while result.reason == "waiting":
                result = await agent.resume("r", {call.id: True for call in result.pending})
        except RunBusy as error:
            return {"reason": "busy", "error": str(error)}
        except LedgerError as error:
            return {"reason": "ledger", "error": str(error), "calls": []}
        return {
            "reason": result.reason,
            "error": result.error,
            "text": result.text,
            "calls": [[c.call.id, c.call.name, c.result.status, c.result.replayed] for c in result.calls],
        }

    told = asyncio.run(work()) | {"passed": dict(death.passed)}
    (folder / f"told-{os.getpid()}.json").write_text(json.dumps(told))


def warm_up() -> None:
    """Imports what a run imports on its way, with no thread and no file: what is forked must have neither."""

    @tool(effect="read")
    async def look(name: str) -> str:
        """Looks."""
        return name

    calls = [{"name": "look", "arguments": {"name": "x"}}]
    asyncio.run(Agent(Replay([{"calls": calls}, "done"]), tools=[look], dialect="hermes").run("go"))


def nursery() -> None:
    """Forks the processes of each line of orders, which live at the same time."""
    warm_up()
    lay_points()
    for line in sys.stdin:
        orders = json.loads(line)
        pids = []
        for order in orders:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    live(order)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            pids.append(pid)
        sys.stdout.write(json.dumps([[pid, os.waitpid(pid, 0)[1]] for pid in pids]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    nursery()
