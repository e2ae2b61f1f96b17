"""What a running tool may know of its call, and how it asks for it.

One law: nothing of this is in a schema, so no model can supply it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin

from callgate.types import EMPTY, Principal

T = TypeVar("T")


class _Injected:
    """Marks an annotation: this parameter comes from the run."""

    def __repr__(self) -> str:
        return "Inject"


INJECTED: Final = _Injected()

Inject: TypeAlias = Annotated[T, INJECTED]
"""`principal: Inject[Principal]`, `run_id: Inject[str]`: filled in by the run, unknown to the model.

By type: `ToolContext`, `Principal`, `logging.Logger`. By name: every field of `ToolContext`. Else from its `extra`.
"""


def _never() -> bool:
    return False


def _unheard(value: Any) -> None:
    """Progress that nobody listens to."""


@dataclass(slots=True, frozen=True)
class ToolContext:
    """The call that is being carried out. A parameter of this type gets it, with or without `Inject`."""

    principal: Principal | None = None
    """On whose behalf; None: nobody was named."""
    run_id: str = ""
    call_id: str = ""
    idempotency_key: str = ""
    """The same for the same call of the same run, also after a crash: hand it to the service that you write to."""
    cancelled: Callable[[], bool] = _never
    """Whether the run was cancelled; long work asks now and then."""
    report: Callable[[Any], None] = _unheard
    """Shows progress: JSON or text."""
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("callgate.tools"))
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """The application's own things (a database, a client), by parameter name."""


_BY_TYPE: Final[dict[Any, str]] = {Principal: "principal", logging.Logger: "logger"}
_BY_NAME: Final = frozenset({"principal", "run_id", "call_id", "idempotency_key", "cancelled", "report", "logger"})


def is_injected(annotation: Any) -> bool:
    """Whether a parameter of this annotation is filled in by the run."""
    if get_origin(annotation) is Annotated:
        return any(mark is INJECTED for mark in annotation.__metadata__) or is_injected(get_args(annotation)[0])
    return annotation is ToolContext or _without_none(annotation) is ToolContext


def injected(name: str, annotation: Any, context: ToolContext) -> Any:
    """The value for an injected parameter. Raises LookupError if the run has none."""
    wanted = _without_none(get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation)
    if wanted is ToolContext:
        return context
    if name in context.extra:
        return context.extra[name]
    field_name = _BY_TYPE.get(wanted, name if name in _BY_NAME else None)
    if field_name is None:
        raise LookupError(f"the run has nothing to inject for parameter {name!r} (ToolContext.extra)")
    return getattr(context, field_name)


def _without_none(annotation: Any) -> Any:
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return parts[0] if len(parts) == 1 and len(get_args(annotation)) == 2 else annotation
