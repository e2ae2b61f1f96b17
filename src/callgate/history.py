"""The messages of a run, as a value that a provider accepts.

Law: a history cannot hold an unanswered or an unreadable call.
(tests/test_history.py::test_any_mess_becomes_a_history_that_a_provider_accepts)

A turn enters it whole, its calls together with exactly one result each (X2), and leaves it whole when the context is
full; what comes from elsewhere is adopted by the same rule: mended where that is possible, dropped in pairs where it
is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast, get_args

from callgate.errors import ConfigError
from callgate.types import CAME, EMPTY, Message, Part, Role, ToolCall, ToolResult

CHARACTERS_A_TOKEN = 4
"""The usual estimate; a server's own count is used where it tells one."""
TOKENS_A_MESSAGE = 4
"""What roles and separators cost."""
TOKENS_A_PART = 800
"""What an image or another part that is not text is taken to cost."""
RAW_SHOWN = 500
"""Characters of unreadable arguments that are kept in the answer to them."""
NO_RESULT = "No result was recorded for this call; whether it ran is not known."
_REASONING = ("reasoning", "reasoning_content", "thinking")
_CALL = frozenset({"id", "type", "function", "index", "name", "arguments"})
_dump = json.JSONEncoder(default=str).encode

Loose: TypeAlias = Message | Mapping[str, Any]
"""A message of ours, or one in the OpenAI or Ollama form."""
Measure: TypeAlias = Callable[[Message], int]


@dataclass(slots=True, frozen=True)
class History:
    """A sequence of messages in which every call is answered."""

    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    """What was odd in an adopted history, and what was done about it."""

    @classmethod
    def adopt(cls, messages: Iterable[Loose]) -> History:
        """Take over a history from elsewhere; the result obeys the law whatever came in."""
        return _Adoption().run([_load(m) for m in messages])

    def say(self, *messages: Message) -> History:
        """Add messages without calls."""
        for message in messages:
            if message.calls or message.role == "tool":
                raise ValueError("a call enters a history only together with its result: use turn()")
        return History((*self.messages, *messages), self.notes)

    def turn(self, message: Message, results: Sequence[tuple[ToolResult, str]]) -> History:
        """Add an assistant message with its calls, and for each of them a result and the text that the model sees."""
        if [r.call_id for r, _ in results] != [c.id for c in message.calls]:
            raise ValueError("every call of a turn needs exactly one result, in the order of the calls")
        answers = (
            Message(
                "tool",
                (*_text(text), *r.parts) if r.parts else text,
                call_id=call.id,
                name=call.name,
                unknown=r.status == "unknown_outcome",
            )
            for call, (r, text) in zip(message.calls, results, strict=True)
        )
        return History((*self.messages, message, *answers), self.notes)

    def ids(self) -> set[str]:
        """Every call id that is taken."""
        return {call.id for message in self.messages for call in message.calls}

    def fit(self, budget: int, measure: Measure | None = None) -> tuple[History, tuple[Message, ...]]:
        """Drop whole turns, the oldest first, until the rest measures at most `budget`; and what was dropped.

        Kept whatever it costs: system messages, pinned ones (`extra["pinned"]`), the last message of the user and
        the last turn. So the rest may still be too long: then the provider says so.
        """
        measure = measure or tokens
        units = _units(self.messages)
        total = sum(measure(m) for unit in units for m in unit)
        if total <= budget:
            return self, ()
        keep = _needed(units)
        kept: list[tuple[Message, ...]] = []
        dropped: list[Message] = []
        begun = False
        for i, unit in enumerate(units):
            # what the model answered makes no sense without the question before it
            leading = unit[0].role == "assistant" and not begun
            if i in keep or not (total > budget or leading):
                kept.append(unit)
                begun = begun or unit[0].role != "system"
            else:
                dropped += unit
                total -= sum(measure(m) for m in unit)
        return replace(self, messages=tuple(m for unit in kept for m in unit)), tuple(dropped)


