"""Measuring, shared by the benchmarks: CPU time, side by side in one run, medians, goals beside what was reached.

One law: two things are only ever compared if they were measured in the same run, in turns; a ratio is the median of the
ratios of single rounds, so that a busy neighbour slows both sides of it.

Use: `measured = measure({"ours": run_ours, "floor": run_floor})`, then `measured.seconds("ours")` (CPU seconds of one
call) and `measured.ratio("ours", "floor")`; a `Table` prints goal and result; `main` runs a benchmark's tables.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from time import process_time

PACKAGES = (
    "callgate",
    "aiohttp",
    "httpx-sse",
    "jiter",
    "openai",
    "ollama",
    "pydantic-ai-slim",
    "langchain-openai",
    "langgraph",
    "openai-agents",
)

ROUNDS = 7
"""Samples of each contender; the median is reported."""
LEAST = 0.02
"""CPU seconds that one sample takes at least: far above what the clock resolves."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of `measure` found: for each contender the CPU seconds of one call, round by round."""

    samples: Mapping[str, tuple[float, ...]]

    def seconds(self, name: str) -> float:
        """CPU seconds of one call: the median of the rounds."""
        return statistics.median(self.samples[name])

    def micros(self, name: str, parts: int = 1) -> float:
        """CPU microseconds of one of the `parts` (chunks, records, calls) that one call works through."""
        return self.seconds(name) / parts * 1e6

    def spread(self, name: str, to: str) -> tuple[float, float]:
        """The least and the greatest of those ratios."""
        ratios = [a / b for a, b in zip(self.samples[name], self.samples[to], strict=True)]
        return min(ratios), max(ratios)

    def ratio(self, name: str, to: str) -> float:
        """How many times the cost of `to` one call of `name` costs: the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.samples[name], self.samples[to], strict=True))


def measure(works: Mapping[str, Callable[[], object]], *, rounds: int = ROUNDS, least: float = LEAST) -> Measured:
    """Times the contenders in turns. Each is a call without arguments that does all its work afresh."""
    repeats = {name: _repeats(work, least) for name, work in works.items()}
    samples: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    gc.freeze()
    try:
        for _ in range(rounds):
            for name, work in works.items():
                samples[name].append(_sample(work, repeats[name]))
    finally:
        gc.unfreeze()
    return Measured({name: tuple(values) for name, values in samples.items()})


def _sample(work: Callable[[], object], repeats: int) -> float:
    gc.collect(0)
    start = process_time()
    for _ in range(repeats):
        work()
    return (process_time() - start) / repeats


def _repeats(work: Callable[[], object], least: float) -> int:
    work()
    return max(1, round(least / max(_sample(work, 1), 1e-7)))


def chunks_of(text: str, size: int = 4) -> list[str]:
    """The text cut every `size` characters: a token is about four."""
    return [text[i : i + size] for i in range(0, len(text), size)]


@dataclass
class Table:
    """A Markdown table of goals and what was reached."""

    title: str
    rows: list[tuple[str, ...]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def at_most(self, what: str, reached: float, goal: float, *, unit: str = "×", cost: str = "") -> None:
        """A row whose figure should not be over the goal."""
        self._row(what, reached, f"≤ {goal:g} {unit}", reached <= goal, unit, cost)

    def at_least(self, what: str, reached: float, goal: float, *, unit: str = "×", cost: str = "") -> None:
        """A row whose figure should not be under the goal."""
        self._row(what, reached, f"≥ {goal:g} {unit}", reached >= goal, unit, cost)

    def fact(self, what: str, reached: float, *, unit: str = "×", cost: str = "") -> None:
        """A row without a goal."""
        self.rows.append((what, cost, "", f"{reached:.3g} {unit}", ""))

    def note(self, text: str) -> None:
        """A line under the table."""
        self.notes.append(text)

    def _row(self, what: str, reached: float, goal: str, good: bool, unit: str, cost: str) -> None:
        self.rows.append((what, cost, goal, f"{reached:.3g} {unit}", "yes" if good else "**no**"))
        if not good:
            self.missed.append(f"{self.title}: {what}: goal {goal}, reached {reached:.3g}")

    def __str__(self) -> str:
        head = ["| what | cost | goal | reached | met |", "|---|---|---|---|---|"]
        body = ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([f"### {self.title}", "", *head, *body, "", *self.notes]).rstrip() + "\n"


def machine() -> str:
    """One line about where this ran."""
    model = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores, {model}"


def versions() -> str:
    """callgate and what it is compared with, as far as it is installed."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def main(tables: Mapping[str, Callable[[], Table]], argv: Iterable[str] | None = None) -> None:
    """Runs the named tables (all without arguments) and prints them; `--strict`: status 1 if a goal was missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(tables)}; default all")
    parser.add_argument("--strict", action="store_true", help="status 1 if a goal is missed")
    args = parser.parse_args(None if argv is None else list(argv))
    if unknown := [name for name in args.tables if name not in tables]:
        parser.error(f"no such table: {', '.join(unknown)} (there are {', '.join(tables)})")
    print(f"CPU time, medians of {ROUNDS} rounds; {machine()}; busy processes: {os.getloadavg()[0]:.1f}", flush=True)
    print(f"Versions: {versions()}\n", flush=True)
    missed: list[str] = []
    for name in args.tables or tables:
        table = tables[name]()
        print(table, flush=True)
        missed += table.missed
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    if missed and args.strict:
        sys.exit(1)
