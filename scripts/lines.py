"""Which test runs which line: a pytest plugin that writes it down, and the map that is read from it.

Law: a mutant is tried with every test that runs the statement it changed, as far as that runs in the test's process.
(tests/test_mutants.py::test_a_line_is_known_by_the_tests_that_run_it)

`pytest -p lines` with `scripts/` on PYTHONPATH and `CALLGATE_LINES=FILE` writes the map. What a test runs in another
process is not seen; a line that no test of the map runs is tried with all tests of its package.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import threading
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

import pluggy
import pytest

if TYPE_CHECKING:
    from _typeshed import TraceFunction

QUICK = 60.0
"""Seconds of tests that are tried first, the quickest: what a hundred of them do not notice the slow ones rarely do."""
Line: TypeAlias = "tuple[str, int]"


@dataclass
class Map:
    """Tests, their seconds, and the lines they run."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """File name within the package -> line -> tests."""

    @classmethod
    def read(cls, path: Path) -> Map:
        """As the plugin wrote it."""
        data = json.loads(path.read_text("utf-8"))
        names = list(data["tests"])
        lines = {
            file: {int(line): [names[n] for n in tests] for line, tests in found.items()}
            for file, found in data["lines"].items()
        }
        return cls(dict(data["tests"]), lines)

    def tests_of(self, file: str, source: str, line: int) -> list[str]:
        """The tests that run this line's statement, or else its function, or else anything of the file; quickest
        first."""
        here = self.lines.get(file, {})
        for first, last in _spans(source, line):
            found = {test for at, tests in here.items() if first <= at <= last for test in tests}
            if found:
                return sorted(found, key=lambda name: self.seconds[name])
        return []

    def quick(self, tests: Iterable[str]) -> int:
        """How many of these tests, quickest first, are tried before the others."""
        spent = 0.0
        count = 0
        for count, test in enumerate(tests):
            spent += self.seconds.get(test, 0.0)
            if count and spent > QUICK:
                return count
        return count + 1


def _spans(source: str, line: int) -> list[tuple[int, int]]:
    """First and last lines of what holds this line, from its statement to the file."""
    spans = [(1, len(source.splitlines()) + 1)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = node.body[0].lineno if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else node.lineno
            if not isinstance(node, ast.ClassDef):
                spans.append((max(node.lineno, body), node.end_lineno or node.lineno))
    return sorted(spans, key=lambda span: span[1] - span[0])


# --- the plugin ---------------------------------------------------------------------------------------------------


class Lines:
    """Follows every test through the package."""

    def __init__(self, target: Path, package: Path) -> None:
        self._target = target
        self._package = f"{package}{os.sep}"
        self._names: dict[str, str | None] = {}
        self._seen: set[Line] = set()
        self._found: dict[str, tuple[float, set[Line]]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, pluggy.Result[object], None]:
        """Everything that runs meanwhile is the test's, in whatever thread."""
        self._seen = set()
        begun = time.monotonic()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        outcome = yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        # One that fails without a mutant, if only because it is slowed down here, would kill every one.
        if outcome.excinfo is None:
            self._found[item.nodeid] = (time.monotonic() - begun, set(self._seen))

    def _enter(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        code = frame.f_code.co_filename
        if code not in self._names:
            inside = code.startswith(self._package)
            self._names[code] = code[len(self._package) :].replace(os.sep, "/") if inside else None
        name = self._names[code]
        if name is None:
            return None
        seen = self._seen

        def line(frame: FrameType, event: str, arg: object) -> TraceFunction:
            if event == "line":
                seen.add((name, frame.f_lineno))
            return line

        return line

    def pytest_sessionfinish(self) -> None:
        """Writes the map."""
        lines: dict[str, dict[str, list[int]]] = {}
        for number, (_, seen) in enumerate(self._found.values()):
            for file, line in seen:
                lines.setdefault(file, {}).setdefault(str(line), []).append(number)
        tests = {name: round(seconds, 4) for name, (seconds, _) in self._found.items()}
        self._target.write_text(json.dumps({"tests": tests, "lines": lines}), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Begins, if a map was asked for."""
    target = os.environ.get("CALLGATE_LINES")
    if target:
        package = Path(__file__).resolve().parent.parent / "src" / "callgate"
        config.pluginmanager.register(Lines(Path(target), package), "lines-of-tests")
