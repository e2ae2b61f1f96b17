"""The journal of a run: what happened, as entries.

Law: an entry holds what was read and decided, so that nothing of it has to be read or decided anew.
(tests/test_run_restore.py::test_a_journal_gives_the_state_of_the_live_run_at_every_step)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from callgate.events import dump_event
from callgate.history import History
from callgate.keys import idempotency_key
from callgate.memo import Memo
from callgate.run._batch import Checked, Item
from callgate.run._values import dump_message
from callgate.run.inputs import Failed, RunConfig
from callgate.types import BadCall, ToolSpec

SHAPE = 2
"""Of the journal as a whole: 1 recorded inputs, 2 records what was read of them."""
ANNOTATIONS = frozenset({"title", "description", "examples", "deprecated", "$comment", "default"})
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_dump = json.JSONEncoder(sort_keys=True, default=str).encode


def principal(config: RunConfig) -> str | None:
    """The name that the ledger knows the run by."""
    return config.principal.id if config.principal else None


def started(config: RunConfig, history: History) -> dict[str, object]:
    """What a run is made of, as far as it must be the same when it is taken up again."""
    # For the list of runs: the last message of the user is what this run is about.
    prompt: list[str] = [m.text for m in history.messages if m.role == "user"]
    return {
        "shape": SHAPE,
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


def resumed(config: RunConfig) -> dict[str, object]:
    """What may be another thing than at the start."""
    data = {"model": config.info.name, "provider": config.info.provider, "principal": principal(config)}
    return {**data, "resumed": True, "tools": [spec.name for spec in config.tools]}


def proposed(config: RunConfig, checked: Checked, hash: str, turn: int) -> dict[str, object]:
    """A call as it was read and checked: a resumed run reads nothing of it anew."""
    call = checked.call
    data: dict[str, object] = {"call": dump_event(call), "turn": turn, "notes": list(checked.notes)}
    if isinstance(checked.shown, BadCall):
        data["bad"] = dump_event(checked.shown)
    # It never runs, so it has neither key nor hash.
    if checked.refusal is not None:
        return {**data, "refusal": dump_event(checked.refusal)}
    key = idempotency_key(config.key or config.run_id, call.id)
    data |= {"arguments_hash": hash, "key": key}
    return data | ({"tool": identity(checked.spec)} if checked.spec is not None else {})


def intent(config: RunConfig, item: Item) -> dict[str, object]:
    """What must be durable before a write starts (X4)."""
    return {
        "call_id": item.call.id,
        "tool": item.call.name,
        "arguments": item.call.arguments,
        "arguments_hash": item.hash,
        "key": idempotency_key(config.key or config.run_id, item.call.id),
        "principal": principal(config),
    }


def _identity(spec: ToolSpec) -> Mapping[str, object]:
    """What must be the same of a tool when a call that waits or has begun is taken up again (X2): its parameters
    without what only describes them, its effect and its permission."""
    return {
        "effect": spec.effect,
        "permission": spec.permission,
        # The schema as a digest: it may be long, it stands at every call, and only equality matters.
        "parameters": hashlib.sha256(_dump(_bare(spec.parameters)).encode()).hexdigest()[:32],
        "fields": sorted(map(str, spec.parameters.get("properties") or ())),
    }


identity = Memo(_identity)
"""See `_identity`. It stands at every call, and a schema may be long."""


def _bare(schema: object) -> object:
    """A schema without its annotations (JSON Schema 2020-12, 9); names of properties are none of them."""
    if isinstance(schema, (list, tuple)):
        return [_bare(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, object] = {}
    for name, part in schema.items():
        if name in NAMED and isinstance(part, Mapping):
            out[name] = {key: _bare(value) for key, value in part.items()}
        elif name not in ANNOTATIONS:
            out[name] = part if name in ("const", "enum") else _bare(part)
    return out


def dump_failed(failed: Failed, number: int) -> dict[str, object]:
    """A request that failed before its first byte."""
    data = {"error": failed.error, "kind": failed.kind, "again": failed.again, "after": failed.after}
    return {"n": number, "failed": data | {"status": failed.status}}
