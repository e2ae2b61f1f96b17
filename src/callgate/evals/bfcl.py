"""The Berkeley Function-Calling Leaderboard's data, from the package `bfcl-eval` on PyPI.

Law: only its data files are used; nothing of the package is imported or run, and none of its dependencies is fetched.
(tests/test_evals.py::test_the_parts_of_a_data_set_never_meet_and_a_seed_draws_the_same)
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from callgate.errors import ConfigError
from callgate.evals._cases import Case
from callgate.types import Message, ToolSpec

PACKAGE = "bfcl-eval==2026.3.23"
DATA = "bfcl_eval/data/"
CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
)
"""Single-turn categories of Python functions: those whose answers can be judged without running anything."""
NO_CALL = frozenset({"irrelevance", "live_irrelevance"})
DEV_SHARE = 3
"""One case in so many is for tuning; what is reported comes from the others."""
DOWNLOAD_SECONDS = 300
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def load(category: str, folder: Path) -> list[Case]:
    """The cases of one category, in the order of the data set; fetches the data once into `folder`."""
    if category not in CATEGORIES:
        raise ConfigError(f"bfcl category {category!r}: unknown; there are {', '.join(CATEGORIES)}")
    fetch(folder)
    gold: Mapping[str, Any] = {}
    if category not in NO_CALL:
        answers = _read(folder / "possible_answer" / _file(category))
        gold = {row["id"]: row["ground_truth"] for row in answers}
    return [_case(row, gold.get(row["id"], ()), category) for row in _read(folder / _file(category))]


def sample(cases: Sequence[Case], size: int, *, seed: int, part: str = "test") -> list[Case]:
    """So many cases of one part of the set: "dev" is what recipes may be tuned on, "test" what is reported."""
    order = list(cases)
    random.Random(0).shuffle(order)  # noqa: S311 - the two parts never change, whatever the seed
    cut = len(order) // DEV_SHARE
    chosen = order[:cut] if part == "dev" else order[cut:]
    random.Random(seed).shuffle(chosen)  # noqa: S311 - a sample, no secret
    return chosen[:size] if size else chosen


def fetch(folder: Path) -> None:
    """Download the package without its dependencies, with the user's own pip or uv, and keep only its data."""
    if (folder / _file("multiple")).exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        _download(Path(scratch))
        wheel = next(Path(scratch).glob("*.whl"), None)
        if wheel is None:
            raise ConfigError(f"bfcl: {PACKAGE} came without a wheel")
        made = Path(scratch) / "data"
        with zipfile.ZipFile(wheel) as archive:
            for category in CATEGORIES:
                for name in (_file(category), f"possible_answer/{_file(category)}"):
                    if DATA + name in archive.namelist():
                        (made / name).parent.mkdir(parents=True, exist_ok=True)
                        (made / name).write_bytes(archive.read(DATA + name))
        made.rename(folder)


def _download(folder: Path) -> None:
    ways = (
        [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), PACKAGE],
        ["uv", "tool", "run", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), PACKAGE],
    )
    why = ""
    for command in ways:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
            continue
        if done.returncode == 0:
            return
        why = done.stderr.strip().split("\n")[-1] if done.stderr.strip() else f"exit {done.returncode}"
    raise ConfigError(f"bfcl: could not fetch {PACKAGE} ({why}); fetch it by hand: pip download --no-deps {PACKAGE}")


def _file(category: str) -> str:
    return f"BFCL_v4_{category}.json"


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]


def _case(row: Mapping[str, Any], gold: Sequence[Any], category: str) -> Case:
    messages = row["question"][0]
    return Case(
        id=row["id"],
        messages=tuple(Message(m["role"], m["content"]) for m in messages),
        tools=tuple(_spec(f) for f in row["function"]),
        gold=tuple(gold),
        functions=tuple(row["function"]),
        group=category,
    )


def _spec(function: Mapping[str, Any]) -> ToolSpec:
    parameters = json_schema(function["parameters"])
    return ToolSpec(function["name"], function.get("description", ""), parameters, effect="read")


def json_schema(schema: object) -> Any:
    """The data set's type names as JSON Schema."""
    if isinstance(schema, list):
        return [json_schema(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: v if k in ("enum", "default") else json_schema(v) for k, v in schema.items()}
    if isinstance(out.get("type"), str):
        out["type"] = _JSON_TYPES.get(out["type"], out["type"])
        if out["type"] == "any":
            del out["type"]
    return out
