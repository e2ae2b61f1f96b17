"""The mutator makes small faults that compile, the same for the same seed, and an obvious one is killed."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import house

sys.path.insert(0, str(house.ROOT / "scripts"))  # as when it is run: the script imports its neighbour
MUTANTS: dict[str, Any] = runpy.run_path(str(house.ROOT / "scripts" / "mutants.py"))


def test_a_seed_gives_the_same_mutants() -> None:
    one, other = (MUTANTS["sample"](30, 7, ["policy", "masking"]) for _ in range(2))
    assert [m.id for m in one] == [m.id for m in other]
    assert 25 <= len(one) <= 30  # a fault that changes nothing is left out
    assert {m.room for m in one} == {"policy", "masking"}
    for mutant in one:
        ast.parse(mutant.source)
        assert mutant.source != ast.unparse(ast.parse(mutant.path.read_text("utf-8")))


def test_every_kind_of_fault_is_made(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        '"""Doc."""\n'
        "def f(a: int = 1, b: bool = True) -> int:\n"
        "    if a < 2 and not b:\n"
        "        raise ValueError(f'{a + 1}')\n"
        "    print(a)\n"
        "    while a:\n"
        "        a += 1\n"
        "        break\n"
        "    return a if b else a + 2\n"
        "class C:\n"
        "    def g(self) -> None:\n"
        "        self.x = 1\n",
        "utf-8",
    )
    kinds = {mutant.kind for mutant in MUTANTS["mutants_of"](path, "run")}
    assert kinds == {
        "comparison", "and-or", "condition dropped", "not dropped", "bool", "number", "plus", "branches swapped",
        "condition negated", "returns None", "statement dropped", "assignment dropped", "jump dropped",
    }  # fmt: skip
    assert all("Doc." in mutant.source for mutant in MUTANTS["mutants_of"](path, "run"))


def test_every_survivor_that_was_looked_at_has_a_class_and_a_reason() -> None:
    for name, about in MUTANTS["known"]().items():
        assert about["class"] in {"equivalent", "guarded", "hole"}, name
        assert len(about["reason"]) > 20, name


def test_a_line_is_known_by_the_tests_that_run_it(tmp_path: Path) -> None:
    """A statement's own tests, quickest first; else those of its function; else those of the file."""
    source = "X = 1\ndef f(a):\n    if a:\n        return (\n            a + 1\n        )\n    return 0\n"
    source += "def g():\n    return 2\n"
    path = tmp_path / "lines.json"
    path.write_text(
        '{"tests": {"slow": 2.0, "quick": 0.1, "other": 0.5},'
        ' "lines": {"m.py": {"3": [0, 1, 2], "4": [0], "7": [1], "9": [2]}}}',
        "utf-8",
    )
    lines = MUTANTS["Map"].read(path)
    assert lines.tests_of("m.py", source, 5) == ["slow"]
    assert lines.tests_of("m.py", source, 7) == ["quick"]
    assert lines.tests_of("m.py", source, 3) == ["quick", "other", "slow"]
    assert lines.tests_of("m.py", source, 1) == ["quick", "other", "slow"]
    assert lines.tests_of("other.py", source, 1) == []


def test_the_plugin_writes_which_test_runs_which_line(tmp_path: Path) -> None:
    test = tmp_path / "test_one.py"
    test.write_text(
        "import callgate.keys as keys\n"
        "def test_key():\n    assert keys.idempotency_key('r', 'c')\n"
        "def test_nothing():\n    pass\n"
        "def test_red():\n    assert not keys.idempotency_key('r', 'c')\n",
        "utf-8",
    )
    written = tmp_path / "lines.json"
    env = {**os.environ, "CALLGATE_LINES": str(written), "PYTHONPATH": str(house.ROOT / "scripts")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "lines", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run([*command, "--rootdir", str(tmp_path)], env=env, capture_output=True, check=False)
    assert done.returncode == 1
    lines = MUTANTS["Map"].read(written)
    assert sorted(name.split("::")[1] for name in lines.seconds) == ["test_key", "test_nothing"]
    source = (house.ROOT / "src" / "callgate" / "keys.py").read_text("utf-8")
    at = next(n for n, line in enumerate(source.splitlines(), 1) if "[run_id, call_id]" in line)
    assert [name.split("::")[1] for name in lines.tests_of("keys.py", source, at)] == ["test_key"]
