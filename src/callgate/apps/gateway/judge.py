"""An answer, checked against what its client declared: which calls fit, which were mended, what has to be asked again.

Law: a call that is let through fits the schema that the client itself declared.
(tests/test_gateway_mend.py::test_a_call_that_is_let_through_fits_the_clients_schema)

Nothing is decided here by a rule of its own: arguments go through `schema.mend`, names through `tools.resolve_name`,
and what is only mentioned never counts (A7).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from callgate.errors import ConfigError
from callgate.protocols import explain
from callgate.schema import CompiledSchema, Mended, mend
from callgate.tools import resolve_name
from callgate.types import SOUND, BadCall, Message, Reply, Request, Schema, ToolCall, ToolSpec

RAW_SHOWN = 500
"""Characters of unreadable arguments that go back to the model: enough to see what is wrong."""
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
        elif foreign and isinstance(call, ToolCall) and all(spec.name != call.name for spec in request.tools):
            out.verdicts.append(Verdict(call))
        else:
            out.verdicts.append(_check(call, request))
    if request.parallel is False and len(out.verdicts) > 1 and out.good:  # the first one that fits is the one
        first = next(verdict for verdict in out.verdicts if verdict.fits)
        out.dropped += [(v.call.name, _ONE_ONLY) for v in out.verdicts if v is not first]
        out.verdicts = [first]
    if reply.finish in SOUND and not out.verdicts:
        _without_calls(reply, request, out)
    return out


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
    text = call.text if isinstance(call, BadCall) else None
    if isinstance(call, BadCall) and call.reason != "malformed":
        return Verdict(made, _reason(request, "truncated", spec.name) + _raw(call.text), written=text)
    compiled = compiled_schema(spec)
    if compiled is None:
        return Verdict(made, "" if text is None else _reason(request, "malformed", spec.name), written=text)
    if isinstance(call, ToolCall) and compiled.accepts(call.arguments):
        return Verdict(made)
    mended = mend(call.arguments if isinstance(call, ToolCall) else call.text, compiled)
    if mended.ok and isinstance(mended.value, dict):
        return Verdict(replace(made, arguments=mended.value), mended=("arguments",))
    kind = "invalid_arguments" if mended.outcome == "invalid" else "malformed"
    reason = _reason(request, kind, spec.name, _listed(mended) or "broken JSON")
    return Verdict(made, reason + _raw(text or ""), written=text)


def _listed(mended: Mended) -> str:
    """What is wrong, and where."""
    return "; ".join(f"{at}: {what}" if at else what for at, what in mended.errors)


def _no_tool(name: str, near: Sequence[str], request: Request, named: str | None) -> str:
    names = [named] if named is not None else [tool.name for tool in request.tools]
    detail = f"The tools are: {', '.join(names[:NAMES_SHOWN])}." if names else "No tools are available."
    if near:
        detail = f"Perhaps {' or '.join(near)}? {detail}"
    return _reason(request, "unknown_tool", repr(name[:100]), detail)


def _without_calls(reply: Reply, request: Request, out: Judged) -> None:
    """An answer in words: whether it is what was asked for."""
    if request.tools and request.tool_choice not in ("auto", "none"):
        names = [t.name for t in request.tools] if request.tool_choice == "required" else [request.tool_choice]
        detail = f"a call of {' or '.join(names[:NAMES_SHOWN])} was asked for"
        out.missing = _reason(request, "ignored", detail=detail)
    elif request.schema is not None and not out.dropped:
        _shaped(reply.content, request.schema, request, out)


def _shaped(text: str, schema: Schema, request: Request, out: Judged) -> None:
    """An answer that was to have a form (`response_format`): mended where that is possible."""
    compiled = _compiled(_key(schema))
    if compiled is None:
        return
    mended = mend(text, compiled)
    if not mended.ok:
        detail = "; ".join(f"{at or '/'}: {what}" for at, what in mended.errors) or "no JSON"
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


def _raw(text: str) -> str:
    short = text if len(text) <= RAW_SHOWN else text[:RAW_SHOWN] + "…"
    return f" What arrived: {short}" if text else ""


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


def repair(verdicts: Sequence[Verdict], content: str) -> list[Message]:
    """What is added to the conversation so that the model writes its calls anew: its own answer, and what is wrong."""
    calls = tuple(replace(v.call, id=v.call.id or f"call_again_{n + 1}") for n, v in enumerate(verdicts))
    kept = "The call is right. Send it again, beside those that are corrected."
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
