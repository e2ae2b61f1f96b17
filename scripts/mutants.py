"""Mutation testing: small faults are put into the code one at a time, and the tests must notice.

Law: a mutant is one change that compiles, and the same seed gives the same mutants.
(tests/test_mutants.py::test_a_seed_gives_the_same_mutants)

`make mutants` (or `scripts/mutants.py --count 300 --seed 1 [--room run] [--jobs 2] [--slice 0:50]`) samples mutants
evenly over the packages in `ROOMS`, tries each with the tests that run its line (`scripts/lines.py`; all tests of its
package where none does) against a copy of the source tree, and prints how many were killed: a test failed, or the tests
did not end in time. Survivors that were looked at stand in `tests/mutants.toml` with a class (`equivalent`, `guarded`:
another place makes up for it, `hole`) and a reason; others are listed as new.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import pytest
from lines import Map

ROOT = Path(__file__).resolve().parent.parent
Place: TypeAlias = "tuple[ast.AST, str, int | None, ast.AST]"
"""Parent, the field, the place in its list, and the node."""
Fault: TypeAlias = "tuple[Place, str, ast.AST]"
"""Where, its kind, and what stands there then."""
KNOWN = ROOT / "tests" / "mutants.toml"
LINES = ROOT / ".pytest_cache" / "lines.json"
"""Which test runs which line; removed to have it made anew."""
COMMON = ("hypothesis", "anyio", "pydantic", "httpx", "jsonschema", "referencing", "yaml", "mcp", "psycopg", "asyncio")
"""What nearly all tests need and no mutant changes: imported once, before the processes of the trials are forked."""
FIRST = 3
"""Files of tests that are tried before all others."""
SECONDS = 600
"""Of the processor, for one part of the tests of one mutant; endless loops are what it is for."""
PATIENCE = 3600.0
"""Seconds for one mutant, however busy the machine is; deadlocks are what it is for."""
TIMEOUT = 120
"""Seconds for one test: more than elsewhere, or a busy machine would kill mutants."""

ROOMS: dict[str, str] = {
    "run": "test_run*.py test_contract.py test_agent*.py attacks/test_attack_*.py",
    "policy": "test_policy*.py test_taint.py test_rates.py test_run_gate.py",
    "agent": "test_agent*.py test_rates.py test_breakers_agent.py test_run_acceptance.py test_crash.py",
    "executor": "test_executor*.py test_agent.py",
    "ledger": "test_ledger*.py test_crash.py",
    "masking": "test_masking*.py",
    "protocols": "test_protocols*.py test_run_acceptance.py test_run_reports.py",
}
"""Package -> the tests that answer for it, quickest first."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    room: str
    path: Path
    line: int
    kind: str
    before: str
    after: str
    source: str
    """The whole file with the change."""

    @property
    def id(self) -> str:
        """The same as long as the changed line and its file's name stay."""
        line = self.path.read_text("utf-8").splitlines()[self.line - 1].strip()
        text = f"{self.path.name}\n{line}\n{self.kind}\n{self.before}\n{self.after}"
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def __str__(self) -> str:
        where = self.path.relative_to(ROOT / "src" / "callgate")
        return f"{self.id} {where}:{self.line} {self.kind}: {self.before} -> {self.after}"


# --- changes ------------------------------------------------------------------------------------------------------

_SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """(kind, replacement) for every small fault that this node can have."""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in _SWAPS:
            new = copy.deepcopy(node)
            new.ops[0] = _SWAPS[type(op)]()
            yield "comparison", new
        case ast.BoolOp(op=op):
            new_op = copy.deepcopy(node)
            new_op.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and-or", new_op
            yield "condition dropped", copy.deepcopy(node.values[0])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not dropped", copy.deepcopy(operand)
        case ast.Constant(value=bool(value)):
            yield "bool", ast.Constant(not value)
        case ast.Constant(value=int() | float() as number):
            yield "number", ast.Constant(number + 1)
        case ast.BinOp(op=ast.Add()):
            new_bin = copy.deepcopy(node)
            new_bin.op = ast.Sub()
            yield "plus", new_bin
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "branches swapped", ast.IfExp(copy.deepcopy(test), copy.deepcopy(orelse), copy.deepcopy(body))
        case ast.If(test=test):
            new_if = copy.deepcopy(node)
            new_if.test = ast.UnaryOp(ast.Not(), copy.deepcopy(test))
            yield "condition negated", new_if
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield "returns None", ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
            yield "statement dropped", ast.Pass()
        case ast.Assign(targets=[ast.Attribute()]):
            yield "assignment dropped", ast.Pass()
        case ast.Break() | ast.Continue():
            yield "jump dropped", ast.Pass()


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def mutants_of(path: Path, room: str, *, chosen: Collection[int] | None = None) -> list[Mutant]:
    """The mutants of a file with these numbers; None: all."""
    tree = ast.parse(path.read_text("utf-8"))
    found = []
    for number, fault in enumerate(_faults(tree)):
        if chosen is None or number in chosen:
            found += _made(path, room, tree, fault)
    return found


