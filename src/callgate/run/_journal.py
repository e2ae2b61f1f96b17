"""The journal of a run: its inputs as entries, and a run again from its entries.

One law: what `Run` recorded, fed to a fresh `Run`, gives the same events. Each input has one entry that stands for it:
`run_started` (the start, or a resumption), `delta_merged` (an answer), `request` with "failed", `protocol` with
"scores", `call_intent` (a write began), `call_result`, `answer`, `turn` with "stopping" (the end came from outside),
and `run_finished` with "waiting". All other entries tell people what followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callgate.errors import LedgerError
from callgate.events import Event, dump_event, load_event
from callgate.history import History
from callgate.keys import arguments_hash, idempotency_key
from callgate.policy import Answer
from callgate.protocols import Scores
from callgate.run._words import (
    Answered,
    Began,
    Broke,
    Cancelled,
    Failed,
    Input,
    Parked,
    Ran,
    Received,
    Resumed,
    RunConfig,
    Scored,
    Tick,
)
from callgate.types import CallDelta, Delta, Entry, Message, ReasoningDelta, TextDelta, ToolCall, ToolResult, Verdict

if TYPE_CHECKING:
    from callgate.run._machine import Run


def entry(kind: str, data: Mapping[str, Any], now: float) -> Entry:
    """An entry at this time of the run."""
    return Entry(kind, {**data, "t": round(now, 6)})


def principal(config: RunConfig) -> str | None:
    """The name that the ledger knows the run by."""
    return config.principal.id if config.principal else None


def intent(config: RunConfig, call: ToolCall) -> dict[str, Any]:
    """What must be durable before a write starts (X4)."""
    return {
        "call_id": call.id,
        "tool": call.name,
        "arguments": call.arguments,
        "arguments_hash": arguments_hash(call.name, call.arguments),
        "key": idempotency_key(config.key or config.run_id, call.id),
        "principal": principal(config),
    }


def started(config: RunConfig, history: History) -> dict[str, Any]:
    """What a run is made of, as far as it must be the same when it is taken up again."""
    prompt: list[str] = [m.text for m in history.messages if m.role == "user"]
    return {
        "model": config.info.name,
        "provider": config.info.provider,
        "principal": principal(config),
        "grants": sorted(config.principal.grants) if config.principal else [],
        "protocol": config.protocol,
        "dialect": config.dialect,
        "key": config.key,
        "output": config.output,
        "tools": [spec.name for spec in config.tools],
        "messages": [dump_message(m) for m in history.messages],
        "prompt": prompt[-1] if prompt else "",
        "notes": list(history.notes),
    }


# --- values as JSON -----------------------------------------------------------------------------------------------


def dump_message(message: Message) -> dict[str, Any]:
    """A message as JSON."""
    content = message.content if isinstance(message.content, str) else [dict(part) for part in message.content]
    out: dict[str, Any] = {"role": message.role, "content": content}
    if message.reasoning:
        out["reasoning"] = message.reasoning
    if message.calls:
        out["calls"] = [dump_event(call) for call in message.calls]
    if message.call_id is not None:
        out |= {"call_id": message.call_id, "name": message.name}
    if message.extra:
        out["extra"] = dict(message.extra)
    return out


def load_message(data: Mapping[str, Any]) -> Message:
    """The message that `dump_message` wrote."""
    content = data.get("content", "")
    return Message(
        data["role"],
        content if isinstance(content, str) else tuple(content),
        data.get("reasoning", ""),
        tuple(load_event(call) for call in data.get("calls", ())),
        data.get("call_id"),
        data.get("name"),
        data.get("extra", {}),
    )


def dump_deltas(deltas: Iterable[Delta]) -> list[dict[str, Any]]:
    """The deltas of an answer with neighbours merged, as JSON: reading them again gives the same (R1)."""
    return [dump_event(delta) for delta in merged(deltas)]


def merged(deltas: Iterable[Any]) -> list[Any]:
    """Neighbours of one kind, and of one call, become one."""
    out: list[Any] = []
    parts: list[str] = []
    for delta in deltas:
        last: Any = out[-1] if out else None
        if isinstance(delta, (TextDelta, ReasoningDelta)):
            if type(last) is type(delta):
                parts.append(delta.text)
                continue
            _seal(out, parts)
            parts = [delta.text]
        elif isinstance(delta, CallDelta):
            if isinstance(last, CallDelta) and last.index == delta.index and delta.name is None and delta.id is None:
                parts.append(delta.arguments)
                continue
            _seal(out, parts)
            parts = [delta.arguments]
        else:
            _seal(out, parts)
            parts = []
        out.append(delta)
    _seal(out, parts)
    return out


def _seal(out: list[Any], parts: list[str]) -> None:
    if len(parts) > 1:
        whole = "".join(parts)
        last: Any = out[-1]
        call = isinstance(last, CallDelta)
        out[-1] = CallDelta(last.index, last.id, last.name, whole) if call else type(last)(whole)


def dump_failed(failed: Failed, number: int) -> dict[str, Any]:
    """A request that failed before its first byte."""
    data = {"error": failed.error, "kind": failed.kind, "again": failed.again, "after": failed.after}
    return {"n": number, "failed": data | {"status": failed.status}}


# --- entries as inputs --------------------------------------------------------------------------------------------


def verdicts_of(entries: Iterable[Entry]) -> dict[str, list[Verdict]]:
    """Call id -> the verdicts that were given, in order."""
    out: dict[str, list[Verdict]] = {}
    for e in entries:
        if e.kind == "call_judged":
            out.setdefault(e.data["call_id"], []).append(load_event(e.data["verdict"]))
    return out


def input_of(e: Entry) -> Input | None:
    """The input that an entry stands for, if it stands for one."""
    now = float(e.data.get("t", 0.0))
    match e.kind:
        case "delta_merged":
            return Received([load_event(d) for d in e.data["deltas"]], now)
        case "request" if "failed" in e.data:
            f = e.data["failed"]
            return Failed(f["error"], now, f["kind"], f["again"], f["after"], f.get("status"))
        case "protocol" if "scores" in e.data:
            return Scored(Scores(tuple(tuple(row) for row in e.data["scores"])), now)
        case "call_intent":
            return Began(e.data["call_id"], now)
        case "call_result":
            return Ran(e.data["call_id"], _result(e), e.data.get("duration"), now)
        case "answer":
            answer = Answer(bool(e.data["allow"]), e.data.get("scope", "once"), e.data.get("by", ""))
            return Answered(e.data["call_id"], answer, now, e.data.get("waited", 0.0))
        case "turn" if "stopping" in e.data:
            return _stop(e, now)
        case "run_started" if e.data.get("resumed"):
            return Resumed(now)
        case "run_finished" if e.data["reason"] == "waiting":
            return Parked(now)
        case _:
            return None


def _result(e: Entry) -> ToolResult:
    loaded = load_event({"type": "tool_result", **e.data["result"]})
    assert isinstance(loaded, ToolResult)
    return loaded


def _stop(e: Entry, now: float) -> Input:
    match e.data["stopping"]:
        case "tick":
            return Tick(now)
        case "broke":
            return Broke(e.data.get("error") or "", now)
        case _:
            return Cancelled(now)


def fold(run: Run, entries: Sequence[Entry]) -> list[Event]:
    """Feed a journal to a fresh run; the events that it gave. Its commands were carried out already."""
    if not entries or entries[0].kind != "run_started":
        raise LedgerError("the journal of this run has no beginning: it cannot be taken up again")
    events = list(run.start([load_message(m) for m in entries[0].data["messages"]]).events)
    for e in entries[1:]:
        value = input_of(e)
        if value is None:
            continue
        if isinstance(value, Ran) and not run.calls.waits_for(value.call_id):
            continue  # it was settled by the run itself: denied, replayed, not started
        begun = e.data.get("begun", ())
        if isinstance(value, Ran) and value.duration is not None:
            begun = (value.call_id,)
        for call_id in begun:  # the start of a read has no entry of its own
            if run.calls.unstarted(call_id):
                events += run.receive(Began(call_id, float(e.data["t"]))).events
        events += run.receive(value).events
    return events
