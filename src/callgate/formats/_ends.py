"""How a message ended, whatever the server calls it.

Law: an end that is not known to be sound is unsound: an unknown word never makes a cut answer a whole one.
(tests/test_endings.py::test_an_unknown_word_is_no_sound_end)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from callgate.types import CAME, EMPTY, SOUND, Delta, Finish, FinishReason, Request, ToolCall, Usage

if TYPE_CHECKING:
    from callgate.formats._calls import Calls
    from callgate.wire import Record

_WORDS: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",  # Anthropic
    "stop_sequence": "stop",  # Anthropic, TGI
    "eos": "stop",  # Together, llama.cpp's stop_type
    "eos_token": "stop",  # TGI, watsonx
    "endoftext": "stop",  # AI21
    "word": "stop",  # llama.cpp's stop_type: a stop word was met
    "complete": "stop",  # Cohere
    "completed": "stop",  # the Responses API's status
    "finish": "stop",
    "finished": "stop",
    "success": "stop",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",  # Cohere
    "tool_use": "tool_calls",  # Anthropic
    "function_call": "tool_calls",  # OpenAI before tools
    "length": "length",
    "max_tokens": "length",  # Anthropic, Gemini, Cohere, watsonx
    "max_output_tokens": "length",  # the Responses API's incomplete_details.reason
    "model_length": "length",  # Mistral's API: the model's own context was full
    "model_context_window_exceeded": "length",  # Anthropic since 4.5, Zhipu
    "context_exceeded": "length",
    "context_length_exceeded": "length",  # OpenAI's error code, used as a finish reason by gateways
    "token_limit": "length",  # watsonx
    "limit": "length",  # llama.cpp's stop_type
    "content_filter": "content_filter",
    "content_filtered": "content_filter",  # Bedrock
    "guardrail_intervened": "content_filter",  # Bedrock
    "sensitive": "content_filter",  # Zhipu
    "recitation": "content_filter",  # Gemini
    "refusal": "content_filter",  # Anthropic
    "interrupted": "interrupted",
    "preempted": "interrupted",  # vLLM's scheduler took the sequence's memory
    "evicted": "interrupted",
    "eviction": "interrupted",
    "pause_turn": "interrupted",  # Anthropic: a long turn is to be carried on by another request
    "time_limit": "interrupted",  # watsonx
    "not_finished": "interrupted",  # watsonx
}
_FAILURES = (
    "error", "fail", "abort", "cancel", "timeout", "malformed", "insufficient", "unavailable", "overload", "rate_limit"
)  # fmt: skip
_PARTS: tuple[tuple[tuple[str, ...], FinishReason], ...] = (
    (_FAILURES, "error"),
    (("safety", "filter", "block", "prohibit"), "content_filter"),
    (("max_", "length", "limit", "truncat", "context_window", "exceed"), "length"),
    (("interrupt", "preempt", "evict"), "interrupted"),
)
"""What is in a word that no list knows, the worst first."""
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "num_predict")


INTERRUPTED = "the answer was interrupted before its end"
"""The message of an error that stands for an interruption, where nobody said more."""
CODE = "interrupted"
"""The code of that error: it ends a stream that was cut off, so that no client takes the message for whole."""


def interruption(error: str | None) -> dict[str, Any]:
    """The error that ends a stream which was cut off, without the form that each API gives it."""
    return {"message": error or INTERRUPTED, "code": CODE}


class End:
    """How a message ends: what the server said about it, and what is made of that."""

    def __init__(self) -> None:
        self.done = False
        """The server has declared the end."""
        self.raw: str | None = None
        self.error: str | None = None
        self.interrupted = False
        """The error is an interruption's (`CODE`)."""
        self._problems: dict[str, None] = {}

    def note(self, problem: str) -> None:
        """Keeps something odd, once."""
        self._problems.setdefault(problem)

    def fail(self, value: Any) -> None:
        """The server said that it failed. The first word counts."""
        if self.error is None:
            self.interrupted = is_interruption(value)
            self.error = error_text(value)

    def say(self, raw: str | None) -> None:
        """The server said why it stopped. A word for an unsound end stays, whatever follows."""
        if raw is not None and (self.raw is None or reason_of(self.raw)[0] in SOUND):
            self.raw = raw

    def unreadable(self, record: Record) -> None:
        """A record that is no JSON."""
        text = record.data.strip()
        if text == "[DONE]":  # imitators end every stream like that
            self.done = True
        elif record.event == "error":
            self.fail(text)
        elif record.cut:
            self.note("the stream was cut inside a record")
        else:
            self.error = self.error or f"the server sent what is not JSON: {text[:200]!r}"

    def _reason(self, calls: Calls, stop: str) -> FinishReason:
        if self.error is not None:
            return "interrupted" if self.interrupted else "error"
        if self.raw is not None:
            reason, known = reason_of(self.raw)
            if not known:
                self.note(unknown_word(self.raw))
            return reason
        if self.done and calls.whole():
            self.note(f"the server gave no finish reason, only {stop}")
            return "stop"
        self.note("the stream ended without a finish reason")
        return "interrupted"

    def settle(self, calls: Calls, *, usage: Usage | None, came: Mapping[str, Any], stop: str) -> list[Delta]:
        """Each call's `ToolCall` or `BadCall`, then the `Finish`. `came` is what must go back with the message; `stop`
        names the record that ends a stream."""
        reason = self._reason(calls, stop)
        settled = calls.finish(sound=reason in SOUND)
        extra = {CAME: dict(came)} if came else EMPTY
        first = next((n for n, call in enumerate(settled) if isinstance(call, ToolCall)), None)
        if reason in SOUND:
            reason = "stop" if first is None else "tool_calls"
        if first is not None and isinstance(call := settled[first], ToolCall):
            settled[first] = replace(call, extra={**call.extra, **extra})
            extra = EMPTY
        error = self.error if self.error != INTERRUPTED else None
        if reason == "error" and error is None:
            error = f"the server ended the answer with {self.raw!r}"
        problems = tuple(dict.fromkeys([*self._problems, *calls.problems]))
        return [*settled, Finish(reason, usage, self.raw, error, problems, extra)]

    def broken(self, error: str, finish: Callable[[], list[Delta]], *, interrupted: bool) -> list[Delta]:
        """The stream broke: what `finish` gives, with this error. After a sound end it is only a problem."""
        if interrupted and (self.raw is not None or self.done) and self.error is None:
            self.note(f"after the end of the answer: {error}")
        elif self.error is None:
            self.error, self.interrupted = error, interrupted
        return finish()


