"""What the structured-output engines accept, one row each.

Law: that of the room (callgate/protocols/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callgate.types import ModelInfo


@dataclass(slots=True, frozen=True)
class Engine:
    """What one structured-output engine accepts."""

    name: str
    wrapped: bool = False
    """The root must be one object: the branches stand under `ROOT_KEY`."""
    all_required: bool = False
    """Every property must be required; optional ones admit null."""
    lengths: bool = True
    """`minLength` and `maxLength` are understood."""
    patterns: bool = False
    digits: bool = False
    """Numbers have no end of their own: they need bounds and a smallest step."""
    grammar: bool = False
    """It takes a grammar in place of the schema, so that everything that a grammar can say is held (`_grammar`)."""
    copying: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a request that turn off penalties on repetition: arguments repeat the request on purpose."""


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine("openai", wrapped=True, all_required=True, lengths=False, patterns=True),
        Engine("ollama"),
        Engine("llamacpp", digits=True, copying={"dry_multiplier": 0.0}),
        Engine("local", digits=True, patterns=True, grammar=True, copying={"dry_multiplier": 0.0}),
        Engine("plain"),
        Engine("vllm", patterns=True),
    )
}


def engine_of(info: ModelInfo) -> Engine:
    """The engine behind a model; unknown ones get the plainest form."""
    name = str(info.extra.get("engine") or info.provider)
    return ENGINES.get(name, ENGINES["plain"])
