"""Reading texts in pieces and comparing what comes out, for the tests of the dialects."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from callgate import dialects
from callgate.types import BadCall, CallDelta, Delta, ReasoningDelta, TextDelta, ToolCall, ToolSpec

CONFORMANCE = Path(__file__).parent / "conformance"


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file of cases."""
    text = (CONFORMANCE / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]  # not splitlines: a case holds U+2028


def spec_of(tool: dict[str, Any]) -> ToolSpec:
    """A tool of the cases: OpenAI's form or the bare function."""
    function = tool.get("function", tool)
    return ToolSpec(function["name"], function.get("description", ""), function.get("parameters", {}))


def merge(deltas: Iterable[Delta]) -> list[Delta]:
    """Neighbours of one kind (and of one call) as one: what must not depend on the cuts."""
    out: list[Delta] = []
    for delta in deltas:
        last = out[-1] if out else None
        match last, delta:
            case TextDelta(), TextDelta():
                out[-1] = TextDelta(last.text + delta.text)
            case ReasoningDelta(), ReasoningDelta():
                out[-1] = ReasoningDelta(last.text + delta.text)
            case CallDelta(), CallDelta() if last.index == delta.index:
                out[-1] = CallDelta(
                    last.index, last.id or delta.id, last.name or delta.name, last.arguments + delta.arguments
                )
            case _:
                out.append(delta)
    return out


def read(
    dialect: str | dialects.Dialect, chunks: Iterable[str], tools: Sequence[ToolSpec] = (), tail: str = ""
) -> list[Delta]:
    """The merged deltas of a message."""
    return read_with_problems(dialect, chunks, tools, tail)[0]


def read_with_problems(
    dialect: str | dialects.Dialect, chunks: Iterable[str], tools: Sequence[ToolSpec] = (), tail: str = ""
) -> tuple[list[Delta], list[str]]:
    """The merged deltas of a message, and what was odd in it."""
    machine = dialects.reader(dialect, tools=tools, prompt_tail=tail)
    out = [delta for chunk in chunks for delta in machine.feed(chunk)]
    out += machine.finish()
    return merge(out), machine.problems


def cuts(text: str, *, every: bool = True, some: int = 4, seed: int = 7) -> Iterator[list[str]]:
    """One character at a time, every cut in two, and random cuts."""
    yield list(text)
    if every:
        yield from ([text[:i], text[i:]] for i in range(1, len(text)))
    rng = random.Random(seed)
    for _ in range(some):
        points = sorted(rng.choices(range(len(text) + 1), k=min(6, len(text))))
        yield [text[a:b] for a, b in zip([0, *points], [*points, len(text)], strict=True)]


def text_of(deltas: Iterable[Delta]) -> str:
    """The content."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def reasoning_of(deltas: Iterable[Delta]) -> str:
    """The reasoning."""
    return "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))


def calls_of(deltas: Iterable[Delta]) -> list[ToolCall]:
    """The calls, in order."""
    return sorted((d for d in deltas if isinstance(d, ToolCall)), key=lambda call: call.index)


def bad_of(deltas: Iterable[Delta]) -> list[BadCall]:
    """The calls that are incomplete or cannot be read, in order."""
    return sorted((d for d in deltas if isinstance(d, BadCall)), key=lambda call: call.index)


def check_streams(deltas: Sequence[Delta]) -> None:
    """What holds for every message: one end an index, the name first, fragments that are the final arguments."""
    ends = sorted(delta.index for delta in deltas if isinstance(delta, ToolCall | BadCall))
    assert ends == list(range(len(ends)))
    fragments: dict[int, str] = {}
    names: dict[int, str | None] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            names.setdefault(delta.index, delta.name)
            fragments[delta.index] = fragments.get(delta.index, "") + delta.arguments
    for call in calls_of(deltas):
        assert names[call.index] == call.name
        assert json.loads(fragments[call.index]) == call.arguments
