"""A call as it was written becomes a call that may be judged, or a refusal that tells the model what to correct.

One law (X1, A1 to A7): what leaves here without a refusal names a tool that exists and carries arguments that fit its
schema; a write also carries no flag at all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from callgate.masking import is_masked
from callgate.protocols import language_of, reason, ungrounded
from callgate.results import to_json
from callgate.schema import CompiledSchema, Mended, mend
from callgate.tools import resolve_name
from callgate.types import BadCall, Status, ToolCall, ToolResult, ToolSpec

RAW_SHOWN = 500
"""Characters of unreadable arguments that go back to the model: enough to see what is wrong."""
TOOLS_LISTED = 30
"""More names than this are no help."""
_SCALARS = frozenset({str, int, float, bool, type(None)})


@dataclass(slots=True, frozen=True)
class Checked:
    """A call with its final id, name and arguments. With a `refusal` it never runs."""

    call: ToolCall
    spec: ToolSpec | None = None
    refusal: ToolResult | None = None
    shown: ToolCall | BadCall | None = None
    """What `CallProposed` shows, if it is not `call`."""
    notes: tuple[str, ...] = ()


class Checker:
    """Checks calls against one set of tools."""

    def __init__(
        self, tools: tuple[ToolSpec, ...], limit: int, compile_spec: Callable[[ToolSpec], CompiledSchema] | None = None
    ) -> None:
        self.tools = tools
        self.specs = {spec.name: spec for spec in tools}
        self._compile = compile_spec or _compile
        self._compiled: dict[str, CompiledSchema] = {}
        self._limit = limit
        self.say: Callable[..., str] = reason
        self.said: Callable[[], str] = str
        """What users and tools have said so far, for tools whose arguments must be grounded in it."""

    def speak(self, prompt: str) -> None:
        """From now on reasons are given in the language of this text."""
        language = language_of(prompt)
        self.say = lambda kind, **fields: reason(kind, language=language, **fields)

    def check(self, call: ToolCall | BadCall, id: str, *, masked_is_fine: bool = False) -> Checked:
        """The call under the id that it will have; `masked_is_fine` for one that ran before secrets were masked."""
        name = call.name or ""
        arguments = _sound(call.arguments) if isinstance(call, ToolCall) else {}
        flags = call.flags if isinstance(call, ToolCall) else frozenset()
        extra = call.extra if isinstance(call, ToolCall) else {}
        made = ToolCall(id, name, arguments, call.index, flags, extra)
        shown = None if isinstance(call, ToolCall) else replace(call, id=id)
        spec, renamed, hint = resolve_name(name, self.tools)
        if spec is None or (renamed and spec.effect == "write"):
            near = (spec.name,) if spec is not None else hint
            return Checked(made, None, self._no_tool(made, near), shown)
        if renamed:
            made = replace(made, name=spec.name, flags=made.flags | {"renamed"})
        if isinstance(call, BadCall):
            return self._bad(call, made, spec, shown)
        if is_masked(arguments):
            if not masked_is_fine:
                return Checked(made, spec, self._refuse(made, "a secret in its arguments is masked"), shown)
            spec = replace(spec, grounded=False)  # it was held to what was said before that was masked
        return self._mended(mend(call.arguments, self.compiled(spec)), made, spec, shown)

    def add(self, spec: ToolSpec) -> None:
        """One more tool."""
        self.tools = (*self.tools, spec)
        self.specs[spec.name] = spec

    def compiled(self, spec: ToolSpec) -> CompiledSchema:
        """The tool's schema, made ready once."""
        if spec.name not in self._compiled:
            self._compiled[spec.name] = self._compile(spec)
        return self._compiled[spec.name]

    def _bad(self, bad: BadCall, made: ToolCall, spec: ToolSpec, shown: BadCall | ToolCall | None) -> Checked:
        raw = f" What arrived: {_short(bad.text)}" if bad.text else ""
        if bad.reason != "malformed":
            return Checked(made, spec, self._result(made, self.say("truncated", name=spec.name) + raw), shown)
        mended = mend(bad.text, self.compiled(spec))
        if spec.effect == "read" and mended.ok:
            return self._mended(mended, made, spec, None)
        detail = "; ".join(f"{at}: {what}" if at else what for at, what in mended.errors) or "broken JSON"
        return Checked(
            made, spec, self._result(made, self.say("malformed", name=spec.name, detail=detail) + raw), shown
        )

    def _mended(self, mended: Mended, made: ToolCall, spec: ToolSpec, shown: ToolCall | BadCall | None) -> Checked:
        if not mended.ok:
            return Checked(made, spec, self._result(made, mended.explain()), shown, tuple(mended.notes))
        made = ToolCall(made.id, made.name, own(mended.value), made.index, made.flags, made.extra)
        if mended.repaired:
            made = replace(made, flags=made.flags | {"repaired"})
        if spec.effect == "write" and made.flags:  # A4, A6, A7: a flagged write never runs
            kind = "repaired" if made.flags <= {"repaired"} else "alone"
            return Checked(made, spec, self._result(made, self.say(kind, name=spec.name)), shown)
        if spec.grounded and (missing := ungrounded(spec, made.arguments, self.said())):
            why = f"{', '.join(missing)}: not in what was said; ask the user for it, do not make it up"
            return Checked(made, spec, self._refuse(made, why), shown)
        notes = (*mended.notes, *(f"{at}: converted" for at in mended.coerced))
        return Checked(made, spec, None, shown, notes)

    def _no_tool(self, call: ToolCall, near: tuple[str, ...]) -> ToolResult:
        names = [spec.name for spec in self.tools]
        listed = ", ".join(names[:TOOLS_LISTED]) + (", …" if len(names) > TOOLS_LISTED else "")
        detail = f"The tools are: {listed}." if names else "No tools are available."
        if near:
            detail = f"Perhaps {' or '.join(near)}? {detail}"
        text = f"unknown tool {call.name!r}. " + self.say("unknown_tool", name=call.name, detail=detail)
        return self._result(call, text, "unknown_tool")

    def _refuse(self, call: ToolCall, why: str) -> ToolResult:
        return self._result(call, self.say("invalid_arguments", name=call.name, detail=why))

    def _result(self, call: ToolCall, text: str, status: Status = "invalid_arguments") -> ToolResult:
        return ToolResult(call.id, status, text[: self._limit])


def _sound(arguments: Any) -> dict[str, Any]:
    """The arguments as they may stand in a history: a strict JSON object, not too deep, nobody else's."""
    plain = to_json(arguments)
    return plain if isinstance(plain, dict) else {}


def own(value: Any) -> Any:
    """A copy of its own; of plain JSON without the detours of `deepcopy`."""
    if type(value) is dict:
        return {key: own(part) for key, part in value.items()}
    if type(value) is list:
        return [own(part) for part in value]
    return value if type(value) in _SCALARS else copy.deepcopy(value)


def _compile(spec: ToolSpec) -> CompiledSchema:
    return CompiledSchema(spec.parameters, closed=spec.strict)


def _short(text: str) -> str:
    return text if len(text) <= RAW_SHOWN else text[:RAW_SHOWN] + "…"