def is_interruption(value: Any) -> bool:
    """Whether an error is one that we wrote for a stream that was cut off."""
    if not isinstance(value, Mapping):
        return False
    inner = value.get("error")
    return any(isinstance(v, Mapping) and CODE in (v.get("code"), v.get("type")) for v in (value, inner))


def reason_of(raw: str) -> tuple[FinishReason, bool]:
    """Our word for the server's, and whether the server's word is one that we know."""
    word = raw.strip().lower()
    if word in _WORDS:
        return _WORDS[word], True
    for parts, reason in _PARTS:
        if any(part in word for part in parts):
            return reason, True
    return "interrupted", False


def raw_of(value: Any) -> str | None:
    """The server's word as text; what is there but no text is a word that nobody knows. None: there is none."""
    if isinstance(value, str):
        return value or None
    return None if value is None or value is False else repr(value)[:80]


def second_word(choice: Mapping[str, Any]) -> str | None:
    """The model server's own word for an unsound end, beside a gateway's word for a sound one."""
    native = choice.get("native_finish_reason")  # OpenRouter
    if isinstance(native, str):
        reason, known = reason_of(native)
        return native if known and reason not in SOUND else None
    stop = choice.get("stop_reason")  # of vLLM the number of a token, or the stop word, which may be anything
    unsound = isinstance(stop, str) and _WORDS.get(stop.strip().lower(), "stop") not in SOUND
    return stop if unsound else None


def unknown_word(raw: str) -> str:
    """The problem that an unknown word is."""
    return f"unknown finish reason {raw[:80]!r}: not known to be a sound end, so no call of this answer counts"


def output_limit(request: Request) -> int | None:
    """The most tokens that the answer to this request may have; None if it sets no limit."""
    nested = request.extra.get("options")  # Ollama's body has its options there
    places = (request.options, request.extra, nested if isinstance(nested, Mapping) else {})
    found = [v for place in places for k in _LIMITS if isinstance(v := place.get(k), int) and not isinstance(v, bool)]
    return min((v for v in found if v > 0), default=None)


_NO_KIND = ("error", "server_error", "api_error", CODE)
"""What an error calls itself when it has nothing to say."""


def error_text(value: Any) -> str:
    """The message in an error of any shape: text, an object, a list of them."""
    if isinstance(value, str):
        return value.strip() or "the server reported an error without words"
    if isinstance(value, list) and value:
        return error_text(value[0])
    if isinstance(value, Mapping):
        for key in ("error", "message", "detail", "msg", "reason"):
            if value.get(key):
                return _with_kind(error_text(value[key]), value)
        return str(dict(value))[:500]
    return str(value)[:500]


def _with_kind(text: str, error: Mapping[str, Any]) -> str:
    """The words of an error with what it calls itself, and what a provider behind the server said."""
    kind = error.get("type") or error.get("code") or error.get("status")
    raw = _raw(error)
    shows = kind and str(kind) not in text and not isinstance(kind, bool) and kind not in _NO_KIND
    shown = f"{text} ({kind})" if shows else text
    return f"{shown}: {raw}" if raw and raw not in shown else shown


def _raw(value: Mapping[str, Any]) -> str:
    """OpenRouter puts the words of the provider behind it into metadata.raw."""
    metadata = value.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    return raw.strip()[:500] if isinstance(raw, str) else ""


def usage_of(value: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> Usage | None:
    """Token counts by our names; `names` gives for each of them the path in `value`. None if none is there."""
    out: dict[str, int] = {}
    for ours, path in names.items():
        found: Any = value
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, (int, float)) and not isinstance(found, bool) and found >= 0:
            out[ours] = int(found)
    if not out:
        return None
    return {"input": out.pop("input", 0), "output": out.pop("output", 0), **out}
