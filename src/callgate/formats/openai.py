"""The chat completions API, as OpenAI, llama.cpp, vLLM, SGLang, LM Studio, OpenRouter, Groq, Gemini, Azure and their
like really send it.

Law: whatever index, id and finish reason a server makes up, each call comes out once, whole, or not at all.
(tests/test_formats_openai.py::test_fragments_become_the_calls_they_are)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from callgate.formats._calls import Calls
from callgate.formats._ends import (
    INTERRUPTED,
    error_text,
    is_interruption,
    raw_of,
    reason_of,
    second_word,
    unknown_word,
    usage_of,
)
from callgate.formats._json import parse, parser
from callgate.formats._openai_in import load_request
from callgate.formats._openai_out import (
    DEFAULT,
    DETAILS,
    REASONING,
    Dumper,
    Quirks,
    accept,
    build,
    dump_usage,
    dump_whole,
    render,
)
from callgate.formats._sent_schema import GEMINI, LLAMA
from callgate.types import CAME, SOUND, Delta, Finish, FinishReason, ReasoningDelta, TextDelta, ToolCall, Usage
from callgate.wire import DONE, SSE, Record, dump_sse

__all__ = [
    "DEFAULT",
    "END",
    "GEMINI",
    "LLAMA",
    "Dumper",
    "Loader",
    "Quirks",
    "accept",
    "build",
    "dump_usage",
    "dump_whole",
    "frame",
    "framing",
    "load_request",
    "render",
]

framing = SSE
CHUNK = "chat.completion.chunk"
END = dump_sse(DONE)


def frame(value: Mapping[str, Any]) -> bytes:
    """One record as an event."""
    return dump_sse(Record(json.dumps(value, ensure_ascii=False)))


ECHO = 40
"""Characters from which a text that repeats the reasoning to the letter is no chance."""
_USAGE = {
    "input": ("prompt_tokens",),
    "output": ("completion_tokens",),
    "cached": ("prompt_tokens_details", "cached_tokens"),
    "reasoning": ("completion_tokens_details", "reasoning_tokens"),
}
_OTHER_NAMES = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
"""Gateways pass on Anthropic's counts under Anthropic's names."""


class Loader:
    """Reads the records of one message.

    Theory of operation. The first choice is the message; further ones are kept apart, with calls of their own.
    1. The end is sound if the server gave a finish reason of a sound kind, or sent [DONE] after whole calls. An error
       anywhere, in any shape, makes it an error.
    2. Calls go out as fragments at once and as `ToolCall`s at the end only (see _calls.py).
    3. Null, missing and empty fields mean nothing; unknown ones are ignored.
    4. After [DONE] nothing of the message comes any more: clients stop there, and what only some readers see must not
       run. Usage still counts.
    """

    def __init__(self, *, tools: tuple[str, ...] = ()) -> None:
        self._parse = parser()
        self.other_choices: dict[int, list[ToolCall]] = {}
        self._tools = tools
        self._main = _Choice(tools)
        self._others: dict[int, tuple[_Choice, list[Delta]]] = {}
        self._seen = False
        self._done = False
        self._error: str | None = None
        self._interrupted = False
        """The error is an interruption's."""
        self._usage: Usage | None = None
        self._problems: list[str] = []

    @property
    def over(self) -> bool:
        """Whether the server has declared the end."""
        return self._done

    def feed(self, record: Record) -> list[Delta]:
        """The deltas of one record."""
        try:
            value = self._parse(record.data)
        except ValueError:
            return self._hard(record)
        plain = type(value) is dict and value.get("object") == CHUNK and not self._done
        if plain and not (record.event or value.get("error")):
            choices, usage = value.get("choices"), value.get("usage")
            one = choices[0] if not usage and type(choices) is list and len(choices) == 1 else None
            if type(one) is dict and one.get("index") == 0 and not one.get("error"):  # as nearly every record
                self._seen = True
                out: list[Delta] = []
                self._main.take(one, out, whole=False)
                return out
        return self.take(value, record.event)

    def _hard(self, record: Record) -> list[Delta]:
        if record.data == DONE.data:  # the end of nearly every stream, and no JSON
            self._done = True
            return []
        try:
            value = parse(record.data)
        except (ValueError, RecursionError):
            return self._unreadable(record)
        return self.take(value, record.event)

    def _unreadable(self, record: Record) -> list[Delta]:
        text = record.data.strip()
        if text == "[DONE]":
            self._done = True
        elif record.event == "error":
            self._error = self._error or error_text(text)
        elif record.cut:
            self._problems.append("the stream was cut inside a record")
        else:
            self._error = self._error or f"the server sent what is not JSON: {text[:200]!r}"
        return []

    def take(self, value: Any, event: str = "") -> list[Delta]:
        """The same for a record that is parsed already."""
        if isinstance(value, list) and value:
            value = value[0]  # Gemini wraps its error bodies
        if not isinstance(value, dict):
            self._problems.append(f"a record that is no object was ignored: {str(value)[:80]}")
            return []
        self._note(value, event)
        choices = value.get("choices")
        if not choices or not isinstance(choices, list):
            if isinstance(groq := value.get("x_groq"), dict) and "detail" not in value:
                self.take({**groq, "choices": None})
            return []
        if self._done:  # rule 4
            if any(_has_content(choice) for choice in choices):
                self._problems.append("text or calls after [DONE] were dropped")
            return []
        out: list[Delta] = []
        for choice in choices:
            if isinstance(choice, dict):
                self._choose(choice, out, whole=value.get("object") != CHUNK)
        return out

    def _note(self, value: Mapping[str, Any], event: str) -> None:
        """A record's error and usage."""
        failed = event == "error" or value.get("error") or value.get("object") == "error"
        if failed or ("detail" in value and "choices" not in value):  # FastAPI's errors are `detail` alone
            self._interrupted = self._interrupted or (self._error is None and is_interruption(value))
            self._error = self._error or error_text(value)
        if (usage := value.get("usage")) and isinstance(usage, dict):
            fields = {ours: usage[theirs] for ours, theirs in _OTHER_NAMES if theirs in usage}
            self._usage = usage_of({**fields, **usage}, _USAGE) or self._usage

    def _choose(self, choice: dict[str, Any], out: list[Delta], *, whole: bool) -> None:
        if choice.get("error"):  # OpenRouter
            self._error = self._error or error_text(choice["error"])
        number = choice.get("index") or 0
        if number == 0 or not isinstance(number, int):
            self._seen = True
            self._main.take(choice, out, whole=whole)
        elif number in self._others or len(self._others) < 128:
            other, deltas = self._others.setdefault(number, (_Choice(self._tools), []))
            other.take(choice, deltas, whole=whole)

    def finish(self) -> list[Delta]:
        """The stream is over: each call's `ToolCall` or `BadCall`, then the `Finish`."""
        out: list[Delta] = []
        if not self._seen and self._others:
            number = min(self._others)
            self._main, out = self._others.pop(number)
            self._problems.append(f"there is no choice 0; choice {number} is the message")
        main = self._main
        reason, settled = self._end(main)
        for number, (other, _) in sorted(self._others.items()):
            _, calls = self._end(other)
            self.other_choices[number] = [call for call in calls if isinstance(call, ToolCall)]
        error = self._error if reason in ("error", "interrupted") and self._error != INTERRUPTED else None
        if reason == "error" and error is None:
            error = f"the server ended the answer with {main.raw!r}"
        problems = (*self._problems, *main.problems, *main.calls.problems)
        return [*out, *settled, Finish(reason, self._usage, main.raw, error, tuple(dict.fromkeys(problems)))]

    def fail(self, error: str, *, interrupted: bool = False) -> list[Delta]:
        """The stream broke: like `finish`, with this error. After a sound end it is only a problem."""
        if interrupted and (self._main.raw is not None or self._done) and self._error is None:
            self._problems.append(f"after the end of the answer: {error}")
            return self.finish()
        self._error = self._error or error
        deltas = self.finish()
        if interrupted:
            last = deltas[-1]
            assert isinstance(last, Finish)
            deltas[-1] = Finish("interrupted", last.usage, last.raw, last.error, last.problems)
        return deltas

    def _end(self, choice: _Choice) -> tuple[FinishReason, list[Delta]]:
        """Rule 1."""
        reason: FinishReason
        if self._error is not None:
            reason = "interrupted" if self._interrupted else "error"
        elif choice.raw is not None:
            reason, known = reason_of(choice.raw)
            if not known:
                choice.problems.append(unknown_word(choice.raw))
        elif choice.whole:
            reason = "stop"
        elif self._done and choice.calls.whole():
            choice.problems.append("the server gave no finish reason, only [DONE]")
            reason = "stop"
        else:
            choice.problems.append("the stream ended without a finish reason")
            reason = "interrupted"
        settled = choice.calls.finish(sound=reason in SOUND)
        if choice.came and (first := next((c for c in settled if isinstance(c, ToolCall)), None)) is not None:
            settled[settled.index(first)] = replace(first, extra={**first.extra, CAME: choice.came})
        settled = [*choice.repeated(reason), *settled]
        if reason in SOUND:
            reason = "tool_calls" if any(isinstance(call, ToolCall) for call in settled) else "stop"
        return reason, settled


