"""What a running tool may know of its call, and how it asks for it.

Law: a value that says who asks comes from the run and never from the model, however the parameter is written.
(tests/test_tools_identity.py::test_no_signature_lets_the_model_choose_who_it_is)
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import operator
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from callgate.errors import ToolError
from callgate.types import Principal

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultVar  # PEP 696: a plain `ToolContext` is a `ToolContext[Any]`

    Deps_co = DefaultVar("Deps_co", covariant=True, default=Any)
else:
    Deps_co = TypeVar("Deps_co", covariant=True)


class _Injected:
    """Marks an annotation: this parameter comes from the run."""

    def __repr__(self) -> str:
        return "Inject"


INJECTED: Final = _Injected()

Inject: TypeAlias = Annotated[T, INJECTED]
"""`run_id: Inject[str]`, `shop: Inject[Shop]`: filled in by the run, unknown to the model.

By type, with or without this mark: `ToolContext`, `Principal`, `logging.Logger`. By name: the fields of `ToolContext`.
Any other type is that of the run's dependencies (`Agent(deps_type=Shop)`, `run(deps=shop)`).
"""


_NONE: Final = cast("Any", None)


def _never() -> bool:
    return False


def _ignore(value: object) -> None:
    """Progress that nobody listens to."""


async def _nobody(question: str, details: Mapping[str, Any]) -> bool | None:
    """Nobody is there to be asked."""


@dataclass(slots=True, frozen=True)
class ToolContext(Generic[Deps_co]):
    """The call that is being carried out. A parameter of this type gets it, with or without `Inject`; `deps` is of the
    type in brackets: `ToolContext[Shop]`. Instructions that are a function get one without a call."""

    principal: Principal | None = None
    """On whose behalf; None: nobody was named."""
    run_id: str = ""
    call_id: str = ""
    idempotency_key: str = ""
    """The same for the same call of the same run, also after a crash: hand it to the service that you write to."""
    cancelled: Callable[[], bool] = _never
    """Whether the run was cancelled; long work asks now and then."""
    report: Callable[[Any], None] = _ignore
    """Shows progress: JSON or text."""
    extend: Callable[[float], None] = _ignore
    """Begins the call's timeout anew, at most until so many seconds after its start. For async tools whose service
    shows that it works; it has no effect in threads and processes."""
    ask: Callable[[str, Mapping[str, Any]], Awaitable[bool | None]] = _nobody
    """Asks the run's person a question of yes or no, with details as JSON: whether the answer is yes, or None if nobody
    is there. For async tools; the question goes to `approve`, as one about this call."""
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("callgate.tools"))
    deps: Deps_co = _NONE
    """The application's own things, as `run(deps=…)` gave them."""


IDENTITIES: Final[tuple[type, ...]] = (Principal, ToolContext, logging.Logger)
"""Types that only the run may fill in: a model that could write one would choose on whose behalf it acts (A5)."""
_FIELDS: Final[Mapping[type, str]] = {Principal: "principal", logging.Logger: "logger"}
_WORDS: Final = re.compile(rf"\b(?:Inject|{'|'.join(kind.__name__ for kind in IDENTITIES)})\b")
_BY_NAME: Final = frozenset({"principal", "run_id", "call_id", "idempotency_key", "cancelled", "report", "logger"})


def is_injected(annotation: object) -> bool:
    """Whether the run fills in a parameter of this annotation.

    Raises ToolError where it would have to and cannot: an identity inside another type, two in one union, a subclass
    of `ToolContext`.
    """
    if isinstance(annotation, str):  # a name that cannot be found where the tool is made
        if _WORDS.search(annotation):
            raise ToolError(f"its annotation {annotation!r} cannot be read; import what it names")
        return False
    found = _identity(annotation)
    if found is not None and issubclass(found, ToolContext) and found is not ToolContext:
        raise ToolError(f"the run has no {found.__name__}; annotate it as ToolContext")
    if found is not None or _is_marked(annotation):
        return True
    inner = next((t for t in _parts(annotation, set()) if _is_identity(t)), None)
    if inner is not None:
        label = getattr(_class_of(inner), "__name__", str(inner))
        raise ToolError(
            f"{label} inside {inspect.formatannotation(_plain(annotation))} would let the model choose it; "
            f"take it as a parameter of its own: `who: {label}`"
        )
    return False


def injected(name: str, annotation: Any, context: ToolContext) -> Any:
    """The value for an injected parameter. Raises LookupError if the run has none of this type."""
    wanted = _identity(annotation)
    if wanted is ToolContext:
        return context
    if wanted is not None:
        value = getattr(context, next(field for base, field in _FIELDS.items() if issubclass(wanted, base)))
        if isinstance(value, wanted) or (value is None and type(None) in _choices(annotation)):
            return value
        raise LookupError(f"parameter {name!r}: the run has no {wanted.__name__}")
    if name in _BY_NAME:
        return getattr(context, name)
    if not any(_is_one(context.deps, kind) for kind in _choices(annotation)):
        given = "was started without deps=" if context.deps is None else f"has {type(context.deps).__name__} as deps"
        raise LookupError(f"parameter {name!r}: the run {given}")
    return context.deps


