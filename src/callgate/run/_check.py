"""A call as it was written becomes a call that may be judged, or a refusal that tells the model what to correct.

Law: what leaves here without a refusal names a tool that exists and carries arguments that fit its schema; a write also
carries no flag at all (X1, A1 to A7). (tests/test_run_sides.py::test_what_is_not_refused_fits_its_tool)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from callgate.grounding.slots import ungrounded
from callgate.protocols.corrections import arrived, flaws, unfit
from callgate.protocols.texts import TEXTS, explain, spoken
from callgate.results import to_json
from callgate.run._batch import Checked, own
from callgate.run._demands import demanded, names_of
from callgate.run._state import RunState
from callgate.schema.compiled import CompiledSchema
from callgate.schema.mending import Mended, mend
from callgate.tools import resolve_name
from callgate.types import BadCall, Status, ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from callgate.policy import Answer

TOOLS_LISTED = 30
"""More names than this are no help."""


class Checker:
    """Checks calls against the tools of a run."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._compile = state.config.compile or _compile
        self._compiled: dict[str, CompiledSchema] = {}
        self._written = ""

    def check(self, call: ToolCall | BadCall, written: str = "") -> Checked:
        """The call as it may be judged, or why it must not. `written`: what the model wrote in this answer."""
        self._written = written
        name = call.name or ""
        arguments = _sound(call.arguments) if isinstance(call, ToolCall) else {}
        flags = call.flags if isinstance(call, ToolCall) else frozenset()
        extra = call.extra if isinstance(call, ToolCall) else {}
        made = ToolCall(call.id or "", name, arguments, call.index, flags, extra)
        shown = None if isinstance(call, ToolCall) else call
        spec, renamed, hint = resolve_name(name, self._state.tools)
        # A guessed name never runs a write (A6): `delete_users` for `delete_user` is another wish, not a slip of the
        # pen.
        if spec is None or (renamed and spec.effect == "write"):
            near = (spec.name,) if spec is not None else hint
            return Checked(made, None, self._no_tool(made, near), shown)
        if renamed:
            made = replace(made, name=spec.name, flags=made.flags | {"renamed"})
        if (wanted := demanded(self._state)) and spec.name not in wanted:
            return Checked(made, spec, self._result(made, self._explain("forced", name=names_of(self._state))), shown)
        if isinstance(call, BadCall):
            return self._bad(call, made, spec, shown)
        return self._mended(mend(call.arguments, self.compiled(spec)), made, spec, shown)

    def edited(self, call: ToolCall, spec: ToolSpec, answer: Answer) -> ToolCall | str:
        """The call with the arguments that a person gave it, or why they do not fit; nothing of them is repaired."""
        if not isinstance(answer.arguments, Mapping):
            return f"an object is needed, not {type(answer.arguments).__name__}"
        mended = mend(dict(answer.arguments), self.compiled(spec))
        if not mended.ok:
            return "; ".join(f"{at or '/'}: {what}" for at, what in mended.errors)
        # What the model wrote oddly stands in flags of its call; a person wrote this.
        return replace(call, arguments=own(mended.value), flags=frozenset())

    def compiled(self, spec: ToolSpec) -> CompiledSchema:
        """The tool's schema, made ready once."""
        if spec.name not in self._compiled:
            self._compiled[spec.name] = self._compile(spec)
        return self._compiled[spec.name]

    def _bad(self, bad: BadCall, made: ToolCall, spec: ToolSpec, shown: BadCall | ToolCall | None) -> Checked:
        language = spoken(self._state.history.messages)
        # A dialect that is no JSON gives the arguments as JSON of its own making: the model never wrote that, so
        # neither it nor a place in it is told.
        own = bad.text.strip() in self._written if self._written else True
        raw = arrived(bad.text if own else self._written, language)
        # Cut-off arguments are never completed, not even for a read (A3): what is missing may be the limit, or the
        # negation.
        if bad.reason != "malformed":
            return Checked(made, spec, self._result(made, self._explain("truncated", name=spec.name) + raw), shown)
        mended = mend(bad.text, self.compiled(spec))
        # Repaired text is a guess about what was meant; a wrong read costs a turn, a wrong write cannot be undone (A4).
        if spec.effect == "read" and mended.ok:
            return self._mended(mended, made, spec, None)
        detail = flaws(mended, language) if own else TEXTS["unreadable"][language].format(name=spec.name)
        why = self._explain("malformed", name=spec.name, detail=detail) + raw
        return Checked(made, spec, self._result(made, why), shown)

    def _mended(self, mended: Mended, made: ToolCall, spec: ToolSpec, shown: ToolCall | BadCall | None) -> Checked:
        if not mended.ok:
            return Checked(
                made,
                spec,
                self._result(made, unfit(mended, spoken(self._state.history.messages))),
                shown,
                tuple(mended.notes),
            )
        made = ToolCall(made.id, made.name, own(mended.value), made.index, made.flags, made.extra)
        if mended.repaired:
            made = replace(made, flags=made.flags | {"repaired"})
        if spec.effect == "write" and made.flags:  # A4, A6, A7: a flagged write never runs
            kind = "repaired" if made.flags <= {"repaired"} else "alone"
            return Checked(made, spec, self._result(made, self._explain(kind, name=spec.name)), shown)
        # Checked last: only arguments that fit are worth being looked for in the conversation.
        if spec.grounded and (missing := ungrounded(spec, made.arguments, self._texts())):
            why = TEXTS["not_said"][spoken(self._state.history.messages)].format(names=", ".join(missing))
            return Checked(made, spec, self._refuse(made, why), shown)
        notes = (*mended.notes, *(f"{at}: converted" for at in mended.coerced))
        return Checked(made, spec, None, shown, notes)

    def _explain(self, kind: str, **fields: str) -> str:
        return explain(self._state.history.messages, kind, **fields)

    def _texts(self) -> str:
        """What users and tools have written so far: the source of what a model must not make up."""
        return "\n".join(m.text for m in self._state.history.messages if m.role in ("user", "tool"))

    def _no_tool(self, call: ToolCall, near: tuple[str, ...]) -> ToolResult:
        language = spoken(self._state.history.messages)
        names = [spec.name for spec in self._state.tools]
        listed = ", ".join(names[:TOOLS_LISTED]) + (", …" if len(names) > TOOLS_LISTED else "")
        detail = TEXTS["listed"][language].format(names=listed) if names else TEXTS["no_tools"][language]
        if near:
            detail = TEXTS["perhaps"][language].format(names=TEXTS["or"][language].join(near)) + detail
        return self._result(call, self._explain("unknown_tool", name=repr(call.name), detail=detail), "unknown_tool")

    def _refuse(self, call: ToolCall, why: str) -> ToolResult:
        return self._result(call, self._explain("invalid_arguments", name=call.name, detail=why))

    def _result(self, call: ToolCall, text: str, status: Status = "invalid_arguments") -> ToolResult:
        return ToolResult(call.id, status, text[: self._state.config.max_result])


def _sound(arguments: object) -> dict[str, object]:
    """The arguments as they may stand in a history: a strict JSON object, not too deep, nobody else's."""
    # A provider or a dialect may give anything here (NaN, a subclass of dict, a value that contains itself); the
    # history and the ledger hold strict JSON only.
    plain = to_json(arguments)
    return plain if isinstance(plain, dict) else {}


def _compile(spec: ToolSpec) -> CompiledSchema:
    return CompiledSchema(spec.parameters, closed=spec.strict)