def _faults(tree: ast.Module) -> list[Fault]:
    """Every fault that could be put into a file: where, its kind, and what stands there then."""
    found = []
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            slots = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for at, node in slots:
                if isinstance(node, ast.AST) and not _is_text_only(parent, node):
                    found += [((parent, name, at, node), kind, new) for kind, new in changes(node)]
    return found


def _is_text_only(parent: ast.AST, node: ast.AST) -> bool:
    """Docstrings, annotations and the parts of f-strings are no behaviour worth a mutant."""
    return isinstance(parent, (ast.JoinedStr, ast.FormattedValue)) or node is getattr(parent, "annotation", None)


def _made(path: Path, room: str, tree: ast.Module, fault: Fault) -> Iterator[Mutant]:
    (parent, name, at, node), kind, new = fault
    ast.fix_missing_locations(ast.copy_location(new, node))
    before, after = _short(ast.unparse(node)), _short(ast.unparse(new))
    if before == after:
        return
    _put(parent, name, at, new)
    try:
        source = ast.unparse(ast.fix_missing_locations(tree))
    finally:
        _put(parent, name, at, node)
    yield Mutant(room, path, getattr(node, "lineno", 0), kind, before, after, source)


def _put(parent: ast.AST, name: str, at: int | None, node: ast.AST) -> None:
    if at is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[at] = node


def _short(text: str) -> str:
    return " ".join(text.split())[:100]