class _Choice:
    """One of the answers of a stream."""

    __slots__ = ("_echoed", "_thoughts", "calls", "came", "problems", "raw", "whole")

    def __init__(self, tools: tuple[str, ...]) -> None:
        self.calls = Calls(tools)
        self.raw: str | None = None
        self.whole = False
        self.problems: list[str] = []
        self.came: dict[str, Any] = {}
        """How the reasoning came (see CAME)."""
        self._thoughts: list[str] | None = []
        """The reasoning, while content may still be a repetition of it; None: it is not."""
        self._echoed = 0
        """Characters of content that repeat the reasoning to the letter, held back."""

    def take(self, choice: dict[str, Any], out: list[Delta], *, whole: bool) -> None:
        """The deltas of one record's choice, put to `out`; `whole`: a `message` in it is the whole message."""
        delta = choice.get("delta")
        if delta is None and "delta" not in choice:  # some repeat the whole message beside an empty last delta
            delta = self._message(choice, out, whole=whole)
        if isinstance(delta, dict):
            alone = len(delta) == 1  # as in nearly every record
            if self._thoughts and delta.get("content"):
                delta = self._unrepeated(delta)
            if alone and type(content := delta.get("content")) is str:
                if content:
                    out.append(TextDelta(content))
            elif alone and type(calls := delta.get("tool_calls")) is list:
                out += self.calls.feed(calls, whole=self.whole)
            else:
                self._fields(delta, out)
        if (raw := raw_of(choice.get("finish_reason"))) is not None:
            self._end(raw, choice)

    def _end(self, raw: str, choice: Mapping[str, Any]) -> None:
        """The server said why it stopped; a word for an unsound end stays, whatever follows."""
        if self.raw is not None and reason_of(self.raw)[0] not in SOUND:
            return
        self.raw = raw
        if reason_of(raw)[0] in SOUND and (second := second_word(choice)) is not None:
            self.raw = second
            self.problems.append(f"finish reason {raw[:80]!r} beside the model's own {second[:80]!r}: no sound end")

    def _message(self, choice: Mapping[str, Any], out: list[Delta], *, whole: bool) -> object:
        """The message of an answer that is not streamed, or the text of /v1/completions."""
        message = choice.get("message")
        if isinstance(message, dict):
            self.whole = whole
        elif isinstance(text := choice.get("text"), str) and text:
            out.append(TextDelta(text))
        return message

    def _unrepeated(self, delta: dict[str, Any]) -> dict[str, Any]:
        """The delta without content that so far only repeats the reasoning: some servers send thinking that the token
        limit cut off once more as content. It comes out once it is something else."""
        assert self._thoughts is not None
        if len(self._thoughts) > 1:
            self._thoughts = ["".join(self._thoughts)]
        content, thought = delta["content"], self._thoughts[0]
        if isinstance(content, str) and thought.startswith(content, self._echoed) and not delta.get("tool_calls"):
            self._echoed += len(content)
            return {**delta, "content": ""}
        held, self._thoughts = thought[: self._echoed], None
        return {**delta, "content": held + content} if isinstance(content, str) else delta

    def repeated(self, reason: FinishReason) -> list[Delta]:
        """What was held back, unless it is the whole of a thought that was cut off."""
        held = "".join(self._thoughts or ())
        whole = self._echoed == len(held)
        held, self._thoughts = held[: self._echoed], None
        if len(held) >= ECHO and reason == "length" and whole:
            self.problems.append("the reasoning that was cut off came once more as content: dropped")
            return []
        return [TextDelta(held)] if held else []

    def _reasoned(self, delta: dict[str, Any], out: list[Delta]) -> None:
        """The reasoning of one record, and how it came."""
        details = delta.get(DETAILS)
        key, text = next(((k, t) for k in REASONING if (t := delta.get(k)) and isinstance(t, str)), ("", ""))
        if text:
            out.append(ReasoningDelta(text))
            if self._thoughts is not None and not self._echoed:
                self._thoughts.append(text)
        elif details:
            _details(details, out)
        if isinstance(details, list) and details:
            self.came.setdefault(DETAILS, []).extend(details)
        elif text:
            self.came.setdefault(key, None)

    def _fields(self, delta: dict[str, Any], out: list[Delta]) -> None:
        self._reasoned(delta, out)
        if content := delta.get("content"):
            if isinstance(content, str):
                out.append(TextDelta(content))
            else:
                _parts(content, out)
        if calls := delta.get("tool_calls"):
            out += self.calls.feed(calls if isinstance(calls, list) else [calls], whole=self.whole)
        elif legacy := delta.get("function_call"):
            out += self.calls.feed([{"index": "function_call", "function": legacy}])
        if (refusal := delta.get("refusal")) and isinstance(refusal, str):
            out.append(TextDelta(refusal))
            if "the model refused" not in self.problems:
                self.problems.append("the model refused")


def _has_content(choice: Any) -> bool:
    """Whether a choice holds any text or call."""
    if not isinstance(choice, dict):
        return False
    message = choice.get("delta") or choice.get("message")
    fields = message if isinstance(message, dict) else {}
    keys = ("content", "tool_calls", "function_call", "refusal", *REASONING)
    return bool(choice.get("text")) or any(fields.get(key) for key in keys)


def _parts(content: Any, out: list[Delta]) -> None:
    """Content as a list of parts (Mistral): text and thinking count, references and such do not."""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            out.append(TextDelta(part))
        elif isinstance(part, dict):
            thinking = part.get("thinking")
            if isinstance(thinking, str):
                out.append(ReasoningDelta(thinking))
            elif isinstance(thinking, list):
                texts = (str(piece.get("text") or "") for piece in thinking if isinstance(piece, dict))
                out.append(ReasoningDelta("".join(texts)))
            elif isinstance(text := part.get("text"), str):
                out.append(TextDelta(text))


def _details(details: Any, out: list[Delta]) -> None:
    """OpenRouter's `reasoning_details`: the readable ones."""
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            text = detail.get("text") or detail.get("summary")
            if text and isinstance(text, str):
                out.append(ReasoningDelta(text))
