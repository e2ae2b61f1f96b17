"""The words of the house: what passes between its rooms.

Law: a value that has left its maker never changes.
(tests/test_leaves.py::test_every_value_is_frozen_but_the_deltas)

Deltas are made once a token, so they are slotted only (0.1 us each) and by agreement never assigned to; all else is
frozen too.

This file is a leaf: it imports nothing of callgate but its errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from callgate.errors import ConfigError

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
Schema: TypeAlias = Mapping[str, Any]
Usage: TypeAlias = Mapping[str, int]
"""Tokens: `input`, `output`, and where the server tells `cached`, `reasoning`."""


class _Empty(dict[str, Any]):
    """An empty mapping that stays empty: values hold it by default, and they never change. Unlike a `MappingProxyType`
    it can be pickled, copied and written as JSON, and with it every value that holds it."""

    __slots__ = ()

    def _fixed(self, *_: object, **__: object) -> Any:
        raise TypeError("this mapping is part of a value, and values never change")

    if not TYPE_CHECKING:  # checkers know it as a Mapping, which has none of these
        __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _fixed

    def __reduce__(self) -> str:
        return "EMPTY"


EMPTY: Mapping[str, Any] = _Empty()

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "error", "interrupted"]
SOUND: frozenset[str] = frozenset({"stop", "tool_calls"})
"""The ends of a turn after which its calls may run (X1); after any other every call is incomplete."""

Flag: TypeAlias = Literal["repaired", "recovered", "renamed", "loose", "mentioned"]
Effect: TypeAlias = Literal["read", "write"]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Status: TypeAlias = Literal[
    "ok",
    "invalid_arguments",
    "unknown_tool",
    "denied",
    "not_found",
    "timeout",
    "upstream_error",
    "failed",
    "cancelled",
    "not_started",
    "unknown_outcome",
]
BadReason: TypeAlias = Literal["malformed", "truncated", "too_large", "unsound_end"]
RunReason: TypeAlias = Literal[
    "answered",
    "waiting",
    "turn_limit",
    "request_limit",
    "time_limit",
    "token_limit",
    "call_limit",
    "repetition",
    "cancelled",
    "refused",
    "output_invalid",
    "provider_error",
]


# --- deltas: what a turn is made of -------------------------------------------------------------------------------


@dataclass(slots=True)
class TextDelta:
    """Text that people may see, as it grows."""

    text: str


@dataclass(slots=True)
class ReasoningDelta:
    """The model's thinking, as it grows."""

    text: str


@dataclass(slots=True)
class CallDelta:
    """A call in progress. The first one of an index carries the name (and the id, if the text has one)."""

    index: int
    id: str | None
    name: str | None
    arguments: str
    """A fragment of JSON text; all fragments of one index together are valid JSON, equal to the final arguments."""


@dataclass(slots=True, frozen=True)
class ToolCall:
    """A call whose text is complete. Whether it may run is another question."""

    id: str
    name: str
    arguments: dict[str, Any]
    index: int = 0
    flags: frozenset[str] = frozenset()
    """Which liberties were taken to read it (`Flag`). No flagged write runs, and nothing that is `mentioned`."""
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY, compare=False)
    """Fields of the provider that must be sent back with the call (thought signatures)."""


@dataclass(slots=True, frozen=True)
class BadCall:
    """A call that was cut off or cannot be read. It never runs."""

    index: int
    id: str | None
    name: str | None
    text: str
    """Its arguments as they came, to the character."""
    reason: BadReason = "truncated"
    flags: frozenset[str] = frozenset()
    """`mentioned`: it stands where a call is only quoted or described, and nobody need be told that it is broken."""


@dataclass(slots=True, frozen=True)
class Finish:
    """How a message ended. Exactly one, and the last delta of every message."""

    reason: FinishReason
    usage: Usage | None = None
    raw: str | None = None
    """What the server called it."""
    error: str | None = None
    problems: tuple[str, ...] = ()
    """What was odd in this message, and what was done about it."""
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY, compare=False)
    """What the server wants back with a message that has no call (`CAME`); with calls the first one carries it."""


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta | ToolCall | BadCall | Finish


@dataclass(slots=True, frozen=True)
class Reply:
    """One whole message of a model."""

    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    incomplete: list[BadCall] = field(default_factory=list)
    finish: FinishReason = "stop"
    raw_finish: str | None = None
    error: str | None = None
    usage: Usage | None = None
    problems: list[str] = field(default_factory=list)
    source: str | None = None
    """The message as it was written, with the markup of its calls and without its reasoning; only if a call in it was
    merely mentioned."""
    other_choices: Mapping[int, list[ToolCall]] = field(default_factory=dict)
    """The calls of further choices, by their number, where several were asked for (`n` > 1)."""
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY, compare=False)
    """What the server wants back with a message that has no call: the `extra` of its `Message`."""


CAME = "message"
"""The key of `extra` of a call or a message with fields that stand in the message around it: how its reasoning came,
and what else must be sent back beside it. A field whose value is None holds the message's reasoning text itself."""


