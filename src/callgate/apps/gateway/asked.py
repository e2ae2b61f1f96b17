"""What clients of the runs API may send: bodies and queries, checked before anything is done.

Law: what does not fit is refused with the place and the reason, and nothing has begun.
(tests/test_gateway_runs.py::test_what_does_not_fit_is_refused_with_its_place)

These classes are read by pydantic, and the OpenAPI document is made from them. Whose run it is stands in none of them:
that the key says, never the body (G3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from callgate.apps.gateway.refusals import Refusal

T = TypeVar("T")

# An unknown field is a mistake, and in a request that may move money a mistake is not passed over.
STRICT = ConfigDict(extra="forbid")
RUN_ID = r"^[A-Za-z0-9_.\-]{1,100}$"
MAX_SHOWN = 5
"""Mistakes that one refusal names."""

Time = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1000)]
Name = Annotated[str, Field(max_length=500)]


@dataclass(frozen=True)
class NewRun:
    """A run to begin."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    prompt: Annotated[str, Field(min_length=1)] | Annotated[list[dict[str, Any]], Field(min_length=1)]
    """A text, or content parts as in the OpenAI API: `[{"type": "text", "text": …}, {"type": "image_url", …}]`."""
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-]{8,64}$")] | None = None
    """An id of the client's making, so that a request that is sent twice begins one run."""
    after: Annotated[str, Field(pattern=RUN_ID)] | None = None
    """Goes on with the conversation of this run, which must have ended."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """Earlier messages in the OpenAI form; not together with `after`."""
    model: Name = ""
    """One of `/v1/models`; empty: the first."""
    protocol: Name = "auto"
    """How the model is asked for calls."""
    tools: list[Name] | None = None
    """Names of the server's tools, globs allowed; null: all."""
    instructions: str | None = None
    """In place of the server's."""
    options: dict[str, Any] = field(default_factory=dict)
    """Sampling by the OpenAI names."""
    output: dict[str, Any] | None = None
    """A JSON Schema that the final answer must fit."""


@dataclass(frozen=True)
class Decision:
    """A person's answer to a question about a call."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    allow: bool
    scope: Literal["once", "same", "tool"] = "once"
    """What else it covers in this run: nothing, the same call again, every call of the tool."""


@dataclass(frozen=True)
class Decisions:
    """Answers to questions of a run."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    answers: Annotated[dict[str, Decision], Field(min_length=1, max_length=100)]
    """Call id -> decision."""


@dataclass(frozen=True)
class Settlement:
    """What became of a write of unknown outcome."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    outcome: Literal["ok", "failed"]
    """"ok": it took effect. "failed": it had none, and will have none."""
    result: Any = None
    """With "ok": what it would have returned."""
    note: Annotated[str, Field(max_length=2000)] = ""
    """How it is known; it is recorded."""


@dataclass(frozen=True)
class RunsQuery:
    """Which runs."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    limit: Count = 50
    reason: Name | None = None
    """Only those that ended so; "waiting", or "open" for those without an end."""
    principal: Name | None = None
    tool: Name | None = None
    """Only those with a call of this tool."""
    text: Name | None = None
    """Only those whose prompt has this in it."""
    since: Time | None = None
    before: Time | None = None
    """Last updated before then; for the next page the `updated` of the last run."""


@dataclass(frozen=True)
class CallsQuery:
    """Which calls."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    limit: Count = 100
    unknown: bool = False
    """Only writes whose outcome is unknown."""
    run: Name | None = None
    tool: Name | None = None
    since: Time | None = None


@dataclass(frozen=True)
class StatsQuery:
    """What is counted."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    by: Annotated[str, Field(pattern=r"^(tool|protocol|model|principal)(,(tool|protocol|model|principal))*$")] = (
        "tool,protocol"
    )
    """What calls are grouped by."""
    since: Time = 0.0


@dataclass(frozen=True)
class ExchangesQuery:
    """Which exchanges that only passed through."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    limit: Count = 100


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """What reads and describes this class."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def read_body(kind: type[T], data: bytes) -> T:
    """The body of a request. Raises Refusal for what does not fit."""
    try:
        return adapter(kind).validate_json(data, strict=True)
    except ValidationError as error:
        status = 400 if any(one["type"] == "json_invalid" for one in error.errors()) else 422
        raise Refusal(status, _mistakes(error)) from error


def read_query(kind: type[T], items: list[tuple[str, str]]) -> T:
    """The query of a request. Raises Refusal for what does not fit."""
    given: dict[str, str] = {}
    for name, value in items:
        if name in given:
            raise Refusal(422, f"{name[:100]}: given twice")
        given[name] = value
    try:
        return adapter(kind).validate_strings(given)
    except ValidationError as error:
        raise Refusal(422, _mistakes(error)) from error


def _mistakes(error: ValidationError) -> str:
    """The mistakes with their places, without the values: a value may be a secret, or long."""
    found = [_mistake(one) for one in error.errors(include_url=False, include_input=False)]
    more = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
    return "; ".join(found[:MAX_SHOWN]) + more


def _mistake(one: Mapping[str, Any]) -> str:
    place = ".".join(str(part)[:60] for part in one["loc"]) or "body"
    return f"{place}: {one['msg']}"