def _needed(units: Sequence[tuple[Message, ...]]) -> set[int]:
    """The units that stay whatever they cost."""
    asked = [i for i, unit in enumerate(units) if unit[0].role == "user"][-1:]
    fixed = (i for i, unit in enumerate(units) if unit[0].role == "system" or any(m.extra.get("pinned") for m in unit))
    return {len(units) - 1, *asked, *fixed}


def tokens(message: Message) -> int:
    """An estimate of what a message costs."""
    characters = len(message.text) + len(message.reasoning)
    characters += sum(len(c.name) + len(_dump(c.arguments)) for c in message.calls)
    parts = 0 if isinstance(message.content, str) else sum(p.get("type") != "text" for p in message.content)
    return characters // CHARACTERS_A_TOKEN + TOKENS_A_MESSAGE + parts * TOKENS_A_PART


def _text(text: str) -> tuple[dict[str, Any], ...]:
    return ({"type": "text", "text": text},)


def _units(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Messages that stay together: a turn with the results of its calls, else a message alone."""
    units: list[tuple[Message, ...]] = []
    for message in messages:
        if message.role == "tool" and units:
            units[-1] = (*units[-1], message)
        else:
            units.append((message,))
    return units


# --- histories from elsewhere -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Unread:
    """A call as another program wrote it; `raw` is set where its arguments are no object."""

    id: str | None
    name: str
    arguments: dict[str, Any]
    raw: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class _Loose:
    message: Message
    calls: list[_Unread]


def _load(message: Loose) -> _Loose:
    if isinstance(message, Message):
        calls = [_Unread(c.id or None, c.name, *_arguments(c.arguments), c.extra) for c in message.calls]
        return _Loose(message, calls)
    if not isinstance(message, Mapping):
        raise ConfigError(
            f"history: {type(message).__name__} is no message; give Message objects or OpenAI-style dicts"
        )
    if "callgate" in message:  # one of ours, with what the OpenAI form has no field for
        return _load(Message.from_dict(message))
    given = [*(message.get("tool_calls") or ()), message.get("function_call")]  # the latter before there were several
    answers = message.get("tool_call_id") or message.get("call_id")
    reasoning, extra = _thoughts(message)
    return _Loose(
        Message(
            _role(message.get("role")),
            _content(message.get("content")),
            reasoning=reasoning,
            call_id=str(answers) if answers else None,
            name=message.get("name") or message.get("tool_name"),
            extra=extra,
        ),
        [_load_call(call) for call in given if isinstance(call, Mapping)],
    )


def _role(given: Any) -> Role:
    """A role; the older names of two are known."""
    role: Any = {"developer": "system", "function": "tool"}.get(given, given)
    if role not in get_args(Role):
        raise ConfigError(f"history: role {role!r} is none of {', '.join(get_args(Role))}")
    return cast("Role", role)


def _thoughts(message: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The reasoning, and the field that it came in: most servers want it back where they put it."""
    name, reasoning = next(((k, str(message[k])) for k in _REASONING if message.get(k)), ("", ""))
    came: dict[str, Any] = {name: None} if name else {}
    if details := message.get("reasoning_details"):
        came = {"reasoning_details": details}
    return reasoning, {CAME: came} if came else EMPTY


def _content(value: Any) -> str | tuple[Part, ...]:
    """Text or parts; a value of another kind is given as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, (list, tuple)) and all(
        isinstance(v, str) or (isinstance(v, Mapping) and "type" in v) for v in value
    ):
        return tuple({"type": "text", "text": v} if isinstance(v, str) else v for v in value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _load_call(call: Mapping[str, Any]) -> _Unread:
    body = call.get("function")
    body = body if isinstance(body, Mapping) else call
    given = call.get("id")
    extra = {key: value for key, value in call.items() if key not in _CALL and value is not None}
    if inner := {key: value for key, value in body.items() if key not in _CALL and value is not None}:
        extra = {**extra, "function": inner} if body is not call else extra
    name = str(body.get("name") or "")
    return _Unread(str(given) if given else None, name, *_arguments(body.get("arguments")), extra)


def _arguments(value: Any) -> tuple[dict[str, Any], str | None]:
    """The arguments as an object of strict JSON, and their text if they are none."""
    if value is None or value == "":
        return {}, None
    try:
        text = value if isinstance(value, str) else json.dumps(dict(value), default=str)
        loaded = json.loads(text, parse_constant=str)
    except (TypeError, ValueError, RecursionError):
        loaded = None
    if isinstance(loaded, dict):
        return loaded, None
    return {}, value if isinstance(value, str) else repr(value)


class _Adoption:
    """Puts results behind their calls, answers what is unanswered, drops results that answer nothing."""

    def __init__(self) -> None:
        self.out: list[Message] = []
        self.notes: list[str] = []
        self.taken: set[str] = set()

    def run(self, messages: list[_Loose]) -> History:
        at = 0
        while at < len(messages):
            loose = messages[at]
            at += 1
            if loose.calls:
                end = next((i for i in range(at, len(messages)) if messages[i].calls), len(messages))
                at = self._turn(loose, messages, at, end)
            elif loose.message.role == "tool":
                self.notes.append(f"a result for {loose.message.call_id!r} answers no call: dropped")
            else:
                self._plain(loose.message)
        return History(tuple(self.out), tuple(self.notes))

    def _turn(self, loose: _Loose, messages: list[_Loose], start: int, end: int) -> int:
        """One assistant message with calls, and the results found before the next one."""
        results = [m.message for m in messages[start:end] if m.message.role == "tool"]
        calls: list[ToolCall] = []
        answers: list[Message] = []
        for index, unread in enumerate(c for c in loose.calls if c.name):
            found = self._result_of(unread, results)
            call = ToolCall(self._id(unread.id, index), unread.name, unread.arguments, index, extra=unread.extra)
            calls.append(call)
            answers.append(self._answer(call, unread, found))
        self.notes += [f"a result for {r.call_id or r.name!r} answers no call: dropped" for r in results]
        if calls:
            self.out += [replace(loose.message, calls=tuple(calls)), *answers]
        else:
            self._plain(loose.message)
        for other in messages[start:end]:
            if other.message.role != "tool":
                self._plain(other.message)
        return end

    def _result_of(self, call: _Unread, results: list[Message]) -> Message | None:
        """The result of a call, taken from `results`."""
        found = next((r for r in results if r.call_id and r.call_id == call.id), None)
        if found is None:  # Ollama pairs by name and order
            found = next((r for r in results if not r.call_id and r.name in (call.name, None)), None)
        if found is None:
            self.notes.append(f"call {call.id or call.name!r} had no result: one was written")
        else:
            results.remove(found)
        return found

    def _answer(self, call: ToolCall, unread: _Unread, found: Message | None) -> Message:
        """The message that answers a call: its result, and what of its arguments could not be read."""
        content = found.content if found is not None else NO_RESULT
        if unread.raw is not None:  # a provider refuses a call whose arguments are no object
            self.notes.append(f"call {call.id!r} had unreadable arguments: kept as text in its result")
            prefix = f"[the arguments of this call could not be read: {unread.raw[:RAW_SHOWN]}]\n"
            content = prefix + content if isinstance(content, str) else (*_text(prefix), *content)
        unknown = found is not None and found.unknown
        return Message("tool", content, call_id=call.id, name=call.name, unknown=unknown)

    def _plain(self, message: Message) -> None:
        """A message without calls; an answer without anything is one that servers refuse."""
        if message.role == "assistant" and not (message.content or message.reasoning):
            self.notes.append("an empty answer: dropped")
        else:
            self.out.append(replace(message, calls=()))

    def _id(self, given: str | None, index: int) -> str:
        new = given or f"call_h{len(self.out)}_{index + 1}"
        n = 1
        while new in self.taken:
            n += 1
            new = f"{given or 'call'}_{n}"
        self.taken.add(new)
        return new