# --- what is asked ------------------------------------------------------------------------------------------------

Part: TypeAlias = Mapping[str, Any]
"""A content part in the OpenAI form: {"type": "text", "text": …}, {"type": "image_url", "image_url": {"url": …}}."""


@dataclass(slots=True, frozen=True)
class Message:
    """One message of a conversation.

    `calls` are those of an assistant, `call_id` and `name` say which call a tool message answers.
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    name: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY, compare=False)
    unknown: bool = field(default=False, compare=False)
    """Of a tool message: nobody knows whether this write took effect. Later runs with this history hold its tool."""

    @property
    def text(self) -> str:
        """The content as text; parts that are not text are left out."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part.get("text", "")) for part in self.content if part.get("type") == "text")

    def to_dict(self) -> dict[str, Any]:
        """The message as JSON in the OpenAI form, with nothing lost: what that form has no field for (signatures,
        flags) stands under "callgate". See `callgate.messages` for many."""
        content = self.content if isinstance(self.content, str) else [dict(part) for part in self.content]
        out: dict[str, Any] = {"role": self.role, "content": content}
        if self.reasoning:
            out["reasoning_content"] = self.reasoning
        if self.calls:
            out["tool_calls"] = [_dump_call(call) for call in self.calls]
        if self.call_id is not None:
            out["tool_call_id"] = self.call_id
        if self.name is not None:
            out["name"] = self.name
        rest: dict[str, Any] = {"extra": dict(self.extra)} if self.extra else {}
        if self.unknown:
            rest["unknown"] = True
        if own := [_dump_own(call, at) for at, call in enumerate(self.calls)]:
            rest |= {"calls": own} if any(own) else {}
        return out | ({"callgate": rest} if rest else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """The message that `to_dict` wrote. Raises ConfigError for what is none. Messages of other programs are taken
        by `History.adopt`, which every `history=` goes through: it repairs them."""
        try:
            rest: Mapping[str, Any] = data.get("callgate") or EMPTY
            content = data.get("content") or ""
            own = rest.get("calls") or [{}] * len(data.get("tool_calls") or ())
            return cls(
                data["role"],
                content if isinstance(content, str) else tuple(content),
                str(data.get("reasoning_content") or ""),
                tuple(
                    _load_call(call, at, more)
                    for at, (call, more) in enumerate(zip(data.get("tool_calls") or (), own, strict=True))
                ),
                data.get("tool_call_id"),
                data.get("name"),
                rest.get("extra") or EMPTY,
                rest.get("unknown") is True,
            )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"Message.from_dict: this is no message of callgate: {error!r}") from error


def _dump_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": call.id, "type": "function", "function": function}


def _dump_own(call: ToolCall, at: int) -> dict[str, Any]:
    """What the OpenAI form has no field for."""
    found: dict[str, Any] = {"index": call.index} if call.index != at else {}
    found |= {"flags": sorted(call.flags)} if call.flags else {}
    return found | ({"extra": dict(call.extra)} if call.extra else {})


def _load_call(data: Mapping[str, Any], at: int, own: Mapping[str, Any]) -> ToolCall:
    arguments = json.loads(data["function"]["arguments"])
    if not isinstance(arguments, dict):
        raise ValueError("the arguments of a call are no object")
    flags = frozenset(own.get("flags") or ())
    return ToolCall(
        data["id"], data["function"]["name"], arguments, own.get("index", at), flags, own.get("extra") or EMPTY
    )


@dataclass(slots=True, frozen=True)
class ToolSpec:
    """What a model, a dialect and a rule may know of a tool: everything but the function."""

    name: str
    description: str = ""
    parameters: Schema = field(default_factory=lambda: {"type": "object", "properties": {}})
    effect: Effect = "write"
    permission: str | None = None
    """The grant a principal needs; None: nobody needs any."""
    confirm: bool = False
    """Ask a person before every call."""
    rate: str | None = None
    """At most so many calls: "5/s", "20/min", "100/h", per principal."""
    timeout: float | None = None
    """Seconds; None: the agent's default."""
    group: str | None = None
    retries: int = 0
    """How often a *read* may be tried again after an `UpstreamError`."""
    repeatable: bool = False
    """An identical write may really run again."""
    polling: bool = False
    """Identical calls with identical results are no sign of a loop."""
    has_lookup: bool = False
    unknown: Literal["tool", "same"] = "tool"
    """What an unknown outcome of this write holds back until a person decides: "tool": every further call of the tool;
    "same": only one with the same arguments, which is answered from the ledger."""
    max_result: int | None = None
    """Characters of a result that the model sees; None: the agent's default."""
    examples: tuple[Mapping[str, Any], ...] = ()
    """Worked examples: {"request": "…", "arguments": {…}}."""
    hidden: bool = False
    grounded: bool = False
    """Numbers and texts in its arguments must stand in what the user or a tool said: a model must not make them up."""
    strict: bool = True
    """Arguments that the schema does not name are refused (A5)."""
    after: tuple[str, ...] = ()
    """Tools whose calls of the same turn must have ended before this one's start."""
    process: bool = False
    """Runs in a process of its own, so that a timeout or a cancel really stops it."""
    untrusted: bool = False
    """Its results are untrusted text: a web page, a mail, another program's output. See `policy.taint`."""
    outgoing: bool = False
    """It sends data away, also if it only reads."""
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY, compare=False)
    """Fields of the API's own that are sent as they are beside name, description and parameters (`cache_control`);
    those under "function" are sent in the function (`strict`)."""


