"""A request of one API for a backend that speaks another: what has another name there, and what cannot be said at all.

Law: what a request says and another API cannot is named to the client, and never lost in silence.
(tests/test_gateway_crossing.py::test_what_another_api_cannot_say_is_named)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from callgate.errors import InvalidRequest
from callgate.types import EMPTY, Message, Part, Request

_SAMPLING = frozenset({"temperature", "top_p", "max_tokens", "stop"})
_PENALTIES = frozenset({"presence_penalty", "frequency_penalty", "seed", "top_k", "min_p"})
_WORDS: Mapping[str, frozenset[str]] = {
    "openai": _SAMPLING
    | _PENALTIES
    | {"logit_bias", "reasoning_effort", "verbosity", "repetition_penalty", "parallel_tool_calls"},
    "ollama": _SAMPLING | _PENALTIES | {"num_ctx", "keep_alive", "truncate", "shift", "think", "reasoning_effort"},
    "anthropic": _SAMPLING | {"top_k", "thinking", "think", "reasoning_effort"},
    "responses": frozenset({"temperature", "top_p", "max_tokens", "think", "reasoning_effort", "verbosity"}),
}
"""What each API has a word for, by our names; an answer that is written anew has no place for `logprobs`."""
_SILENT = frozenset({"stream_options", "anthropic_version", "store", "previous_response_id"})
"""Fields that only concern how the client is answered: nothing is lost without them."""
_EFFORTS = ((4096, "low"), (16_384, "medium"))
"""Tokens of thinking -> the effort that is nearest, for APIs that know no budget."""
_PARTS = frozenset({"text", "image_url", "file"})
"""Parts that every API can say, each with one field of its own name."""
MOST_ANSWERS = 16
"""To one request, where a backend gives only one and is asked again and again."""
_CANNOT_FORCE = frozenset({"ollama"})
"""APIs without a word for `tool_choice` and for one call at a time: their answers are checked, and asked for again."""


@dataclass(slots=True, frozen=True)
class Crossed:
    """A request as another API can say it."""

    request: Request
    dropped: tuple[str, ...] = ()
    """Fields that it has no word for."""


def answers(request: Request) -> int:
    """How many answers are wanted."""
    number = request.options.get("n")
    return number if isinstance(number, int) and number > 1 else 1


def another(request: Request, number: int) -> Request:
    """The request for one more answer: with a seed of its own, or all would be the same."""
    seed = request.options.get("seed")
    if not number or not isinstance(seed, int):
        return request
    return replace(request, options={**request.options, "seed": seed + number})


def forces(wire: str) -> bool:
    """Whether a backend of this API can be told that it must call a tool."""
    return wire not in _CANNOT_FORCE


def alone(request: Request) -> Request:
    """What is asked again of one answer of several: one, without what only a record of its own could tell."""
    left = {name: value for name, value in request.options.items() if name not in ("n", "logprobs", "top_logprobs")}
    return replace(request, options=left)


def cross(request: Request, shape: str, wire: str) -> Crossed:
    """The request of a client of the API `shape`, for a backend of the API `wire`; "" is one in this process.

    Raises InvalidRequest for what would give the client another kind of answer than it reads.
    """
    number = answers(request)
    if number > (MOST_ANSWERS if shape == "openai" else 1):
        raise InvalidRequest("n", f"at most {MOST_ANSWERS} with this backend, which is asked for one after the other")
    options = dict(request.options)
    options.pop("n", None)
    _check(options, shape)
    extra, dropped = (request.extra, []) if wire == shape else _extra(request.extra, wire)
    if wire != shape:
        messages = tuple(map(_message, request.messages))
        tools = tuple(replace(tool, extra=EMPTY) for tool in request.tools)
        request = replace(request, messages=messages, tools=tools)
    options = _thinking(options, wire)
    known = _WORDS.get(wire, frozenset(options))
    dropped += [name for name, value in options.items() if name not in known and value is not False]
    options = {name: value for name, value in options.items() if name in known}
    return Crossed(replace(request, options=options, extra=extra), tuple(sorted(dropped)))


def _check(options: Mapping[str, object], shape: str) -> None:
    """Raises InvalidRequest for a value that no API could be told; a backend of the client's own refuses it itself."""
    effort, stop = options.get("reasoning_effort"), options.get("stop")
    if not isinstance(effort, (str, type(None))):
        raise InvalidRequest("reasoning_effort", "a text is needed")
    texts = isinstance(stop, (list, tuple)) and all(isinstance(text, str) for text in stop)
    if not (stop is None or isinstance(stop, str) or texts):
        name = "stop_sequences" if shape == "anthropic" else "stop"
        raise InvalidRequest(name, "a text or a list of texts is needed")


def _message(message: Message) -> Message:
    """The message without fields that only its own API knows (`cache_control`, a layout, signatures)."""
    content = message.content if isinstance(message.content, str) else tuple(map(_part, message.content))
    calls = tuple(replace(call, extra=EMPTY) for call in message.calls)
    return replace(message, content=content, calls=calls, extra=EMPTY)


def _part(part: Part) -> Part:
    kind = part.get("type")
    return {key: part[key] for key in ("type", kind) if key in part} if kind in _PARTS else part


def _thinking(options: dict[str, object], wire: str) -> dict[str, object]:
    """How much the model is to think, in the words of the other API."""
    given = options.get("thinking")
    if not isinstance(given, Mapping) or wire == "anthropic":
        return options
    options = {name: value for name, value in options.items() if name != "thinking"}
    on = given.get("type") != "disabled"
    if wire == "ollama":
        return {"think": on, **options}
    budget = given.get("budget_tokens")
    if on and isinstance(budget, int):
        options.setdefault("reasoning_effort", next((word for most, word in _EFFORTS if budget <= most), "high"))
    return options


def _extra(extra: Mapping[str, object], wire: str) -> tuple[dict[str, object], list[str]]:
    """The fields that callgate does not read: plain JSON is asked for everywhere, the rest is its API's own."""
    kept: dict[str, object] = {}
    dropped: list[str] = []
    for name, value in extra.items():
        form = value.get("type") if isinstance(value, Mapping) else value
        if name in ("response_format", "format") and form in ("json_object", "json"):
            if wire == "openai":
                kept["response_format"] = {"type": "json_object"}
            elif wire == "ollama":
                kept["format"] = "json"
            else:
                dropped.append(name)
        elif name == "response_format" and form == "text":
            continue
        elif name not in _SILENT:
            dropped.append(name)
    return kept, dropped