def _is_one(value: object, kind: object) -> bool:
    """Whether the value is of the type, as far as this can be known when the program runs."""
    kind = _class_of(_plain(kind))
    if not inspect.isclass(kind):
        return value is not None or kind is Any
    try:
        return isinstance(value, kind)
    except TypeError:  # a Protocol that only a type checker can compare
        return value is not None


def uninjectable(name: str, annotation: object, deps_type: object) -> str | None:
    """Why a run whose dependencies are of this type (None: it has none) cannot fill in the parameter, or None."""
    wanted = _identity(annotation)
    if wanted is not None and wanted is not ToolContext:
        return None
    if wanted is None and name in _BY_NAME:
        return None
    needed = [arg for choice in _choices(annotation) for arg in get_args(choice)] if wanted else _choices(annotation)
    needed = [_plain(kind) for kind in needed if kind is not type(None)]
    if not needed or any(_serves(deps_type, kind) for kind in needed):
        return None
    names = " | ".join(inspect.formatannotation(kind) for kind in needed)
    if deps_type is None:
        return f"it wants dependencies of type {names}, and there are none: Agent(…, deps_type={names})"
    return f"it wants dependencies of type {names}, and they are {inspect.formatannotation(deps_type)} (deps_type)"


def _serves(given: object, wanted: object) -> bool:
    """Whether dependencies of the one type may stand where the other is wanted; what cannot be known may."""
    if wanted in (Any, object):
        return True
    if given is None:
        return False
    given, wanted = _class_of(given), _class_of(wanted)
    if not inspect.isclass(given) or not inspect.isclass(wanted):
        return True
    try:
        return issubclass(given, wanted)
    except TypeError:  # a Protocol that only a type checker can compare
        return True


def _is_marked(annotation: Any) -> bool:
    while get_origin(annotation) is Annotated:
        if any(mark is INJECTED for mark in annotation.__metadata__):
            return True
        annotation = get_args(annotation)[0]
    return False


def _plain(annotation: Any) -> object:
    """The type behind `Annotated`, `NewType`, a `type` alias and a bound type variable."""
    for _ in range(MAX_NESTING):
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, TypeVar):
            annotation = annotation.__bound__ or functools.reduce(operator.or_, annotation.__constraints__ or (Any,))
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation
    raise ToolError(f"its annotation nests more than {MAX_NESTING} names")


MAX_NESTING: Final = 100
"""Names that stand for one another, at most: an alias of itself would never end."""


def _class_of(kind: object) -> object:
    """`ToolContext` for `ToolContext[Shop]`."""
    return get_origin(kind) or kind


def _is_identity(kind: object) -> bool:
    kind = _class_of(kind)
    return inspect.isclass(kind) and issubclass(kind, IDENTITIES)


def _choices(annotation: Any) -> list[Any]:
    """The members of a union, also of one behind a name; otherwise the type alone."""
    kind = _plain(annotation)
    if get_origin(kind) not in (Union, UnionType):
        return [kind]
    return [choice for part in get_args(kind) for choice in _choices(part)]


def _identity(annotation: object) -> type | None:
    """The identity that the parameter itself is, alone or in a union; None: it is none."""
    kinds = (_class_of(choice) for choice in _choices(annotation) if _is_identity(choice))
    found: list[type] = list(dict.fromkeys(kind for kind in kinds if inspect.isclass(kind)))
    if len(found) > 1:
        raise ToolError(f"{' | '.join(t.__name__ for t in found)}: only one of them can be filled in")
    return found[0] if found else None


def _parts(annotation: object, seen: set[int]) -> Iterator[Any]:
    """Every type inside the annotation: arguments of generics, fields of dataclasses, models and typed dicts."""
    kind = _plain(annotation)
    if id(kind) in seen or isinstance(kind, (str, bytes, int)):
        return
    seen.add(id(kind))
    yield kind
    for part in (*get_args(kind), *_fields_of(kind)):
        yield from _parts(part, seen)


def _fields_of(kind: object) -> list[object]:
    """The types of the fields that a value of this class is made from."""
    kind = get_origin(kind) or kind
    if not inspect.isclass(kind) or kind.__module__ == "builtins":
        return []
    if models := getattr(kind, "model_fields", None):  # pydantic's: what it validates, private attributes left out
        return [info.annotation for info in models.values()]
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # names that cannot be found: pydantic refuses such a class with a better reason
        return []
    if dataclasses.is_dataclass(kind):
        return [hints[f.name] for f in dataclasses.fields(kind) if f.init and f.name in hints]
    return list(hints.values())
