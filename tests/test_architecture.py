"""The walls of the house stand, and each of them bites."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import callgate
import house

FLOORS = "An import points only to a lower floor"
CEILING = "The glass ceiling"
UNAWARE = "What connects, executes or records does not know the run"

HEAVY = {"aiohttp", "pydantic", "jsonschema_rs", "docstring_parser", "rich", "mcp", "xllamacpp"}
HEAVY |= {"prompt_toolkit", "psycopg", "httpx", "anyio"}


def add(path: Path, line: str) -> None:
    """Puts a line at the end of a module."""
    path.write_text(path.read_text("utf-8") + f"\n{line}\n", "utf-8")


def broken(output: str) -> list[str]:
    """The contracts that import-linter reports as broken."""
    return [line for line in output.splitlines() if line.strip().endswith("BROKEN")]


def test_the_import_contracts_hold() -> None:
    done = house.lint_imports(house.ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("types.py", "import callgate.events", FLOORS),
        ("results.py", "import callgate.wire", FLOORS),  # neighbours on one floor
        ("tools/__init__.py", "import callgate.run", FLOORS),
        ("ledger/memory.py", "def f():\n    import callgate.apps.tui", FLOORS),  # also inside a function
        ("executor/__init__.py", "import callgate.run", UNAWARE),
        ("providers/replay.py", "from callgate.run import Run", UNAWARE),
    ],
)
def test_an_import_upwards_is_found(tmp_path: Path, module: str, line: str, contract: str) -> None:
    add(house.copy(tmp_path) / module, line)
    done = house.lint_imports(tmp_path)
    assert done.returncode == 1
    assert any(contract in row for row in broken(done.stdout)), done.stdout


def test_every_module_above_the_glass_ceiling_is_forbidden_below(tmp_path: Path) -> None:
    contracts = tomllib.loads((house.ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (ceiling,) = (c for c in contracts if c["name"].startswith(CEILING))
    package = house.copy(tmp_path)
    for name in ceiling["forbidden_modules"]:
        add(package / "history.py", f"import {name}")
    done = house.lint_imports(tmp_path)
    assert any(CEILING in row for row in broken(done.stdout)), done.stdout
    for name in ceiling["forbidden_modules"]:
        assert f"callgate.history is not allowed to import {name}" in done.stdout, name


def test_every_room_stands_on_a_floor_and_those_below_run_are_under_the_ceiling() -> None:
    contracts = tomllib.loads((house.ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [[room.strip() for room in row.split("|")] for row in contracts[0]["layers"]]
    rooms = {f"callgate.{p.stem}" for p in house.PACKAGE.iterdir() if (p.is_dir() or p.suffix == ".py")}
    rooms -= {"callgate.__init__", "callgate.__main__", "callgate.__pycache__"}
    assert {room for row in layers for room in row} == rooms
    top = next(at for at, row in enumerate(layers) if "callgate.run" in row)
    assert {room for row in layers[top:] for room in row} == set(contracts[1]["source_modules"])


def test_no_plug_imports_a_plug() -> None:
    assert house.plugs_that_import_plugs(house.PACKAGE) == []


@pytest.mark.parametrize(
    "line",
    [
        "import callgate.ledger.sqlite",
        "from callgate.ledger import sqlite",
        "from . import sqlite",
        "from .sqlite import open",
        "def f():\n    from callgate.ledger.sqlite import open",
    ],
)
def test_a_plug_that_imports_a_plug_is_found(tmp_path: Path, line: str) -> None:
    package = house.copy(tmp_path)
    add(package / "ledger" / "memory.py", line)
    assert house.plugs_that_import_plugs(package) == ["callgate.ledger.memory imports callgate.ledger.sqlite"]


@pytest.mark.parametrize("folder", ["src/callgate", "tests", "bench", "scripts", "examples"])
def test_files_and_functions_keep_their_size(folder: str) -> None:
    assert house.too_long(house.ROOT / folder) == []


def test_a_long_file_and_a_long_function_are_found(tmp_path: Path) -> None:
    package = tmp_path / "callgate"
    package.mkdir()
    (package / "long.py").write_text("x = 1\n" * 501, "utf-8")
    (package / "deep.py").write_text("def f():\n" + "    x = 1\n" * 60, "utf-8")
    assert house.too_long(package) == [
        "callgate.deep.f: 61 lines (at most 60)",
        "callgate.long: 501 lines (at most 500)",
    ]


def test_names_say_something_and_modules_open_with_what_they_are() -> None:
    assert house.badly_named(house.PACKAGE) == []
    assert house.silent(house.PACKAGE) == []


def test_every_law_names_a_test_that_is_there() -> None:
    assert house.unproven(house.PACKAGE) == []


def test_a_law_without_a_test_is_found(tmp_path: Path) -> None:
    package = house.copy(tmp_path)
    (package / "keys.py").write_text('"""Keys."""\n', "utf-8")
    (package / "wire.py").write_text('"""Wire.\n\nLaw: all is well. (tests/test_wire.py::test_nothing)\n"""\n', "utf-8")
    (package / "results.py").write_text('"""Results.\n\nLaw: nothing\nis lost.\n"""\n', "utf-8")
    assert sorted(house.unproven(package)) == [
        "callgate.keys: no 'Law: … (tests/test_x.py::test_y)'",
        "callgate.results: the law 'nothing is lost.'… names no test",
        "callgate.wire: tests/test_wire.py has no test_nothing",
    ]


FORMER = {"Mouth"}
"""Names that stay importable for programs outside this repository."""


def test_no_word_that_the_glossary_gives_up_comes_back() -> None:
    assert [line for line in house.private_words(house.PACKAGE) if line.split(": ")[1].split()[0] not in FORMER] == []


def test_the_glossary_is_short_and_a_given_up_word_is_found(tmp_path: Path) -> None:
    page = (house.ROOT / "docs" / "glossary.md").read_text("utf-8")
    assert len([row for row in page.splitlines() if row.startswith("| ")]) - 1 <= 30
    package = house.copy(tmp_path)
    add(package / "keys.py", "def f(what_was_said: str) -> None: ...")
    assert any("what_was_said (said)" in line for line in house.private_words(package))


def test_the_face_is_exact() -> None:
    """`__all__`, the lazy table and what type checkers see are the same names, at most thirty."""
    tree = ast.parse((house.PACKAGE / "__init__.py").read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert len(seen) == len(block.body), "write `from x import y as y`"
    assert seen == {name: f"callgate.{home}" for name, home in callgate._HOMES.items()}
    assert sorted([*seen, "__version__"], key=callgate.__all__.index) == callgate.__all__
    assert len(callgate.__all__) <= 30
    for name in callgate.__all__:
        assert getattr(callgate, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = callgate.nothing


def test_no_module_takes_the_place_of_a_name_of_the_face() -> None:
    """`import callgate.x` sets `callgate.x`: a module called like a function would replace it, in some orders only."""
    modules = {name.removeprefix("callgate.") for name, _, _ in house.modules(house.PACKAGE) if name.count(".") == 1}
    assert modules & set(callgate.__all__) == set()


def test_every_list_of_names_is_exact() -> None:
    """A room's `__all__` names what is there, once, and nothing private."""
    for name, _, tree in house.modules(house.PACKAGE):
        if not any(isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__" for n in tree.body):
            continue
        module = import_module(name)
        assert len(set(module.__all__)) == len(module.__all__), name
        for entry in module.__all__:
            assert hasattr(module, entry), f"{name}.{entry}"
            assert not entry.startswith("_") or entry == "__version__", f"{name}.{entry}"


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has after the code."""
    script = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def roots(names: set[str]) -> set[str]:
    """Top-level packages."""
    return {name.partition(".")[0] for name in names}


def test_import_callgate_loads_the_bare_package() -> None:
    ours = {name for name in loaded("import callgate") if name.startswith("callgate")}
    assert ours == {"callgate"}


def test_a_plain_run_loads_nothing_heavy() -> None:
    code = "from callgate import Agent, Replay\nassert Agent(Replay(['hi'])).run_sync('hello').text == 'hi'"
    assert roots(loaded(code)) & HEAVY == set()


def test_reading_a_text_loads_nothing_heavy_and_no_event_loop() -> None:
    code = "from callgate import read\nassert read('<think>a</think>b', dialect='hermes').content == 'b'"
    names = loaded(code)
    assert roots(names) & (HEAVY | {"asyncio", "sqlite3", "ssl", "click"}) == set()


def test_the_version_loads_click_and_the_bare_package() -> None:
    code = (
        "import sys\nsys.argv = ['callgate', '--version']\nfrom callgate.apps.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )
    names = loaded(code)
    ours = {name for name in names if name.startswith("callgate")}
    assert ours == {"callgate", "callgate.apps", "callgate.apps.cli", "callgate.apps.output", "callgate.errors"}
    assert roots(names) & (HEAVY | {"asyncio", "sqlite3"}) == set()


def test_no_module_splits_text_where_only_python_sees_an_end_of_line() -> None:
    """`str.splitlines` breaks at U+2028, U+0085 and six others, which models and users write inside a line."""
    source = Path(callgate.__file__).parent
    assert [path.name for path in source.rglob("*.py") if ".splitlines(" in path.read_text("utf-8")] == []
