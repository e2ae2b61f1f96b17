"""What grammars may do to the state of a message: look at the buffer, move the cursor forward, and call methods."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from callgate import dialects
from callgate.dialects import Reader
from callgate.dialects._catalogue import all_dialects
from callgate.dialects._plan import Plan
from dialect_reading import cuts, merge, rows, spec_of

ROOM = Path(dialects.__file__).parent
OWNERS = {"_reading.py", "_reader.py"}
"""The state, and the machine that feeds it."""
FIELDS = {
    "buf", "call", "deferred", "holds", "index", "known", "line", "out", "over", "problems", "reasoning", "speculation",
    "text", "tools",
}  # fmt: skip
"""What no grammar assigns. `pos` moves (below); `state`, `framed` and `addressed` say how to read on."""
CHANGERS = {"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault"}


def owner(node: ast.expr) -> str | None:
    """The field of the reading that this expression is: `r.out` -> "out"."""
    return (
        node.attr
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "r"
        else None
    )


def changes(tree: ast.AST) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGERS:
            targets = [node.func.value]
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if (field := owner(part)) in FIELDS:
                    found.append((node.lineno, str(field)))
    return found


@pytest.mark.parametrize(
    "path", sorted(set(ROOM.glob("_*.py")) - {ROOM / name for name in OWNERS}), ids=lambda p: p.stem
)
def test_grammars_change_the_reading_through_its_methods_alone(path: Path) -> None:
    """No text, delta, call, look-ahead or limit is written from outside."""
    assert changes(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_the_check_sees_a_change() -> None:
    """It is no test that cannot fail."""
    for line in ("r.buf = ''", "r.out.append(1)", "r.index += 1", "r.call, x = 1, 2", "r.problems.clear()"):
        assert changes(ast.parse(line)), line


class Watched(Reader):
    """A reader that knows who moves its cursor."""

    __slots__ = ("_at", "backward")

    @property
    def pos(self) -> int:  # type: ignore[override]
        return self._at

    @pos.setter
    def pos(self, value: int) -> None:
        frame: FrameType = sys._getframe(1)
        name = Path(frame.f_code.co_filename).name
        if name not in OWNERS and not getattr(self, "_at", 0) <= value <= len(self.buf):
            self.backward = [*getattr(self, "backward", []), (name, frame.f_lineno, self._at, value)]
        self._at = value


CASES = [*rows("dialects.jsonl"), *rows("reader_breakers.jsonl")]


@pytest.mark.parametrize("name", sorted({row["dialect"] for row in CASES}))
def test_a_grammar_moves_the_cursor_forward_only(name: str) -> None:
    """And never past the buffer, in every case of the dialect, whole, by characters and at random cuts."""
    for row in CASES:
        if row["dialect"] != name:
            continue
        tools: list[Any] = [spec_of(tool) for tool in row.get("tools", ())]
        whole = None
        for chunks in [[row["raw"]], *cuts(row["raw"], every=False)]:
            reader = Watched(dialects.get(name), tools, row.get("prompt_tail", ""))
            deltas = [delta for chunk in chunks for delta in reader.feed(chunk)] + reader.finish()
            assert getattr(reader, "backward", []) == [], row.get("id")
            whole = whole or merge(deltas)
            assert merge(deltas) == whole


def test_a_plan_is_made_once_and_never_changes() -> None:
    """Reading changes neither the dialect nor its plan; equal data has one plan."""
    for name in dialects.names():
        dialect = dialects.get(name)
        plan = Plan.of(dialect)
        before = repr(dialect), [rule for state in (plan.text, *plan.regions) for rule in state.rules]
        for row in CASES:
            if row["dialect"] == name:
                reader = dialects.reader(name, prompt_tail=row.get("prompt_tail", ""))
                reader.feed(row["raw"])
                reader.finish()
        assert Plan.of(dialects.get(name)) is plan
        assert (repr(dialect), [rule for state in (plan.text, *plan.regions) for rule in state.rules]) == before
        assert Plan.of(dialect.but()) is plan


def test_a_word_of_the_spec_is_used_by_more_than_one_dialect() -> None:
    """What one family alone does is a function in its file, not a flag in the grammar that all share."""
    users: dict[tuple[str, str], set[str]] = {}
    everything = [*all_dialects(), dialects.get("auto"), dialects.get("mimo"), dialects.get("minicpm-v")]
    for number, dialect in enumerate(everything):
        for part, name, changed in words_of(dialect):
            users.setdefault((part, name), set()).update({f"{number} {dialect.name}"} if changed else ())
    assert len(users) <= 51
    assert [word for word, found in users.items() if len(found) == 1] == []


def words_of(part: object) -> Iterator[tuple[str, str, bool]]:
    """Every field of a dialect's data, and whether it is set to something of its own."""
    if isinstance(part, tuple):
        for each in part:
            yield from words_of(each)
    elif is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            usual = field.default_factory() if field.default_factory is not MISSING else field.default
            yield type(part).__name__, field.name, value != usual
            yield from words_of(value)
