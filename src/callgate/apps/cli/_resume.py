"""What must be so before a run is resumed from the command line.

Law: a run is not resumed with another model or without the tools of its waiting calls by accident; an ended one never.
    (tests/test_cli.py::test_a_run_is_not_resumed_with_another_model_or_other_tools_by_accident)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from callgate.apps.cli import _waiting
from callgate.apps.cli._ledgers import find_run
from callgate.apps.output import one_line, shell
from callgate.errors import ConfigError, LedgerError
from callgate.policy import Answer

if TYPE_CHECKING:
    from callgate.agent import Agent
    from callgate.apps.cli._options import Given
    from callgate.ledger import Ledger
    from callgate.types import Entry


@dataclass(frozen=True)
class Known:
    """What the ledger knows of a run that is to be resumed."""

    run_id: str
    entries: tuple[Entry, ...]

    @classmethod
    async def of(cls, ledger: Ledger, start: str) -> Known:
        """The run that is called or begins so. Raises LedgerError if there is none, or it has ended."""
        run_id = await find_run(ledger, start)
        info = await ledger.run(run_id)
        if info is not None and info.reason not in {None, "waiting"}:
            raise LedgerError(
                f"run {run_id}: the run has ended ({info.reason}); see {shell('callgate', 'runs', 'show', run_id)}"
            )
        return cls(run_id, tuple(await ledger.read(run_id)))

    def answers(self, decided: Mapping[str, bool]) -> dict[str, Answer]:
        """Call id -> decision, as recorded."""
        found = _waiting.answers(self.entries, decided)
        return {call_id: Answer(allow=allow, by="--yes" if allow else "--no") for call_id, allow in found.items()}

    def check_default(self, model: str) -> None:
        """Raises ConfigError if `model`, which nobody named, is the embedded one and the run's is not: nothing is to be
        loaded or fetched for a mistake."""
        provider = self.entries[0].data.get("provider", "") if self.entries else ""
        if model == "local" and provider not in {"", "local", "llamacpp"}:
            raise ConfigError(
                f"run {self.run_id}: it was begun with the model {one_line(self.model, 80)} "
                f"of {one_line(provider, 80)}; give the same -m as before"
            )

    @property
    def model(self) -> str:
        """The model that it was begun with."""
        return str(self.entries[0].data.get("model", "")) if self.entries else ""

    @property
    def tools(self) -> set[str]:
        """The tools whose calls wait for an answer."""
        waiting = set(_waiting.still(self.entries).values())
        return {e.data["tool"] for e in self.entries if e.kind == "ask" and e.data["call_id"] in waiting}


async def check(known: Known, agent: Agent, given: Given) -> None:
    """Raises ConfigError if the model that was not named is another one, or a waiting call has lost its tool."""
    missing = sorted(known.tools - set(agent.toolbox.names))
    if missing:
        names = ", ".join(one_line(tool, 80) for tool in missing)
        raise ConfigError(f"run {known.run_id}: its waiting call needs the tool {names}; give the same -t as before")
    if given.model is not None or not known.model:
        return
    try:
        now = (await agent.provider.info()).name
    except Exception:  # the request that follows will say what is wrong with the provider
        return
    if now != known.model:
        raise ConfigError(
            f"run {known.run_id}: it was begun with the model {one_line(known.model, 80)}, and this is "
            f"{one_line(now, 80)}; give the same -m as before, or this one by its name"
        )