@dataclass(slots=True, frozen=True)
class Request:
    """One request to a provider. What a provider cannot do it refuses with `ConfigError`; nothing is dropped in
    silence."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    """Tools for the server's own tool calling; empty under all protocols but `native`."""
    tool_choice: str = "auto"
    """"auto", "none", "required" or a tool's name."""
    parallel: bool | None = None
    schema: Schema | None = None
    """Structured output: the whole content must fit this schema."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Sampling, by the OpenAI names: temperature, top_p, max_tokens, seed, stop … (each provider maps them)."""
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Merged into the body as it is."""
    stream: bool = True


@dataclass(slots=True, frozen=True)
class ModelInfo:
    """What is known of a model: enough to choose protocol and dialect."""

    name: str
    provider: str = ""
    capabilities: frozenset[str] = frozenset()
    """Of "tools", "schema" (structured output), "thinking", "vision"."""
    chat_template: str | None = None
    dialect: str | None = None
    context_length: int | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY, compare=False)


# --- gating and running -------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Principal:
    """On whose behalf a run acts. Given by the application, never by the model."""

    id: str
    grants: frozenset[str] = frozenset()
    """Permissions, with globs: {"orders.read", "mail.*"}."""

    def __init__(self, id: str, grants: Iterable[str] = ()) -> None:
        if not isinstance(id, str) or not id:
            raise ConfigError(f"Principal.id: a text that names somebody is needed, not {id!r}")
        if isinstance(grants, (str, bytes)) or not isinstance(grants, Iterable):
            raise ConfigError(f"Principal.grants: a collection of texts is needed, not {grants!r}")
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "grants", frozenset(grants))
        if not all(isinstance(grant, str) for grant in self.grants):
            raise ConfigError(f"Principal.grants: a collection of texts is needed, not {grants!r}")


@dataclass(slots=True, frozen=True)
class Allow:
    """The call may run."""


@dataclass(slots=True, frozen=True)
class Ask:
    """A person must decide, about exactly this tool and these arguments."""

    rule: str
    reason: str


@dataclass(slots=True, frozen=True)
class Deny:
    """The call does not run; rule and reason go to the model and the ledger."""

    rule: str
    reason: str


EXTERNAL = "external"
"""The rule of the question about a call that the application carries out itself: what is asked for is its result."""

Verdict: TypeAlias = Allow | Ask | Deny


@dataclass(slots=True, frozen=True)
class ToolResult:
    """How a call ended. Exactly one for every call in a history."""

    call_id: str
    status: Status
    content: str
    """What the model is told: text, already cut to the tool's limit."""
    value: Any = field(default=None, compare=False)
    """The whole value as JSON, for the caller; None where there is none."""
    size: int = 0
    """Characters of the whole result before it was cut; 0: nothing was cut."""
    replayed: bool = False
    """Answered from the ledger: an identical write had already been started."""
    parts: tuple[Part, ...] = ()
    """Images and other parts that go to the model beside the text."""
    error: str | None = field(default=None, compare=False, repr=False)
    """The traceback of a tool that raised, masked and cut; for people and the ledger, never for the model."""

    @property
    def ok(self) -> bool:
        """Whether the tool did what it was asked."""
        return self.status == "ok"


@dataclass(slots=True, frozen=True)
class CallRecord:
    """A call and how it ended."""

    call: ToolCall
    result: ToolResult
    duration: float | None = None
    """Seconds; None if it never started."""

    @property
    def error(self) -> str | None:
        """Where the tool raised, as a traceback; None if it did not. The model never sees it."""
        return self.result.error


@dataclass(slots=True, frozen=True)
class Entry:
    """One line of a run's journal. `run` says what happened; the ledger numbers and dates it."""

    kind: str
    """One of `ledger.KINDS`; for life."""
    data: Mapping[str, Any]
    """JSON: what `events.dump_event` and its like produce."""
    seq: int = 0
    """Counts from 1 within a run; 0: not recorded yet."""
    at: float = 0.0
    """Wall time in seconds since 1970; never less than the entry before."""
    version: int = 2
    """Of the shape of `data`."""
    held: Mapping[str, Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    """Call id -> its true arguments, which the ledger keeps beside the journal until the call has its result: never
    shown, logged or exported. `data` may be masked, this is not."""
    secrets: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Declared secrets of the run: the ledger masks these exact texts wherever they stand in `data`."""
