"""The figures of scripts/figures.py, counted on packages small enough to count by hand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import house

FIGURES: dict[str, Any] = runpy.run_path(str(house.ROOT / "scripts" / "figures.py"))


def package(folder: Path, **files: str) -> Path:
    """A package `p` with these modules."""
    place = folder / "p"
    for name, text in {"__init__": "", **files}.items():
        path = place / (name.replace("__dot__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return place


def test_each_figure_is_counted_as_stated(tmp_path: Path) -> None:
    place = package(
        tmp_path,
        a='"""Doc."""\nfrom typing import Any\nimport p.b\n\n# a reason\nx: Any = 1  # noqa: S101\n',
        b="from p.c import f\n\n\ndef g(y: int) -> int:\n    return 1 if y and y > 2 else 0\n",
        c="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import x\n\n\n"
        "def f() -> None:\n    pass\n",
    )
    found = FIGURES["figures"](place)
    assert found["files"] == 4
    assert found["longest import chain"] == 3  # a > b > c
    assert (found["circles"], found["hidden circles"]) == (0, 1)
    assert (found["mean complexity"], found["worst complexity"]) == (2.0, 3)
    assert found["comments a 100 lines"] == round(100 / 18, 1)
    assert found["lines of code"] == 3 + 3 + 5
    assert found["Any a 1,000 lines"] == round(1000 / 18, 1)


PACKAGE = house.ROOT / "src" / "callgate"
CHAIN = 12
"""Modules in a row, each importing the next. It may only become less."""
COMPLEXITY = 15
"""Branches of a function."""
WORSE = {"callgate.dialects._reader feed": 17}
"""The reader's `feed` runs once a token, in one function: a call more costs a fifth (tests/test_cost.py)."""


def test_no_chain_of_imports_grows_and_none_goes_in_a_circle_or_into_another_room() -> None:
    """The cure of a chain: a type is imported under TYPE_CHECKING, or what the lower module needs stands where it
    belongs."""
    modules = FIGURES["modules_of"](PACKAGE)
    chain = FIGURES["longest_chain"](FIGURES["edges"](modules, hidden=False))
    assert len(chain) <= CHAIN, " > ".join(chain)
    assert FIGURES["circles"](FIGURES["edges"](modules, hidden=True)) == []
    assert FIGURES["private_imports"](modules) == []


def test_no_function_is_more_complex_than_the_worst_was() -> None:
    found = {
        f"{module.name}:{block.lineno} {block.name}": block.complexity
        for module in FIGURES["modules_of"](PACKAGE)
        for block in FIGURES["functions_of"](module)
    }
    most = {name: WORSE.get(re.sub(r":\d+", "", name), COMPLEXITY) for name in found}
    assert {name: size for name, size in found.items() if size > most[name]} == {}


def test_a_private_import_of_another_package_is_found(tmp_path: Path) -> None:
    place = package(
        tmp_path,
        one__dot____init__="",
        one__dot___inner="x = 1\n",
        two__dot____init__="from p.one._inner import x\n",
    )
    modules = FIGURES["modules_of"](place)
    assert FIGURES["private_imports"](modules) == ["p.two: p.one._inner.x"]


def test_a_circle_inside_functions_is_a_hidden_one(tmp_path: Path) -> None:
    place = package(tmp_path, a="def f():\n    import p.b\n", b="import p.a\n")
    modules = FIGURES["modules_of"](place)
    assert FIGURES["circles"](FIGURES["edges"](modules, hidden=False)) == []
    assert FIGURES["circles"](FIGURES["edges"](modules, hidden=True)) == [["p.a", "p.b"]]
