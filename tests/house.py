"""What the house must look like, as functions over a source tree; test_architecture.py runs them on ours, and on copies
that are broken on purpose."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "callgate"

PLUG_ROOMS = ("formats", "dialects", "policy", "providers", "ledger")
FILE_LINES = 500
FUNCTION_LINES = 60
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "base", "common", "misc"}


def copy(target: Path) -> Path:
    """A copy of the source tree with what import-linter needs; its package."""
    shutil.copytree(ROOT / "src", target / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", target)
    return target / "src" / "callgate"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over the tree under `root`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    env = {"PYTHONPATH": str(root / "src"), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=60, check=False)


def modules(package: Path) -> Iterator[tuple[str, Path, ast.Module]]:
    """Dotted name, path and tree of every module."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, path, _parsed(path.read_text("utf-8"))


def imported(name: str, path: Path, tree: ast.Module) -> Iterator[str]:
    """Dotted names of what a module imports, at any depth, `from x import y` as x.y."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parts = name.split(".")
                start = parts[: len(parts) - level + (path.stem == "__init__")] if level else []
                origin = ".".join([*start, *([module] if module else [])])
                yield from (f"{origin}.{alias.name}" for alias in names)


def plugs_that_import_plugs(package: Path) -> list[str]:
    """Each case where one plug of a room imports another."""
    found = []
    for name, path, tree in modules(package):
        parts = name.split(".")
        if len(parts) != 3 or parts[1] not in PLUG_ROOMS or parts[2].startswith("_"):
            continue
        room = ".".join(parts[:2])
        plugs = {f"{room}.{p.stem}" for p in (package / parts[1]).glob("*.py") if not p.stem.startswith("_")}
        for other in imported(name, path, tree):
            hit = next((plug for plug in plugs - {name} if other == plug or other.startswith(plug + ".")), None)
            if hit:
                found.append(f"{name} imports {hit}")
    return sorted(set(found))


def too_long(package: Path) -> list[str]:
    """Files and functions over their limits."""
    found = []
    for name, path, tree in modules(package):
        lines = path.read_text("utf-8").count("\n")
        if lines > FILE_LINES:
            found.append(f"{name}: {lines} lines (at most {FILE_LINES})")
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    found.append(f"{name}.{node.name}: {length} lines (at most {FUNCTION_LINES})")
    return found


def badly_named(package: Path) -> list[str]:
    """Modules whose names say nothing."""
    return [name for name, _, _ in modules(package) if name.rsplit(".", 1)[-1].strip("_") in EMPTY_NAMES]


def silent(package: Path) -> list[str]:
    """Modules that do not open with what they are, and rooms without their law."""
    found = []
    for name, path, tree in modules(package):
        words = ast.get_docstring(tree) or ""
        if not words:
            found.append(f"{name}: no docstring")
        elif path.stem == "__init__" and name.count(".") == 1 and name != "callgate.apps" and "aw:" not in words:
            found.append(f"{name}: no 'Law:'")
        elif path.stem == "__init__" and name.split(".")[-1] in PLUG_ROOMS and "To add a" not in words:
            found.append(f"{name}: no 'To add a …'")
    return found


LAW = re.compile(r"^Law: (?P<law>(?:.+\n?)+?)(?=\n\n|\Z|\nLaw: )", re.MULTILINE)
OF_ITS_PACKAGE = re.compile(r"^that of the (?:room|package) \((callgate/[\w/]+\.py)\)")
TESTED = re.compile(r"\((tests/[\w/]+\.py)::(test_\w+)\)\.?$")


def laws(words: str) -> list[str]:
    """The laws in a module's docstring, each on one line."""
    return [" ".join(found["law"].split()) for found in LAW.finditer(words)]


def unproven(package: Path, root: Path = ROOT) -> list[str]:
    """Modules without a law, and laws that name no test or one that is not there."""
    found = []
    for name, _, tree in modules(package):
        stated = laws(ast.get_docstring(tree) or "")
        if not stated:
            found.append(f"{name}: no 'Law: … (tests/test_x.py::test_y)'")
        for law in stated:
            if (shared := OF_ITS_PACKAGE.search(law)) is not None:
                if not (package.parent / shared[1]).exists():
                    found.append(f"{name}: {shared[1]} is not there")
            elif (tested := TESTED.search(law)) is None:
                found.append(f"{name}: the law {law[:60]!r}… names no test")
            elif not _defines(root / tested[1], tested[2]):
                found.append(f"{name}: {tested[1]} has no {tested[2]}")
    return found


def _defines(path: Path, name: str) -> bool:
    """Whether a file of tests has this test."""
    if not path.exists():
        return False
    return name in _functions(path.read_text("utf-8"))


@functools.cache
def _functions(text: str) -> frozenset[str]:
    nodes = ast.walk(_parsed(text))
    return frozenset(n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


@functools.cache  # each check goes through the whole package, and copies of it differ in one file
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def private_words(package: Path, glossary: Path = ROOT / "docs" / "glossary.md") -> list[str]:
    """Names in the code that use a word which the glossary's last column gives up."""
    banned = given_up(glossary.read_text("utf-8"))
    found = []
    for name, _, tree in modules(package):
        for node in ast.walk(tree):
            identifier = _identifier(node)
            parts = {part.lower() for part in re.split(r"_|(?<=[a-z])(?=[A-Z])", identifier)}
            found += [f"{name}:{getattr(node, 'lineno', 0)}: {identifier} ({word})" for word in sorted(parts & banned)]
    return found


def given_up(glossary: str) -> set[str]:
    """The words of the glossary's last column."""
    rows = [row.strip("|").split("|") for row in glossary.splitlines() if row.startswith("| ")][1:]
    return {word.strip() for row in rows for word in row[-1].split(",") if word.strip()}


def _identifier(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case _:
            return ""