def sample(count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """`count` mutants, as many of each room as of the others; the same seed gives the same."""
    chance = random.Random(seed)
    found: list[Mutant] = []
    for number, room in enumerate(rooms):
        share = count * (number + 1) // len(rooms) - count * number // len(rooms)
        here = [(path, n) for path in _files(room) for n in range(len(_faults(ast.parse(path.read_text("utf-8")))))]
        chosen = chance.sample(here, min(share, len(here)))
        for path in sorted({path for path, _ in chosen}):
            found += mutants_of(path, room, chosen={n for other, n in chosen if other == path})
    return found


def _files(room: str) -> list[Path]:
    place = ROOT / "src" / "callgate" / room
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


# --- trials -------------------------------------------------------------------------------------------------------


class Bench:
    """Copies of the source tree, one a job, in which mutants are tried, each in a process forked from this one."""

    def __init__(self, folder: Path, jobs: int, lines: Map) -> None:
        self._lines = lines
        self._free: list[Path] = []
        self._running: dict[int, tuple[Mutant, Path, float]] = {}
        for number in range(jobs):
            place = folder / str(number)
            shutil.copytree(ROOT / "src", place, ignore=shutil.ignore_patterns("__pycache__"))
            self._free.append(place)

    def trials(self, mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, bool]]:
        """Each with whether the tests that run its line notice, as they come to their ends."""
        for mutant in mutants:
            if not self._free:
                yield self._next()
            self._begin(mutant, self._free.pop())
        while self._running:
            yield self._next()

    def _begin(self, mutant: Mutant, place: Path) -> None:
        name = mutant.path.relative_to(ROOT / "src" / "callgate").as_posix()
        tests = self._lines.tests_of(name, mutant.path.read_text("utf-8"), mutant.line) or tests_of(mutant.room)
        (place / mutant.path.relative_to(ROOT / "src")).write_text(mutant.source, "utf-8")
        quick = self._lines.quick(tests)
        # The slow ones, with the laws of the house among them, only for what all others let pass.
        parts = [part for part in (*in_two(tests[:quick]), tests[quick:]) if part]
        self._running[started(parts, place)] = (mutant, place, time.monotonic() + PATIENCE)

    def _next(self) -> tuple[Mutant, bool]:
        """Waits for one trial to end."""
        while True:
            for pid, (mutant, place, deadline) in list(self._running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended and time.monotonic() < deadline:
                    continue
                _kill(pid, reap=not ended)
                del self._running[pid]
                shutil.copy(mutant.path, place / mutant.path.relative_to(ROOT / "src"))
                self._free.append(place)
                return mutant, not ended or os.waitstatus_to_exitcode(status) != 0
            time.sleep(0.05)


def tests_of(room: str) -> list[str]:
    """The files that answer for a package."""
    found = [p for pattern in ROOMS[room].split() for p in sorted((ROOT / "tests").glob(pattern))]
    return [p.relative_to(ROOT).as_posix() for p in found]


def started(parts: list[list[str]], source: Path) -> int:
    """The process that tries the package at `source`, part by part of the tests; it exits with 1 if one notices."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:  # nothing of this process's end may run what the parent has still to do
        os.setsid()  # so that whatever its tests start can be ended with it
        with open(os.devnull, "r+b") as nothing:
            for stream in (0, 1, 2):
                os.dup2(nothing.fileno(), stream)
        code = int(noticed(parts, source))
    finally:
        os._exit(code)


def noticed(parts: list[list[str]], source: Path) -> bool:
    """Whether a test fails that passes without the mutant: tests that a busy machine fails kill nothing."""
    chance: set[str] = set()
    for some in parts:
        while (failed := first_failure(some, source, chance)) is not None:
            if not failed or first_failure([failed], ROOT / "src", set()) is None:
                return True
            chance.add(failed)
    return False


def first_failure(tests: list[str], source: Path, without: Collection[str]) -> str | None:
    """The first of these tests that fails, "" if it is not known which, None if all pass. In a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        code = 3
        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            code = _pytest(tests, source, without, First(writer))
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as told:
        name = told.readline().strip()
    _, status = os.waitpid(pid, 0)
    return None if os.waitstatus_to_exitcode(status) == 0 else name


class First:
    """A plugin that tells which test failed first."""

    def __init__(self, writer: int) -> None:
        self._writer = writer
        os.set_inheritable(writer, False)  # a process that a test leaves behind must not keep it open

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """With `-x` the first one is the only one."""
        if report.failed:
            os.write(self._writer, f"{report.nodeid}\n".encode())


def in_two(tests: list[str]) -> tuple[list[str], list[str]]:
    """First those of the files that hold the most of them: most mutants fall there, and to read all files takes
    seconds."""
    files = Counter(test.partition("::")[0] for test in tests)
    chosen = {name for name, _ in files.most_common(FIRST)}
    first = [test for test in tests if test.partition("::")[0] in chosen]
    return first, [test for test in tests if test.partition("::")[0] not in chosen]


def _pytest(tests: list[str], source: Path, without: Collection[str], plugin: object) -> int:
    os.chdir(ROOT)
    os.environ |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.path.insert(0, str(source))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:  # thousands of names are no command line
        listed.write("\n".join([*tests, *(f"--deselect={name}" for name in without)]))
        listed.flush()
        quiet = ["-q", "-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that are imported already
        plain = ["-p", "no:cacheprovider", "-p", "no:randomly", "--timeout", str(TIMEOUT)]
        code = int(pytest.main(["-x", *quiet, *plain, f"@{listed.name}"], plugins=[plugin]))
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code  # all were left out


def _kill(pid: int, *, reap: bool) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if reap:
        os.waitpid(pid, 0)


def lines_of_tests() -> Map:
    """The map, made if there is none; what fails here without a mutant is left out."""
    if not LINES.exists():
        LINES.parent.mkdir(exist_ok=True)
        tests = sorted({test for room in ROOMS for test in tests_of(room)})
        scripts = {"CALLGATE_LINES": str(LINES), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'scripts'}"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "lines", "-p", "no:randomly", "--timeout", "300", *tests]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **scripts}, capture_output=True, check=False)
    return Map.read(LINES)


def known() -> dict[str, dict[str, str]]:
    """Survivors that were looked at, by id."""
    return tomllib.loads(KNOWN.read_text("utf-8")) if KNOWN.exists() else {}


def main() -> None:
    """Samples, tries, counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", choices=list(ROOMS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--slice", default=":", help="of the sample, to go on where another run stopped: 0:50")
    asked = parser.parse_args()
    lines = lines_of_tests()
    first, _, last = asked.slice.partition(":")
    chosen = sample(asked.count, asked.seed, asked.room or list(ROOMS))
    chosen = chosen[int(first or 0) : int(last) if last else None]
    survivors, tried = [], Counter[str]()
    for name in COMMON:
        with suppress(ImportError):
            import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        for mutant, killed in Bench(Path(folder), asked.jobs, lines).trials(chosen):
            tried[mutant.room] += 1
            if not killed:
                survivors.append(mutant)
            print(f"{'killed  ' if killed else 'SURVIVED'} {mutant}", flush=True)
    report(tried, survivors)


def report(tried: Counter[str], survivors: list[Mutant]) -> None:
    """The figures, and the survivors that nobody has looked at."""
    looked_at = known()
    alive = Counter(m.room for m in survivors)
    for room, count in tried.items():
        print(f"{room}: {count - alive[room]} of {count} killed")
    total = sum(tried.values())
    classes = Counter(looked_at[m.id]["class"] for m in survivors if m.id in looked_at)
    print(
        f"all: {total - len(survivors)} of {total} killed ({(total - len(survivors)) / total:.0%}); survivors by class:"
    )
    print("  " + ", ".join(f"{name} {n}" for name, n in classes.items()) if classes else "  none looked at")
    for mutant in survivors:
        if mutant.id not in looked_at:
            print(f"new survivor: {mutant}")


if __name__ == "__main__":
    main()
