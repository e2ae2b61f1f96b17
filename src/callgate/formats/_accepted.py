"""A request in the form that a vendor accepts, and the way back for what it answers.

Law: tool names are mapped one to one, the same in tools, history and answers, and come back as they were.
(tests/test_vendors.py::test_names_are_mapped_one_to_one_and_back)

Nothing is lost in silence: what a schema had to leave out is a note.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from callgate.errors import ConfigError
from callgate.formats._sent_schema import SchemaRules, sent_schema
from callgate.types import BadCall, CallDelta, Delta, Message, Request, ToolCall, ToolSpec

MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""OpenAI's pattern of a function's name, which its imitators and Gemini took over; Gemini's must not begin with a digit
or a hyphen."""
_HASH = 8


@dataclass(slots=True, frozen=True)
class Accepted:
    """A request as it is sent."""

    request: Request
    names: Mapping[str, str]
    """Sent name -> our name, where they differ."""
    notes: tuple[str, ...] = ()

    def back(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas with our names."""
        if not self.names:
            return deltas
        return [
            replace(delta, name=self.names.get(delta.name, delta.name))
            if isinstance(delta, (CallDelta, ToolCall, BadCall)) and delta.name is not None
            else delta
            for delta in deltas
        ]


def accepted(request: Request, rules: SchemaRules, *, max_tools: int | None = None) -> Accepted:
    """The request with names and schemas that this vendor accepts. Raises ConfigError for more tools than it takes."""
    if max_tools is not None and len(request.tools) > max_tools:
        raise ConfigError(
            f"{len(request.tools)} tools: this server takes at most {max_tools} in one request; leave the protocol to "
            "callgate (protocol='auto'), or give fewer tools"
        )
    sent = sent_names(_names(request))
    notes: list[str] = []
    tools = []
    for tool in request.tools:
        schema, lost = sent_schema(tool.parameters, rules)
        if lost:
            notes.append(f"tool {tool.name}: sent without {', '.join(lost)}; callgate checks them")
        tools.append(_tool(tool, sent, schema))
    changed = {ours: theirs for ours, theirs in sent.items() if ours != theirs}
    messages = tuple(_message(m, changed) for m in request.messages) if changed else request.messages
    out = replace(
        request,
        tools=tuple(tools),
        messages=messages,
        tool_choice=sent.get(request.tool_choice, request.tool_choice),
    )
    return Accepted(out, {theirs: ours for ours, theirs in changed.items()}, tuple(notes))


def _tool(tool: ToolSpec, sent: Mapping[str, str], schema: dict[str, object]) -> ToolSpec:
    return replace(tool, name=sent[tool.name], parameters=schema)


def _names(request: Request) -> set[str]:
    out = {tool.name for tool in request.tools}
    for message in request.messages:
        out.update(call.name for call in message.calls)
        if message.role == "tool" and message.name:
            out.add(message.name)
    return out


def _message(message: Message, sent: Mapping[str, str]) -> Message:
    if message.calls:
        calls = tuple(replace(c, name=sent.get(c.name, c.name)) for c in message.calls)
        return replace(message, calls=calls)
    if message.role == "tool" and message.name is not None and message.name in sent:
        return replace(message, name=sent[message.name])
    return message


def sent_names(names: Iterable[str]) -> dict[str, str]:
    """For each name one that every vendor accepts, itself where it is one; whatever the order, no two alike."""
    ordered = sorted(set(names))
    out = {name: name for name in ordered if _fits(name)}
    taken = set(out)
    cleaned = {name: _clean(name) for name in ordered if name not in out}
    often = list(cleaned.values())
    for name, clean in cleaned.items():
        made, n = clean, 0
        if len(clean) > MAX_NAME or made in taken or often.count(clean) > 1:
            made = _hashed(name, clean, n)
        while made in taken:
            n += 1
            made = _hashed(name, clean, n)
        taken.add(made)
        out[name] = made
    return out


def _fits(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and not (name[0].isdigit() or name[0] == "-")


def _clean(name: str) -> str:
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return clean if clean and not (clean[0].isdigit() or clean[0] == "-") else f"t_{clean}"


def _hashed(name: str, clean: str, n: int) -> str:
    data = name.encode("utf-8", "surrogatepass") + (b"\0%d" % n if n else b"")
    return f"{clean[: MAX_NAME - _HASH - 1]}_{hashlib.sha256(data).hexdigest()[:_HASH]}"
