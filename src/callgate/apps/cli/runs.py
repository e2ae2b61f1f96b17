"""The recorded runs: list them, show one, take one up again, cancel one.

One law: looking changes nothing, and no run is ever carried out twice at once.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from callgate.apps.cli._ledgers import brief, date, json_option, ledger_option, say, say_json, with_ledger
from callgate.apps.cli._options import Said, agent_of, shared
from callgate.errors import LedgerError

if TYPE_CHECKING:
    from callgate.config import Config
    from callgate.ledger import Ledger, RunInfo
    from callgate.types import Entry


@click.group()
def command() -> None:
    """The runs in the ledger."""


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--principal", metavar="ID", help="Only those on behalf of this principal.")
@click.option("--reason", metavar="REASON", help='Only those that ended so: answered, waiting …; "open": no end yet.')
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
        state = info.reason or ("running" if info.owner else "cut off")
        say(f"{info.run_id}  {date(info.updated)}  {state:14}  {brief(info.prompt, 60)}")


def _info(info: RunInfo) -> dict[str, Any]:
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
        return await ledger.read(run_id)

    entries = with_ledger(where, work)
    if not entries:
        raise LedgerError(f"run {run_id!r}: the ledger has no such run; see `callgate runs list`")
    for entry in entries:
        if as_json:
            say_json({"seq": entry.seq, "at": entry.at, "kind": entry.kind, "data": dict(entry.data)})
        else:
            say(f"{entry.seq:4}  {date(entry.at)[11:]}  {entry.kind:13}  {_story(entry)}".rstrip())


def _story(entry: Entry) -> str:
    """The entry in one line."""
    data = entry.data
    match entry.kind:
        case "run_started":
            again = "taken up again; " if data.get("resumed") else ""
            return f"{again}model {data['model']}, principal {data['principal']}: {brief(data.get('prompt', ''), 80)}"
        case "request" if "failed" in data:
            return f"failed: {brief(data['failed'].get('error', ''), 90)}"
        case "request":
            return f"{data.get('n', '')} ({data.get('protocol', '')})"
        case "delta_merged":
            return brief([_delta(d) for d in data["deltas"]], 100)
        case "turn":
            return f"{data.get('turn', '')} {data.get('finish', '')} {data.get('usage') or ''}"
        case "call_proposed":
            call = data["call"]
            return f"{call['id']} {call['name']} {brief(call.get('arguments', call.get('text', '')), 90)}"
        case "call_judged":
            verdict = data["verdict"]
            return f"{data['call_id']} {verdict['type']} {verdict.get('rule', '')} {verdict.get('reason', '')}"
        case "call_intent":
            return f"{data['call_id']} {data['tool']} {brief(data['arguments'], 60)} key {data['key']}"
        case "call_result" | "call_settled":
            result = data["result"]
            by = f" by {data['by']}" if "by" in data else ""
            return f"{data['call_id']}{by} {result['status']}: {brief(result['content'], 90)}"
        case "message":
            return f"{data['message']['role']}: {brief(data['message'].get('content', ''), 90)}"
        case "run_finished":
            return f"{data['reason']} {brief(data.get('error') or '', 90)}"
        case _:
            return brief({k: v for k, v in data.items() if k != "t"}, 100)


def _delta(delta: dict[str, Any]) -> Any:
    return delta.get("text") or delta.get("arguments") or delta.get("reason") or delta.get("type")


@command.command()
@click.argument("run_id")
@click.option("--yes", "yes", multiple=True, metavar="CALL", help="Allow this waiting call.")
@click.option("--no", "no", multiple=True, metavar="CALL", help="Decline this waiting call.")
@shared
def resume(run_id: str, yes: tuple[str, ...], no: tuple[str, ...], **values: Any) -> None:
    """Takes up a run that waits for a person, or that was cut off.

    Give the same model and tools as before. Finished calls do not run again, and a write that was started is looked up.
    """
    from callgate.apps import session, tui
    from callgate.apps.cli.ask import status_of

    said = Said(**values)
    view = tui.view(sys.stdout)
    agent = agent_of(said, session.asker(said.approve, view))
    answers = dict.fromkeys(yes, True) | dict.fromkeys(no, False)
    result = asyncio.run(session.once(agent, agent.stream_resume(run_id, answers), view))
    sys.exit(status_of(result, told=True))


@command.command()
@click.argument("run_id")
@ledger_option
def cancel(run_id: str, where: str | None) -> None:
    """Cancels a run, in whatever process it is carried out; one that waits or was cut off is closed."""
    from callgate import ledger as ledgers

    async def work(ledger: Ledger, settings: Config) -> str:
        if await ledger.cancel(run_id):
            return "its process was asked to stop; what it has started will be recorded"
        if await ledgers.close(ledger, run_id):
            return "closed as cancelled"
        if (info := await ledger.run(run_id)) is None:
            raise LedgerError(f"run {run_id!r}: the ledger has no such run; see `callgate runs list`")
        return f"it has ended already ({info.reason})"

    say(f"run {run_id}: {with_ledger(where, work)}")
