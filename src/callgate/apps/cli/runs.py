"""The recorded runs: list them, show one, resume one, cancel one.

Law: looking changes nothing, and a run that does not exist is not made by naming it.
    (tests/test_cli_ledgers.py::test_naming_a_run_or_a_ledger_that_is_not_there_makes_none)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from callgate.apps.cli._ledgers import brief, date, find_run, json_option, ledger_option, state_of, with_ledger
from callgate.apps.cli._options import Given, agent_of, shared
from callgate.apps.output import name, say, say_json
from callgate.apps.wording import words
from callgate.errors import LedgerError
from callgate.types import RunReason

if TYPE_CHECKING:
    from callgate.agent import RunResult
    from callgate.config import Config
    from callgate.ledger import Ledger, RunInfo
    from callgate.types import Entry


ENDINGS = (*get_args(RunReason), "open")


@click.group()
def command() -> None:
    """The runs in the ledger. RUN_ID may be the beginning of an id, if only one run begins so."""


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--principal", metavar="ID", help="Only those on behalf of this principal.")
@click.option("--reason", type=click.Choice(ENDINGS), metavar="REASON",
              help='Only those that ended so: answered, waiting, token_limit, …; "open": no end yet.')  # fmt: skip
@json_option
@ledger_option
def list_(limit: int, principal: str | None, reason: str | None, as_json: bool, where: str | None) -> None:
    """The latest runs, newest first."""

    async def work(ledger: Ledger, settings: Config) -> list[RunInfo]:
        return await ledger.runs(limit=limit, principal=principal, reason=reason)

    for info in with_ledger(where, work):
        if as_json:
            say_json(_info(info))
            continue
        say(f"{name(info.run_id)}  {date(info.updated)}  {state_of(info):14}  {brief(info.prompt, 60)}")


def _info(info: RunInfo) -> dict[str, object]:
    return {
        "run_id": info.run_id,
        "started": info.started,
        "updated": info.updated,
        "model": info.model,
        "principal": info.principal,
        "prompt": info.prompt,
        "reason": info.reason,
        "running": info.owner is not None,
        "entries": info.entries,
        "size": info.size,
    }


@command.command()
@click.argument("run_id")
@json_option
@ledger_option
def show(run_id: str, as_json: bool, where: str | None) -> None:
    """What happened in a run, entry by entry."""

    async def work(ledger: Ledger, settings: Config) -> list[Entry]:
        return await ledger.read(await find_run(ledger, run_id))

    for entry in with_ledger(where, work):
        if as_json:
            say_json({"seq": entry.seq, "at": entry.at, "kind": entry.kind, "data": dict(entry.data)})
        else:
            say(f"{entry.seq:4}  {date(entry.at)[11:]}  {entry.kind:13}  {_story(entry)}".rstrip())


def _story(entry: Entry) -> str:
    """The entry in one line; what no reader knows is shown as it is."""
    tell = _STORIES.get(entry.kind)
    if tell is None:
        return brief({k: v for k, v in entry.data.items() if k != "t"}, 100)
    return tell(entry.data)


def _begun(data: Mapping[str, object]) -> str:
    again = "resumed; " if data.get("resumed") else ""
    who = f", on behalf of {brief(data['principal'], 40)}" if data.get("principal") else ""
    return f"{again}model {data['model']}{who}: {brief(data.get('prompt', ''), 80)}"


def _request(data: Mapping[str, Any]) -> str:
    if "failed" in data:
        return f"failed: {brief(data['failed'].get('error', ''), 90)}"
    return f"{data.get('n', '')} (protocol {data.get('protocol', '')})"


def _turn(data: Mapping[str, Any]) -> str:
    usage = data.get("usage") or {}
    tokens = ", ".join(f"{count} {what}" for what, count in usage.items())
    return f"{data.get('turn', '')} {words(str(data.get('finish', '')))}{f' (tokens: {tokens})' if tokens else ''}"


def _proposed(data: Mapping[str, Any]) -> str:
    call = data["call"]
    return f"{call['id']} {call['name']} {brief(call.get('arguments', call.get('text', '')), 90)}"


def _judged(data: Mapping[str, Any]) -> str:
    verdict = data["verdict"]
    return f"{data['call_id']} {verdict['type']} {verdict.get('rule', '')} {verdict.get('reason', '')}"


def _answer(data: Mapping[str, Any]) -> str:
    by = f" by {data['by']}" if data.get("by") else ""
    tool = ", and its tool in this run" if data.get("scope") == "tool" else ""
    return f"{data['call_id']} {'allowed' if data['allow'] else 'declined'}{by}{tool}"


def _result(data: Mapping[str, Any]) -> str:
    result = data["result"]
    by = f" by {data['by']}" if "by" in data else ""
    return f"{data['call_id']}{by} {words(result['status'])}: {brief(result['content'], 90)}"


def _message(data: Mapping[str, Any]) -> str:
    return f"{data['message']['role']}: {brief(data['message'].get('content', ''), 90)}"


_STORIES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "run_started": _begun,
    "request": _request,
    "delta_merged": lambda data: brief([_delta(d) for d in data["deltas"]], 100),
    "turn": _turn,
    "call_proposed": _proposed,
    "call_judged": _judged,
    "ask": lambda data: f"{data['call_id']} {data['tool']}: {brief(data['reason'], 90)} ({data['rule']})",
    "answer": _answer,
    "call_intent": lambda data: f"{data['call_id']} {data['tool']} {brief(data['arguments'], 60)} key {data['key']}",
    "call_result": _result,
    "call_settled": _result,
    "message": _message,
    "run_finished": lambda data: f"{words(data['reason'])} {brief(data.get('error') or '', 90)}",
}


def _delta(delta: dict[str, object]) -> object:
    return delta.get("text") or delta.get("arguments") or delta.get("reason") or delta.get("type")


@command.command()
@click.argument("run_id")
@click.option("--yes", "yes", multiple=True, metavar="CALL", help="Allow this waiting call: 1, 2, …")
@click.option("--no", "no", multiple=True, metavar="CALL", help="Decline this waiting call.")
@shared
def resume(run_id: str, yes: tuple[str, ...], no: tuple[str, ...], **values: Any) -> None:
    """Resumes a run that waits for approval or was interrupted.

    Give the same model and tools as before. Finished calls do not run again, and a write that was started is looked up.
    """
    from callgate.apps import session, tui
    from callgate.apps.cli._resume import Known, check
    from callgate.apps.cli.ask import carried, status_of

    given = Given(**values)
    if both := set(yes) & set(no):
        raise click.UsageError(f"--yes and --no for the same call: {', '.join(sorted(both))}")

    async def look(ledger: Ledger, settings: Config) -> Known:
        known = await Known.of(ledger, run_id)
        if given.model is None:
            known.check_default(settings.model)
        return known

    known = with_ledger(given.ledger, look)
    answers = known.answers(dict.fromkeys(yes, True) | dict.fromkeys(no, False))
    desk = session.Desk(tui.view(sys.stdout), given.approve, answered=answers)
    agent = agent_of(given, desk.approve)
    desk.provider = agent.provider

    async def work() -> tuple[RunResult, list[str]]:
        await check(known, agent, given)
        return await carried(agent, agent.stream_resume(known.run_id, answers), desk, given)

    result, hint = asyncio.run(work())
    sys.exit(status_of(result, hint, shown=True))


@command.command()
@click.argument("run_id")
@ledger_option
def cancel(run_id: str, where: str | None) -> None:
    """Cancels a run, in whatever process it is carried out; a waiting or interrupted run is closed."""
    from callgate import ledger as ledgers

    async def work(ledger: Ledger, settings: Config) -> str:
        found = await find_run(ledger, run_id)
        if await ledger.cancel(found):
            return f"run {found}: its process was asked to stop; what it has started will be recorded"
        if await ledgers.close(ledger, found):
            return f"run {found}: closed as cancelled"
        info = await ledger.run(found)
        if info is None:  # pruned this very moment
            raise LedgerError(f"run {found!r}: the ledger has no such run; see `callgate runs list`")
        return f"run {found}: it has ended already ({state_of(info)})"

    say(with_ledger(where, work))
