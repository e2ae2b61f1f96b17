"""Edits the records of a chat completions backend for a client of the same API.

Law: that of the room (callgate/apps/gateway/__init__.py).

Theory of operation. A record is read by the format's `Loader` and by the lane of its choice. If the client may see
exactly what stands in it, it goes on as it came; else only its content, reasoning or calls are changed.
1. Records with calls wait until their calls are checked. If all of them may go out as they are, so do the records.
2. The record with the finish reason, and whatever follows it, waits for the outcome.
3. Several choices in one record are taken apart: each has a lane of its own.
4. Records that differ in their text only are compared with the one before and not parsed, and what came at once is read
   at once. Any other record ends that, and so does one whose text may not be seen as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import from_json

from callgate.apps.gateway.lane import Lane, Outcome
from callgate.apps.gateway.shapes import Make, Value
from callgate.apps.gateway.shapes._openai_calls import accumulated, call_entry, dict_of, list_of
from callgate.apps.gateway.shapes._openai_records import (
    CALLS,
    changed,
    contents,
    dumps,
    finish_word,
    live,
    live_entries,
    number_of,
    ordinary,
    same,
    says_something,
    sse,
    whole_choice,
    with_delta,
    with_part,
)
from callgate.apps.gateway.shapes._pattern import Pattern
from callgate.formats import openai as api
from callgate.types import CallDelta, Delta, ReasoningDelta, TextDelta
from callgate.wire import DONE, Record


class _Choice:
    """What is known of one choice."""

    __slots__ = ("calls", "came", "finish", "lane", "loader", "number", "tail", "text")

    def __init__(self, number: int, lane: Lane, tools: tuple[str, ...]) -> None:
        self.number = number
        self.lane = lane
        self.loader = api.Loader(tools=tools)
        self.calls: list[Value] = []
        """Records that hold nothing but calls."""
        self.text: list[Value] = []
        """Records that hold text which must fit a schema."""
        self.finish: Value | None = None
        self.came = ""
        """The record with the finish, as it came; "": it was taken apart."""
        self.tail: list[Delta] = []
        """What the lane gave at the very end: text that might have begun a call."""


class Editor:
    """Edits the records of one answer."""

    def __init__(self, make: Make, *, observe: bool, tools: tuple[str, ...]) -> None:
        self._make = make
        self._observe = observe
        self._tools = tools
        self._choices: dict[int, _Choice] = {}
        self._first = self._choice(0)
        self._pattern = Pattern()
        self._head: Value | None = None
        self._after: list[Value] = []
        """Records without choices behind the finish: usage."""
        self._as_it_came: dict[int, str] = {}
        """Records by identity -> their text."""
        self._done = False
        self._whole: Value | None = None
        """The answer, if it came in one piece."""
        self._failed: Value | None = None
        self.begun = False

    def _choice(self, number: int) -> _Choice:
        found = self._choices.get(number)
        if found is None:
            found = self._choices[number] = _Choice(number, self._make(), self._tools)
        return found

    @property
    def lanes(self) -> dict[int, Lane]:
        """The answers, by the number of the choice."""
        return {number: choice.lane for number, choice in self._choices.items()}

    @property
    def over(self) -> bool:
        """Whether the backend has declared the end."""
        return self._done

    @property
    def failed(self) -> Value | None:
        """The error that the backend itself has written."""
        return self._failed

    def feed(self, records: list[Record]) -> bytes:
        """What goes to the client now."""
        out: list[str] = []
        texts = self._pattern.texts
        for record in records:
            data = record.data
            if self._pattern.takes(record):  # rule 4: as in nearly every record
                continue
            if texts:
                self._read(out)
            try:
                value = from_json(data, cache_strings="keys")
            except ValueError:
                self._odd(record)
                if self._observe and data == DONE.data:
                    out.append(data)
                continue
            if "\n" in data:  # an event of several data lines, which are one text
                record = record._replace(data=dumps(value))  # noqa: PLW2901
            if self._plain(value, record, out):
                continue
            self._record(value, record, out)
        if texts:
            self._read(out)
        return sse("\n\ndata: ".join(out)) if out else b""

    def same(self, piece: bytes) -> bytes | None:
        """What goes to the client of a piece that is one record like the last; None: it is not (rule 4)."""
        pattern = self._pattern
        text = pattern.text_of(piece)
        if text is None:
            return None
        if self._first.lane.says(text) or self._observe:
            return piece
        out = self._other(self._first.lane.seen)
        return sse("\n\ndata: ".join(out)) if out else b""

    def _other(self, visible: list[Delta]) -> list[str]:
        """The records for a text that may not be seen as it came."""
        value = self._pattern.empty()
        entry = dict_of(list_of(value["choices"])[0])
        return self._edit(self._first, value, entry, ([TextDelta("")], visible))

    def _plain(self, value: object, record: Record, out: list[str]) -> bool:
        """The record that nearly every one is: more of the text of the only choice, all of which may be seen."""
        found = ordinary(value, record.event)
        if found is None:
            return False
        value, choice, delta = found
        if self._head is None:
            self._begin(value)
        first = self._first
        deltas = first.loader.take(value)
        visible = first.lane.feed(deltas)
        if self._observe or (same(deltas, visible) and not delta.get("tool_calls")):
            out.append(record.data)
            self._pattern.learn(record.data, delta, deltas)
            return True
        self._pattern.forget()
        out += self._edit(first, value, choice, (deltas, visible))
        return True

    def _read(self, out: list[str]) -> None:
        """The texts of records that differ in nothing else, at once (rule 4)."""
        pattern = self._pattern
        if self._first.lane.says("".join(pattern.texts)) or self._observe:
            out += pattern.same
        else:
            out += self._other(self._first.lane.seen)
        pattern.taken()

    def _begin(self, value: Value) -> None:
        self.begun = True
        self._head = {key: part for key, part in value.items() if key not in ("choices", "usage", "error", "callgate")}

    def _odd(self, record: Record) -> None:
        """A record that is no JSON: the end, or something broken that the loader names."""
        self._pattern.forget()
        if record.data.strip() == DONE.data:
            self._done = True
        for choice in self._choices.values():
            choice.loader.feed(record)

    def _record(self, value: object, record: Record, out: list[str]) -> None:
        self._pattern.forget()
        if isinstance(value, list) and value:  # Gemini wraps its error bodies
            value = value[0]
        if not isinstance(value, dict):
            self._odd(record)
            return
        failed = record.event == "error" or value.get("error") or value.get("object") == "error"
        choices = value.get("choices")
        if failed or not isinstance(choices, list) or not choices:
            for choice in self._choices.values():
                choice.loader.take(value, record.event)
            self._beside(value, record.data, out, failed=bool(failed))
            return
        if self._head is None:
            self._begin(value)
        if self._observe:
            out.append(record.data)
        for entry in choices:
            if isinstance(entry, dict):
                self._one(value, entry, record.data, out)

    def _beside(self, value: Value, data: str, out: list[str], *, failed: bool) -> None:
        """A record without a choice: an error, tokens, what filters found."""
        if failed or "choices" not in value:
            self._failed = self._failed or (value if failed or "detail" in value else None)
            return
        if not isinstance(value["choices"], list) and not self._observe:  # clients go through it
            value = {**value, "choices": []}
            data = dumps(value)
        if self._observe or not any(choice.finish for choice in self._choices.values()):
            out.append(data)  # Azure begins with its filters' results, without a choice
        else:
            self._after.append(value)
            self._as_it_came[id(value)] = data

    def _one(self, value: Value, entry: Value, data: str, out: list[str]) -> None:
        """One choice of a record (rule 3)."""
        choice = self._choice(number_of(entry))
        alone = value if len(list_of(value["choices"])) == 1 else {**value, "choices": [entry]}
        deltas = choice.loader.take({**alone, "choices": [{**entry, "index": 0}]})
        visible = choice.lane.feed(deltas)
        if self._observe:
            return
        alone, entry = with_delta(alone, entry)
        if entry.get("finish_reason") is None:
            out += self._edit(choice, alone, entry, (deltas, visible))
            return
        delta = dict_of(entry.get("delta"))
        if any(part for key, part in delta.items() if key != "role"):
            before = {**entry, "finish_reason": None}
            out += self._edit(choice, {**alone, "choices": [before], "usage": None}, before, (deltas, visible))
            alone = {**alone, "choices": [{**entry, "delta": {}}]}
        if choice.finish is None:
            choice.finish, choice.came = alone, data if alone is value else ""  # rule 2

    def _edit(self, choice: _Choice, value: Value, entry: Value, read: tuple[list[Delta], list[Delta]]) -> list[str]:
        """A record of which not all may be seen as it is; `read` is what was in it, and what may be seen."""
        deltas, visible = read
        delta = entry.get("delta")
        if not isinstance(delta, dict):
            return []
        kept = {key: part for key, part in delta.items() if key not in CALLS}
        if any(isinstance(d, CallDelta) for d in visible):
            return live(value, entry, kept, read)
        choice.calls += [with_part(value, entry, {key: delta[key]}) for key in CALLS if delta.get(key)]
        if choice.lane.holds_text and kept.get("content"):
            choice.text.append(with_part(value, entry, {"content": kept["content"]}))
        parts = changed(kept, deltas, visible)
        scored = bool(entry.get("logprobs"))
        return [dumps(with_part(value, entry, part)) for part in parts if scored or says_something(part)]

    # --- the end --------------------------------------------------------------------------------------------------

    def finish(self, error: str | None = None) -> None:
        """The backend's bytes are over; with an error they broke off."""
        for choice in self._choices.values():
            deltas = choice.loader.finish() if error is None else choice.loader.fail(error, interrupted=True)
            choice.tail = choice.lane.feed(deltas)

    def end(self, outcomes: Mapping[int, Outcome]) -> bytes:
        """What waited, edited, and the end of the stream."""
        if self._observe:
            return b""
        out: list[Value] = []
        note: Value = {}
        for number, outcome in sorted(outcomes.items()):
            choice = self._choices[number]
            out += self._waited(choice, outcome)
            out.append(self._finished(choice, outcome))
            if own := outcome.note():
                note = own if len(outcomes) == 1 else {**note, f"choice {number}": own}
        out += [self._counted(value, outcomes) for value in self._after]
        if note:
            out[-1] = {**out[-1], "callgate": note}
        return b"".join(sse(self._as_it_came.get(id(value)) or dumps(value)) for value in out) + api.END

    def _waited(self, choice: _Choice, outcome: Outcome) -> list[Value]:
        """Rule 1: the text first, then the calls."""
        out: list[Value] = []
        content = outcome.content
        if content is None and choice.lane.holds_text:
            content = choice.lane.reply.content
        if content is not None and content == contents(choice.text):
            out += choice.text
        elif content:
            out.append(self._chunk(choice, {"content": content}))
        if any(isinstance(d, (TextDelta, ReasoningDelta)) for d in choice.tail):
            out += [self._chunk(choice, more) for more in changed({}, [], choice.tail) if says_something(more)]
        return [*out, *self._called(choice, outcome)]

    def _called(self, choice: _Choice, outcome: Outcome) -> list[Value]:
        """The records of the calls: those that came, if they are right."""
        if outcome.live and not outcome.retries:
            late = live_entries(choice.tail)
            return [self._chunk(choice, {"tool_calls": late})] if late else []
        if accumulated(choice.calls) == [(c.id, c.name, c.arguments) for c in outcome.calls]:
            return choice.calls
        entries = [call_entry(n, call) for n, call in enumerate(outcome.calls)]
        return [self._chunk(choice, {"tool_calls": [entry]}) for entry in entries]

    def _chunk(self, choice: _Choice, delta: Value, finish: str | None = None) -> Value:
        entry = {"index": choice.number, "delta": delta, "finish_reason": finish}
        return {**(self._head or {"object": api.CHUNK}), "choices": [entry]}

    def _finished(self, choice: _Choice, outcome: Outcome) -> Value:
        raw = choice.lane.reply.raw_finish
        word = finish_word(outcome, raw)
        if choice.finish is None:
            return self._chunk(choice, {}, word)
        self._as_it_came[id(choice.finish)] = choice.came
        entry = dict_of(list_of(choice.finish["choices"])[0])
        given = entry.get("finish_reason")
        legacy = given == "function_call" and word in ("tool_calls", "stop")
        if not legacy and outcome.renamed(given, word):
            return self._counted(
                {**choice.finish, "choices": [{**entry, "finish_reason": word}]}, {choice.number: outcome}
            )
        return self._counted(choice.finish, {choice.number: outcome})

    def _counted(self, value: Value, outcomes: Mapping[int, Outcome]) -> Value:
        """The record with the tokens of all requests in it, where there were several."""
        usage = value.get("usage")
        asked = [o for o in outcomes.values() if o.retries and o.usage]
        if not isinstance(usage, dict) or not asked:
            return value
        return {**value, "usage": {**usage, **api.dump_usage(asked[0].usage or {})}}

    # --- an answer in one piece -----------------------------------------------------------------------------------

    def take(self, value: Value) -> None:
        """The body of an answer that is not streamed."""
        self._whole = value
        self.begun = True
        if value.get("error"):
            self._failed = value
        choices = [entry for entry in list_of(value.get("choices")) if isinstance(entry, dict)]
        if not choices:
            self._first.loader.take({**value, "choices": None})
        for entry in choices:
            choice = self._choice(number_of(entry))
            choice.lane.feed(choice.loader.take({**value, "choices": [{**entry, "index": 0}]}))

    def whole(self, outcomes: Mapping[int, Outcome]) -> Value:
        """The answer that came in one piece, edited."""
        value = self._whole or {}
        if self._observe:
            return value
        entries: list[object] = []
        note: Value = {}
        for entry in list_of(value.get("choices")):
            if not isinstance(entry, dict) or (outcome := outcomes.get(number := number_of(entry))) is None:
                entries.append(entry)
                continue
            entries.append(whole_choice(entry, self._choices[number].lane, outcome))
            if own := outcome.note():
                note = own if len(outcomes) == 1 else {**note, f"choice {number}": own}
        value = self._counted({**value, "choices": entries}, outcomes)
        return {**value, "callgate": note} if note else value
