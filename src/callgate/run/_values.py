"""Entries of the journal, and the values in them, as JSON.

Law: every message of every history can be written and read back. (tests/test_history.py::test_every_history_is_json)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate.events import dump_event, load_event
from callgate.types import CallDelta, Delta, Entry, Message, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from callgate.run._asking import AskingState

Held: TypeAlias = "Mapping[str, Mapping[str, Any]]"
"""Call id -> its true arguments."""


def entry(kind: str, data: Mapping[str, object], now: float, held: Held | None = None) -> Entry:
    """An entry at this time of the run."""
    return Entry(kind, {**data, "t": round(now, 6)}, held=held)


def dump_message(message: Message) -> dict[str, object]:
    """A message as JSON."""
    content = message.content if isinstance(message.content, str) else [dict(part) for part in message.content]
    out: dict[str, object] = {"role": message.role, "content": content}
    if message.reasoning:
        out["reasoning"] = message.reasoning
    if message.calls:
        out["calls"] = [dump_event(call) for call in message.calls]
    if message.call_id is not None:
        out |= {"call_id": message.call_id, "name": message.name}
    # What a format needs back verbatim (signatures of reasoning, citations): a provider refuses a history without it.
    if message.extra:
        out["extra"] = dict(message.extra)
    if message.unknown:
        out["unknown"] = True
    return out


def load_message(data: Mapping[str, Any]) -> Message:
    """The message that `dump_message` wrote. Raises ValueError or TypeError for what is none."""
    content = data.get("content", "")
    return Message(
        data["role"],
        content if isinstance(content, str) else tuple(content),
        data.get("reasoning", ""),
        tuple(load_event(call) for call in data.get("calls", ())),
        data.get("call_id"),
        data.get("name"),
        data.get("extra", {}),
        data.get("unknown") is True,
    )


def dump_asking(asking: AskingState) -> dict[str, object]:
    """What the model's side keeps, as far as it is not as at the beginning."""
    out: dict[str, object] = {}
    for f in dataclasses.fields(asking):
        value = getattr(asking, f.name)
        if value:
            out[f.name] = value
    if "scratch" in out:
        out["scratch"] = [dump_message(m) for m in asking.scratch]
    if "covered" in out:
        out["covered"] = sorted(asking.covered)
    return {"asking": out} if out else {}


def dump_deltas(deltas: Iterable[Delta]) -> list[dict[str, object]]:
    """The deltas of an answer with neighbours merged, as JSON: reading them again gives the same (R1)."""
    return [dump_event(delta) for delta in merged(deltas)]


def merged(deltas: Iterable[object]) -> list[object]:
    """Neighbours of one kind, and of one call, become one."""
    out: list[object] = []
    parts: list[str] = []
    for delta in deltas:
        last: object = out[-1] if out else None
        if isinstance(delta, (TextDelta, ReasoningDelta)):
            # A message of thousands of tokens becomes a handful of entries; reading them again gives the same, by chunk
            # invariance (R1).
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


def _seal(out: list[object], parts: list[str]) -> None:
    if len(parts) > 1:
        whole = "".join(parts)
        last: Any = out[-1]
        call = isinstance(last, CallDelta)
        out[-1] = CallDelta(last.index, last.id, last.name, whole) if call else type(last)(whole)
