"""An answer, checked against what its client declared: which calls fit, which were mended, what has to be asked again.

Law: a call that is let through fits the schema that the client itself declared.
(tests/test_gateway_mend.py::test_a_call_that_is_let_through_fits_the_clients_schema)

Nothing is decided here by a rule of its own: arguments go through `schema.mend`, names through `tools.resolve_name`,
and what is only mentioned never counts (A7). What is told to the model has the words of `protocols`, in the language of
the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from callgate.errors import ConfigError
from callgate.protocols import explain
from callgate.protocols.corrections import arrived, flaws
from callgate.protocols.texts import TEXTS, spoken
from callgate.schema import CompiledSchema, mend
from callgate.tools import resolve_name
from callgate.types import SOUND, BadCall, Message, Reply, Request, Schema, ToolCall, ToolSpec

NAMES_SHOWN = 30
CACHED = 1024
"""Schemas that are kept compiled: clients send the same tools with every request."""


@dataclass(slots=True, frozen=True)
class Verdict:
    """What is to become of one call."""

    call: ToolCall
    """As it may go out; as it was written, if it may not."""
    why: str = ""
    """For the model: what is wrong with it; "": it may go out."""
    mended: tuple[str, ...] = ()
    """What had to be mended: "arguments", "name"."""
    written: str | None = None
    """Arguments that are no object, as the model wrote them."""

    @property
    def fits(self) -> bool:
        """Whether the call may go out."""
        return not self.why


@dataclass(slots=True)
class Judged:
    """One answer."""

    verdicts: list[Verdict] = field(default_factory=list)
    missing: str = ""
    """For the model: why an answer without a call, or in another form, does not do; "": it does."""
    dropped: list[tuple[str, str]] = field(default_factory=list)
    """(tool, reason) of calls that the client has forbidden: one too many, any at all."""
    content: str | None = None
    """The content in the form that was asked for, where it had to be mended."""

    @property
    def good(self) -> list[ToolCall]:
        """The calls that may go out."""
        return [verdict.call for verdict in self.verdicts if verdict.fits]

    @property
    def bad(self) -> list[Verdict]:
        """Those that may not."""
        return [verdict for verdict in self.verdicts if not verdict.fits]

    @property
    def again(self) -> bool:
        """Whether the model should be asked once more."""
        return bool(self.bad or self.missing)


def judge(reply: Reply, request: Request, *, foreign: bool = False) -> Judged:
    """What of this answer may go to the client. `foreign`: other calls than those of the declared functions are
    possible (built-in tools, or none were declared) and pass unchecked."""
    out = Judged()
    calls: list[ToolCall | BadCall] = sorted([*reply.calls, *reply.incomplete], key=lambda call: call.index)
    for call in calls:
        if "mentioned" in call.flags:
            continue
        if why := _unwanted(request, out):
            out.dropped.append((call.name or "", why))
        else:
            out.verdicts.append(_passed(call, request) if foreign else _check(call, request))
    if request.parallel is False:
        _only_one(out)
    if reply.finish in SOUND and not out.verdicts:
        _without_calls(reply, request, out)
    return out


def _passed(call: ToolCall | BadCall, request: Request) -> Verdict:
    """A call that may be one of a tool that was not declared as a function: that one passes unchecked."""
    if isinstance(call, ToolCall) and all(spec.name != call.name for spec in request.tools):
        return Verdict(call)
    return _check(call, request)


def _only_one(out: Judged) -> None:
    """Of several calls where one is allowed the first that fits is the one."""
    first = next((verdict for verdict in out.verdicts if verdict.fits), None)
    if first is not None:
        out.dropped += [(v.call.name, _ONE_ONLY) for v in out.verdicts if v is not first]
        out.verdicts = [first]


_ONE_ONLY = "parallel_tool_calls is false"


def _unwanted(request: Request, out: Judged) -> str:
    """Why the client wants no further call; empty: it does."""
    if request.tool_choice == "none" and request.tools:
        return "tool_choice is none"
    return _ONE_ONLY if request.parallel is False and out.verdicts and out.verdicts[0].fits else ""


def _check(call: ToolCall | BadCall, request: Request) -> Verdict:
    """Whether one call fits: its name first, then its arguments."""
    written = call.text if isinstance(call, BadCall) else None
    made = call if isinstance(call, ToolCall) else ToolCall(call.id or "", call.name or "", {}, call.index, call.flags)
    named = request.tool_choice if request.tool_choice not in ("auto", "none", "required") else None
    spec, renamed, near = resolve_name(made.name, [replace(tool, effect="read") for tool in request.tools])
    if spec is None or named not in (None, spec.name):
        return Verdict(made, _no_tool(made.name, near, request, named), written=written)
    found = _arguments(call, replace(made, name=spec.name) if renamed else made, spec, request)
    return replace(found, mended=("name", *found.mended)) if renamed else found


def _arguments(call: ToolCall | BadCall, made: ToolCall, spec: ToolSpec, request: Request) -> Verdict:
    """Whether its arguments fit the schema of its tool, or can be mended so that they do."""
    compiled = compiled_schema(spec)
    if isinstance(call, BadCall):
        return _unreadable(call, made, compiled, request)
    if compiled is None or compiled.accepts(call.arguments):
        return Verdict(made)
    mended = mend(call.arguments, compiled)
    if mended.ok and isinstance(mended.value, dict):
        return Verdict(replace(made, arguments=mended.value), mended=("arguments",))
    return Verdict(made, _reason(request, "invalid_arguments", made.name, flaws(mended, spoken(request.messages))))


def _unreadable(call: BadCall, made: ToolCall, compiled: CompiledSchema | None, request: Request) -> Verdict:
    """A call whose arguments are no object yet; what was cut off is never completed (A3)."""
    language = spoken(request.messages)
    raw = arrived(call.text, language)
    if call.reason != "malformed":
        return Verdict(made, _reason(request, "truncated", made.name) + raw, written=call.text)
    if compiled is None:
        why = _reason(request, "malformed", made.name, TEXTS["broken"][language])
        return Verdict(made, why + raw, written=call.text)
    mended = mend(call.text, compiled)
    if mended.ok and isinstance(mended.value, dict):
        return Verdict(replace(made, arguments=mended.value), mended=("arguments",))
    kind = "invalid_arguments" if mended.outcome == "invalid" else "malformed"
    return Verdict(made, _reason(request, kind, made.name, flaws(mended, language)) + raw, written=call.text)


def _no_tool(name: str, near: Sequence[str], request: Request, named: str | None) -> str:
    language = spoken(request.messages)
    names = [named] if named is not None else [tool.name for tool in request.tools]
    listed = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    detail = TEXTS["listed"][language].format(names=listed) if names else TEXTS["no_tools"][language]
    if near:
        detail = TEXTS["perhaps"][language].format(names=TEXTS["or"][language].join(near)) + detail
    return _reason(request, "unknown_tool", repr(name[:100]), detail)


def _without_calls(reply: Reply, request: Request, out: Judged) -> None:
    """An answer in words: whether it is what was asked for."""
    if request.tools and request.tool_choice not in ("auto", "none"):
        names = [t.name for t in request.tools] if request.tool_choice == "required" else [request.tool_choice]
        out.missing = _reason(request, "forced", TEXTS["or"][spoken(request.messages)].join(names[:NAMES_SHOWN]))
    elif request.schema is not None and not out.dropped:
        _shaped(reply.content, request.schema, request, out)


def _shaped(text: str, schema: Schema, request: Request, out: Judged) -> None:
    """An answer that was to have a form (`response_format`): mended where that is possible."""
    compiled = _compiled(_key(schema))
    if compiled is None:
        return
    mended = mend(text, compiled)
    if not mended.ok:
        language = spoken(request.messages)
        detail = flaws(mended, language) if mended.errors else TEXTS["no_json"][language]
        out.missing = _reason(request, "output", detail=detail)
    elif mended.repaired or mended.coerced or not _is_json(text):
        out.content = json.dumps(mended.value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _reason(request: Request, kind: str, name: str = "", detail: str = "") -> str:
    return explain(request.messages, kind, name=name, detail=detail)


def compiled_schema(spec: ToolSpec) -> CompiledSchema | None:
    """The schema of a tool, made ready; None: it is none, and nothing can be checked."""
    return _compiled(_key(spec.parameters))


def _key(schema: Schema) -> str:
    return json.dumps(schema, default=dict)


@lru_cache(maxsize=CACHED)
def _compiled(key: str) -> CompiledSchema | None:
    try:
        return CompiledSchema(json.loads(key))
    except ConfigError:
        return None


def repair(verdicts: Sequence[Verdict], content: str, request: Request, *, taken: int = 0) -> list[Message]:
    """What is added to the conversation so that the model writes its calls anew: its own answer, and what is wrong.
    `taken`: messages that were added for earlier answers; a server may refuse two calls with one id."""
    twice = len({v.call.id for v in verdicts}) < len(verdicts)
    calls = tuple(
        v.call if v.call.id and not taken and not twice else replace(v.call, id=f"call_again_{taken + n + 1}")
        for n, v in enumerate(verdicts)
    )
    kept = TEXTS["kept"][spoken(request.messages)]
    results = [
        Message("tool", verdict.why or kept, call_id=call.id, name=call.name)
        for call, verdict in zip(calls, verdicts, strict=True)
    ]
    return [Message("assistant", content, calls=calls), *results]


def report(judged: Judged) -> Mapping[str, int]:
    """What was mended in the calls, by kind."""
    out: dict[str, int] = {}
    for verdict in judged.verdicts:
        for kind in verdict.mended if verdict.fits else ():
            out[kind] = out.get(kind, 0) + 1
    return out
