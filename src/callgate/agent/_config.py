"""The configuration of one run, from the agent's setup and what is known when it begins.

Law: that of the room (callgate/agent/__init__.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from callgate import protocols
from callgate.run.inputs import ModelChoice, RunConfig
from callgate.schema.compiled import CompiledSchema
from callgate.types import Message, ModelInfo, Principal, ToolSpec

if TYPE_CHECKING:
    from callgate.agent._session import Refusal
    from callgate.agent._setup import Setup
    from callgate.tools import Toolbox


@dataclass(frozen=True, slots=True)
class Known:
    """What only the moment of a run's beginning knows."""

    run_id: str
    info: ModelInfo
    principal: Principal | None
    instructions: str
    refusals: Mapping[tuple[str, str], Refusal]
    """What the servers refused of earlier runs."""
    recent: Callable[[str, float], int]
    others: tuple[ModelInfo, ...] = ()


def config_of(setup: Setup, known: Known, tools: Collection[str]) -> RunConfig:
    """What the run is given. `tools`: the names of those that it may use."""
    limits, toolbox = setup.limits, setup.toolbox
    specs = tuple(spec for spec in toolbox.specs if spec.name in tools)
    wanted, own = setup.protocol_name, setup.own_dialects
    first, *others = (_choice(setup, info, specs, known.refusals) for info in (known.info, *known.others))
    return RunConfig(
        run_id=known.run_id,
        info=first.info,
        protocol=first.protocol,
        others=tuple(others),
        tools=specs,
        instructions=known.instructions,
        options=setup.options,
        dialect=first.dialect,
        own_dialects=own,
        rules=setup.rules,
        principal=known.principal,
        retries=limits.retries,
        max_result=setup.executor.max_result,
        adapt=wanted == "auto",
        context=first.context,
        summarize=limits.summarize,
        approval_expires=limits.approval_expires,
        tool_choice=setup.tool_choice,
        parallel=setup.parallel,
        first_reads=limits.max_calls_per_turn if setup.too_many == "first" else None,
        external=frozenset(tool.name for tool in toolbox if tool.function is None),
        stop_after=setup.stop_after,
        process=setup.process,
        checks=setup.checks.names,
        compile=lambda spec: toolbox[spec.name].compiled if spec.name in toolbox else _compiled(spec),
        recent=known.recent,
        resolve=os.path.realpath,
    )


def _choice(
    setup: Setup, info: ModelInfo, specs: tuple[ToolSpec, ...], refusals: Mapping[tuple[str, str], Refusal]
) -> ModelChoice:
    """How this model is asked: as its server allowed in earlier runs."""
    wanted = setup.protocol_name
    refusal = refusal_of(info, refusals) if wanted == "auto" else None
    protocol = protocols.choose(info, specs, refusal.protocol if refusal is not None else wanted, setup.own_dialects)
    context = setup.limits.max_context or _context_left(info, setup.options)
    return ModelChoice(info, protocol, setup.dialect_name or info.dialect, context)


def load(toolbox: Toolbox, config: RunConfig) -> None:
    """Loads what the first run of an agent needs."""
    for tool in toolbox:
        _ = tool.compiled
    query = next(
        protocols.turn(
            config.protocol,
            history=(Message("user", ""),),
            tools=config.tools,
            info=config.info,
            own=config.own_dialects,
        )
    )
    if isinstance(query, protocols.Query) and query.machine is not None:
        query.machine().feed(" ")


def refusal_of(info: ModelInfo, refusals: Mapping[tuple[str, str], Refusal]) -> Refusal | None:
    """The protocol that this model's server refused in an earlier run of the agent."""
    return refusals.get((info.provider, info.name))


def _context_left(info: ModelInfo, options: Mapping[str, Any]) -> int | None:
    """Tokens for the history in a known context: what an answer, the tools and the instructions leave."""
    if not info.context_length:
        return None
    answer = int(options.get("max_tokens") or min(info.context_length // 4, 4096))
    return max(info.context_length - answer - info.context_length // 8, info.context_length // 4)


def _compiled(spec: ToolSpec) -> CompiledSchema:
    return CompiledSchema(spec.parameters, closed=spec.strict)
