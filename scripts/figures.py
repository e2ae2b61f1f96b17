"""The figures of the house beside well-kept packages: `python scripts/figures.py [--peers]`.

Law: a figure is counted the same way for every package. (tests/test_figures.py::test_each_figure_is_counted_as_stated)

`--peers` fetches the wheels of h11, httpcore, starlette, anyio and structlog through the user's own uv or pip into a
temporary folder and prints their columns too. `--check` exits with status 1 if a figure of callgate misses its goal.
"""

from __future__ import annotations

import ast
import io
import shutil
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from radon.visitors import Class, ComplexityVisitor, Function

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("h11", "httpcore", "starlette", "anyio", "structlog")

GOALS = {
    "longest import chain": ("<=", 12),
    "hidden circles": ("<=", 0),
    "mean complexity": ("<=", 3.5),
    "worst complexity": ("<=", 15),
    "comments a 100 lines": (">=", 4.0),
    "private imports across packages": ("<=", 0),
    "Any a 1,000 lines": ("<=", 15.0),
    "lines of code": ("<=", 29_000),
}
"""Figure -> what callgate wants to reach."""


@dataclass(frozen=True)
class Module:
    """One file of a package."""

    name: str
    text: str
    tree: ast.Module
    is_package: bool


def modules_of(package: Path) -> list[Module]:
    """Every module of the package; vendored code and tests inside it are left out."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if {"_vendor", "tests", "testing"} & set(parts):
            continue
        text = path.read_text("utf-8")
        is_package = path.stem == "__init__"
        found.append(Module(".".join(parts[:-1] if is_package else parts), text, ast.parse(text), is_package))
    return found


# --- imports ------------------------------------------------------------------------------------------------------


def edges(modules: list[Module], *, hidden: bool) -> dict[str, set[str]]:
    """Module -> modules of the package that it imports. `hidden` counts imports inside functions and those under
    `TYPE_CHECKING` too; plug look-up by `import_module` never counts."""
    names = {module.name for module in modules}
    graph: dict[str, set[str]] = {}
    for module in modules:
        targets = {t for node in _imports(module.tree, hidden=hidden) for t in _targets(module, node, names)}
        graph[module.name] = targets - {module.name}
    return graph


def _imports(tree: ast.Module, *, hidden: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    stack: list[ast.AST] = [tree]
    while stack:
        for node in ast.iter_child_nodes(stack.pop()):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield node
            elif hidden or not (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _only_for_types(node)):
                stack.append(node)


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(module: Module, node: ast.Import | ast.ImportFrom, names: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in names)
        return
    origin = node.module or ""
    if node.level:
        parts = module.name.split(".")
        kept = parts[: len(parts) - node.level + module.is_package]
        origin = ".".join([*kept, *([node.module] if node.module else [])])
    for alias in node.names:
        whole = f"{origin}.{alias.name}"
        if whole in names:
            yield whole
        elif origin in names:
            yield origin


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """The longest chain of imports; a circle counts as far as it is entered once."""
    best: dict[str, list[str]] = {}

    def chain(name: str, seen: frozenset[str]) -> list[str]:
        if name in best:
            return best[name]
        tails = [chain(other, seen | {name}) for other in sorted(graph[name]) if other not in seen]
        found = [name, *max(tails, key=len, default=[])]
        best[name] = found
        return found

    return max((chain(name, frozenset()) for name in graph), key=len, default=[])


def private_imports(modules: list[Module]) -> list[str]:
    """Imports of a private module or name of another top-level package of the same distribution."""
    names = {module.name for module in modules}
    found = []
    for module in modules:
        for node in _imports(module.tree, hidden=True):
            if not isinstance(node, ast.ImportFrom) or node.level or not (node.module or "").startswith(_top(module)):
                continue
            for alias in node.names:
                whole = f"{node.module}.{alias.name}".split(".")
                if any(part.startswith("_") for part in whole[2:]) and whole[1:2] != module.name.split(".")[1:2]:
                    found.append(f"{module.name}: {node.module}.{alias.name}")
    return sorted(found) if names else []


def _top(module: Module) -> str:
    return module.name.split(".")[0] + "."


# --- lines --------------------------------------------------------------------------------------------------------


def comments_of(text: str) -> int:
    """Lines with a comment that is for people: directives to tools do not count."""
    tools = ("# noqa", "# type:", "# pragma", "# pyright", "# ruff", "# fmt", "#!")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(t.type == tokenize.COMMENT and not t.string.startswith(tools) for t in tokens)


def code_lines(module: Module) -> int:
    """Lines that are neither blank, nor only comment, nor part of a docstring or of a string that stands alone."""
    strings: set[int] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(module.text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and n not in strings for n, line in lines)


def figures(package: Path) -> dict[str, float]:
    """Every figure of one package."""
    modules = modules_of(package)
    blocks = [block.complexity for module in modules for block in functions_of(module)]
    lines = sum(module.text.count("\n") for module in modules)
    code = sum(code_lines(module) for module in modules)
    return {
        "files": len(modules),
        "lines": lines,
        "lines of code": code,
        "longest import chain": len(longest_chain(edges(modules, hidden=False))),
        "circles": len(circles(edges(modules, hidden=False))),
        "hidden circles": len(circles(edges(modules, hidden=True))),
        "mean complexity": round(statistics.fmean(blocks), 2),
        "worst complexity": max(blocks),
        "comments a 100 lines": round(100 * sum(comments_of(m.text) for m in modules) / lines, 1),
        "private imports across packages": len(private_imports(modules)),
        "Any a 1,000 lines": round(1000 * sum(_anys(m.tree) for m in modules) / lines, 1),
    }


def functions_of(module: Module) -> list[Function]:
    """Functions and methods as radon counts them, not whole classes."""
    visitor = ComplexityVisitor.from_ast(module.tree)
    return [*visitor.functions, *(method for found in visitor.classes for method in _methods(found))]


def _methods(found: Class) -> list[Function]:
    return [*found.methods, *(method for inner in found.inner_classes for method in _methods(inner))]


def _anys(tree: ast.Module) -> int:
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))


# --- output -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Prints the table."""
    columns = {"callgate": figures(ROOT / "src" / "callgate")}
    if "--peers" in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            _fetch(Path(folder))
            columns |= {peer: figures(Path(folder) / peer) for peer in PEERS}
    print("| figure | goal | " + " | ".join(columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    missed = []
    for name, value in columns["callgate"].items():
        sign, bound = GOALS.get(name, ("", ""))
        if sign and not (value <= bound if sign == "<=" else value >= bound):
            missed.append(name)
        print(f"| {name} | {sign} {bound} | " + " | ".join(str(c[name]) for c in columns.values()) + " |")
    if "--why" in sys.argv[1:]:
        _explain(ROOT / "src" / "callgate")
    if "--check" in sys.argv[1:] and missed:
        sys.exit(f"figures: missed: {', '.join(missed)}")


def _fetch(folder: Path) -> None:
    tool = [uv, "pip"] if (uv := shutil.which("uv")) else [sys.executable, "-m", "pip"]
    subprocess.run([*tool, "install", "--quiet", "--no-deps", "--target", str(folder), *PEERS], check=True)


def _explain(package: Path) -> None:
    """What stands behind the figures that miss most easily."""
    modules = modules_of(package)
    print("\nlongest chain: " + " > ".join(longest_chain(edges(modules, hidden=False))))
    for group in circles(edges(modules, hidden=True)):
        print("hidden circle: " + ", ".join(group))
    print("\n".join(f"private import: {line}" for line in private_imports(modules)))
    blocks = [(b.complexity, f"{m.name}:{b.lineno} {b.fullname}") for m in modules for b in functions_of(m)]
    print("\n".join(f"complexity {size}: {where}" for size, where in sorted(blocks, reverse=True) if size > 15))


if __name__ == "__main__":
    main()
