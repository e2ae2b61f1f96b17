"""Measure how often a model's calls are right, under each protocol.

Law: what is printed was measured; every rate has its interval, and `--out` lets an evaluation be stopped and go on.
    (tests/test_evals_command.py::test_it_asks_reports_and_goes_on)
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from callgate.apps import output
from callgate.apps.cli._ledgers import must_exist
from callgate.apps.wording import count
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.evals import Case, Outcome

DEFAULT = ("simple_python", "multiple", "live_multiple", "irrelevance")
FORMS = (".md", ".json", ".html")
PROTOCOLS = ("native", "routed", "constrained", "json", "marker")


@click.command()
@click.argument("source", required=False)
@click.option("-m", "--model", default="local", show_default=True, help="As for `callgate ask`.")
@click.option("-p", "--protocols", "names", metavar="A,B,…", help=f"Side by side. Default: {','.join(PROTOCOLS)}.")
@click.option("-c", "--categories", metavar="A,B,…", help=f"Of bfcl. Default: {','.join(DEFAULT)}.")
@click.option(
    "-n", "--size", type=click.IntRange(min=0), default=20, show_default=True, help="Cases of each category; 0: all."
)
@click.option("--seed", default=1, show_default=True, help="Which cases are drawn.")
@click.option(
    "--part",
    type=click.Choice(["test", "dev"]),
    default="test",
    show_default=True,
    help="Of bfcl: the third that recipes were tuned on, or the rest.",
)
@click.option("--retries", default=2, show_default=True, help="How often an unusable answer goes back with the reason.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Outcomes, a line each; found again when repeated."
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report here: .md, .json or .html. May be repeated.",
)
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="A B",
    help="Two outcome files side by side; nothing is asked.",
)
@click.option(
    "--cut", type=click.Path(path_type=Path, dir_okay=False), help="Write the cases of SOURCE here; nothing is asked."
)
def command(source: str | None, compare: tuple[Path, Path] | None, **given: Any) -> None:
    """Measure how often a model's calls are right, under each protocol.

    SOURCE is "bfcl" (the Berkeley leaderboard's data, fetched once from PyPI without its dependencies), a JSONL file of
    your own cases, or "ledger:WHERE" for cases cut from recorded runs.

    \b
    callgate eval bfcl -m ollama:qwen3:0.6b -n 100 --out qwen.jsonl --report qwen.html
    callgate eval cases.jsonl -p native,routed
    callgate eval ledger:sqlite:runs.db --cut cases.jsonl
    callgate eval --compare before.jsonl after.jsonl

    A line of cases: {"request": "…", "tools": [OpenAI-style], "calls": [{"name": …, "arguments": {…}}]}
    """  # fmt: skip
    from callgate import evals

    if compare:
        output.page(evals.compare(*(evals.load_outcomes(path) for path in compare)))
        return
    if source is None:
        raise click.UsageError('SOURCE is missing: "bfcl", a .jsonl file or ledger:WHERE')
    for path in given["reports"]:
        _form(path)
    cases = _cases(source, given)
    if not cases:
        raise ConfigError(f"{source}: no cases")
    if given["cut"]:
        given["cut"].write_text(evals.dump_jsonl(cases), "utf-8")
        output.say(f"{count(len(cases), 'case')} in {given['cut']}")
        return
    outcomes = asyncio.run(_evaluate(cases, given))
    output.page(evals.markdown(outcomes))
    for path in given["reports"]:
        _write(path, outcomes)
    if failed := [o for o in outcomes if o.error is not None]:
        raise ConfigError(f"{count(len(failed), 'case')} ended in an error, not in an answer: {failed[0].error}")


def _cases(source: str, given: dict[str, Any]) -> list[Case]:
    from callgate import evals
    from callgate.evals import bfcl

    if source == "bfcl":
        names = _list(given["categories"]) or list(DEFAULT)
        drawn = {"seed": given["seed"], "part": given["part"]}
        return [c for n in names for c in bfcl.sample(bfcl.load(n, _folder()), given["size"], **drawn)]
    if source.startswith("ledger:"):
        return asyncio.run(_from_ledger(source.removeprefix("ledger:")))
    path = Path(source)
    if not path.is_file():
        raise ConfigError(f"{source}: no such file; give bfcl, a .jsonl file of cases, or ledger:WHERE")
    return evals.load_jsonl(path)[: given["size"] or None]


async def _from_ledger(where: str) -> list[Case]:
    from callgate import evals, ledger

    store = ledger.open(where)
    try:
        must_exist(store)
    finally:
        await store.aclose()
    return await evals.from_ledger(where)


def _folder() -> Path:
    """Where the fetched data lies."""
    import os

    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "callgate" / "bfcl"


async def _evaluate(cases: list[Case], given: dict[str, Any]) -> list[Outcome]:
    from callgate import evals, providers

    provider = providers.open(given["model"])
    try:
        plan = evals.Plan(
            provider,
            _list(given["names"]) or list(PROTOCOLS),
            cases,
            path=given["out"],
            retries=given["retries"],
        )
        total = len(cases) * len(plan.protocols)
        with output.progress(total, lambda done: f"{done} of {total} asked") as show:
            return await evals.evaluate(plan, lambda _, at, __: show(at))
    finally:
        await provider.aclose()


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _form(path: Path) -> str:
    """The report's form by its file's ending. Raises ConfigError for one that we cannot write."""
    if path.suffix not in FORMS:
        ending = path.suffix or "no ending"
        raise ConfigError(f"--report {path}: {ending} is no form of report; use {', '.join(FORMS)}")
    return path.suffix


def _write(path: Path, outcomes: list[Outcome]) -> None:
    from callgate import evals

    match _form(path):
        case ".md":
            text = evals.markdown(outcomes)
        case ".html":
            text = evals.html(outcomes)
        case _:
            text = json.dumps({"rows": evals.summary(outcomes)}, ensure_ascii=False, indent=1) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
