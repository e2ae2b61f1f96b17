"""Cases of an evaluation: what is asked, with which tools, and which calls are right.

Law: a case is plain data; the same file gives the same cases, whatever the model.
(tests/test_evals.py::test_cases_written_are_cases_read)

One's own cases are JSONL, a case a line:

    {"id": "…", "request": "…" | "messages": […], "tools": [OpenAI-style …], "calls": [{"name": …, "arguments": {…}}]}

`calls` is what is wanted, in any order; `[]` means that nothing may be called. A value {"any_of": [a, b]} accepts each
of them, {"optional": true, …} accepts that the argument is left out. Without "tools" a case has those of the line
before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callgate.errors import ConfigError
from callgate.evals._match import Function, Gold, plain, wrong
from callgate.types import Message, ToolCall, ToolSpec


@dataclass(slots=True, frozen=True)
class Case:
    """One request and what is right for it."""

    id: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    calls: tuple[Mapping[str, Any], ...] = ()
    """Wanted calls of one's own cases: {"name", "arguments"}."""
    gold: tuple[Gold, ...] = ()
    """Wanted calls in the leaderboard's form; with `functions` its rules of matching are used."""
    functions: tuple[Function, ...] = field(default=(), repr=False)
    group: str = "own"

    @property
    def wants_call(self) -> bool:
        """Whether anything should be called at all."""
        return bool(self.gold or self.calls)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that should be called, sorted."""
        return tuple(sorted([next(iter(g)) for g in self.gold] + [c["name"] for c in self.calls]))

    def wrong(self, calls: Sequence[ToolCall]) -> str | None:
        """What is wrong with these calls; None: they are right."""
        if not self.wants_call:
            return f"called {calls[0].name}, nothing was wanted" if calls else None
        return wrong(calls, self.gold, self.functions) if self.gold else _wrong_exactly(calls, self.calls)


def _wrong_exactly(calls: Sequence[ToolCall], wanted: Sequence[Mapping[str, object]]) -> str | None:
    if len(calls) != len(wanted):
        return f"{len(calls)} calls, {len(wanted)} wanted"
    left = list(calls)
    for want in wanted:
        found = next((c for c in left if c.name == want["name"] and _fits(c.arguments, want["arguments"])), None)
        if found is None:
            return f"no call {want['name']}({json.dumps(want['arguments'], ensure_ascii=False)})"
        left.remove(found)
    return None


def _fits(value: Any, want: object) -> bool:
    if isinstance(want, Mapping):
        if "any_of" in want:
            return any(_fits(value, option) for option in want["any_of"])
        return isinstance(value, Mapping) and _fields_fit(value, want)
    if isinstance(want, list):
        same = isinstance(value, list) and len(value) == len(want)
        return same and all(_fits(v, w) for v, w in zip(value, want, strict=True))
    if isinstance(want, bool) or isinstance(value, bool):  # in Python `True == 1`, in JSON it is not
        return value is want
    return bool(plain(value) == plain(want))


def _fields_fit(value: Mapping[str, object], want: Mapping[str, object]) -> bool:
    if value.keys() - want.keys():
        return False
    return all(_fits(value[k], w) if k in value else _optional(w) for k, w in want.items())


def _optional(want: object) -> bool:
    return isinstance(want, Mapping) and want.get("optional") is True


def load_jsonl(path: Path) -> list[Case]:
    """One's own cases; raises ConfigError with the line that is wrong."""
    cases: list[Case] = []
    tools: tuple[ToolSpec, ...] = ()
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            tools = tuple(spec_of(t) for t in row["tools"]) if "tools" in row else tools
            cases.append(_own(row, tools, f"{path.stem}:{number}"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}:{number}: no case: {_wrong(error)}; see `callgate eval --help`") from error
    return cases


def _wrong(error: Exception) -> str:
    """What is wrong with a line, in the words of the file and not of Python."""
    match error:
        case KeyError():
            return f"{error.args[0]!r} is missing"
        case json.JSONDecodeError():
            return f"not JSON: {error}"
        case ValueError():
            return str(error)
        case _:  # a number where a table is, a list where a text is
            return f"a value of another type than the form has ({error})"


def _own(row: Mapping[str, Any], tools: tuple[ToolSpec, ...], name: str) -> Case:
    messages = row.get("messages") or [{"role": "user", "content": row["request"]}]
    calls = tuple({"name": c["name"], "arguments": c.get("arguments", {})} for c in row["calls"])
    return Case(
        id=str(row.get("id", name)),
        messages=tuple(Message(m["role"], m["content"]) for m in messages),
        tools=tools,
        calls=calls,
        group=str(row.get("group", "own")),
    )


def spec_of(tool: Mapping[str, Any]) -> ToolSpec:
    """An OpenAI-style tool, or the function object in it."""
    function = tool.get("function", tool)
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(
        function["name"],
        function.get("description", ""),
        parameters,
        effect="read",
        examples=tuple(function.get("examples", ())),
    )


def dump_jsonl(cases: Iterable[Case]) -> str:
    """One's own cases as text that `load_jsonl` reads."""
    lines = []
    for case in cases:
        row = {
            "id": case.id,
            "messages": [{"role": m.role, "content": m.text} for m in case.messages],
            "tools": [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in case.tools],
            "calls": [dict(c) for c in case.calls],
        }
        lines.append(json.dumps(row, ensure_ascii=False, default=dict))
    return "".join(line + "\n" for line in lines)
