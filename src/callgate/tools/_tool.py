"""A tool: a function, what a model may know of it, and how arguments become its parameters.

What is declared here is all that gate, executor and ledger go by.

Law: a tool that declares no effect is a write.
(tests/test_tools.py::test_a_tool_that_says_nothing_is_a_write)
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from callgate.errors import ConfigError, ToolError
from callgate.schema.compiled import CompiledSchema
from callgate.schema.signatures import Description, annotations_of, describe, name_of, plain_function
from callgate.tools._context import ToolContext, injected, is_injected, uninjectable
from callgate.types import EMPTY, Effect, Schema, ToolSpec

if TYPE_CHECKING:
    # PEP 696: a plain `Tool` is a `Tool[..., Any]`. Python 3.11 knows no defaults, and needs none when it runs.
    from typing_extensions import ParamSpec as DefaultParams
    from typing_extensions import TypeVar as DefaultVar

    P = DefaultParams("P", default=...)
    R_co = DefaultVar("R_co", covariant=True, default=Any)
else:
    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)
Q = ParamSpec("Q")
S = TypeVar("S")

Kind: TypeAlias = Literal["sync", "async", "generator", "async_generator"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
_RATE = re.compile(r"[1-9]\d*/(?:s|min|h)")


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R_co]):
    """A function that a model may ask for. Calling it calls the function, with its parameters and its result."""

    spec: ToolSpec
    function: Callable[P, R_co] | None
    """None: known to readers, not runnable (a plain JSON description)."""
    kind: Kind = "sync"
    lookup: Callable[..., Any] | None = None
    """Finds out what became of a started write: `lookup(key, arguments)`, or a function with the tool's own parameters
    (and a `ToolContext`, if it wants the key). What it returns is the write's result; None: nobody knows; `NoEffect`:
    it did not happen, and never will."""
    description: Description | None = None
    """How arguments become Python values; None: they are passed as they are."""
    carried_out_by: object = None
    """An agent that carries the calls out, in place of a function (`Agent.as_tool`)."""
    declared: frozenset[str] = frozenset()
    """Which fields of the spec were given, not defaulted."""
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The name that models use."""
        return self.spec.name

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop."""
        return self.kind in ("async", "async_generator")

    @property
    def compiled(self) -> CompiledSchema:
        """The schema that arguments are checked against: as declared, and closed (A5)."""
        found: CompiledSchema | None = self._made.get("compiled")
        if found is None:
            check = self.description.check if self.description and self.description.demanding else None
            found = self._made["compiled"] = CompiledSchema(self.spec.parameters, closed=self.spec.strict, check=check)
        return found

    def prepare(self, arguments: Mapping[str, object], context: ToolContext | None = None) -> Callable[[], Any]:
        """The call with these JSON arguments, ready to be made. Raises ValueError for what the types refuse."""
        if self.function is None:
            raise ToolError(f"tool {self.name} has no function: it is only a description")
        return _bound(self.function, self.description, arguments, context or ToolContext())

    def prepare_lookup(self, arguments: Mapping[str, object], context: ToolContext | None = None) -> Callable[[], Any]:
        """The same for its lookup: the arguments that it takes, by name."""
        if self.lookup is None:
            raise ToolError(f"tool {self.name} has no lookup")
        made = self._described_lookup(self.lookup)
        known = {key: value for key, value in arguments.items() if key in made.adapters}
        return _bound(self.lookup, made, known, context or ToolContext())

    def _described_lookup(self, lookup: Callable[..., Any]) -> Description:
        found: Description | None = self._made.get("lookup")
        if found is None:
            found = self._made["lookup"] = describe(lookup, injected=is_injected)
        return found

    def check_injection(self, deps_type: object) -> None:
        """Raises ToolError if a run with dependencies of this type (None: without) could not call it."""
        described = [self.description] if self.description is not None else []
        if self.lookup is not None:
            described.append(self._described_lookup(self.lookup))
        for made in described:
            for name, annotation in made.injected.items():
                if name in made.optional:
                    continue
                # Only JSON travels to a process of its own.
                if (why := uninjectable(name, annotation, None if self.spec.process else deps_type)) is not None:
                    why += "; a process=True tool gets none" if self.spec.process else ""
                    raise ToolError(f"tool {self.name}: parameter {name!r}: {why}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Calls the function itself, unchecked: it is yours."""
        if self.function is None:
            raise ToolError(f"tool {self.name} has no function: it is only a description")
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self: Tool[Concatenate[Any, Q], S], instance: object, owner: type | None = None) -> Tool[Q, S]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A tool made of a method, bound to its object."""
        if instance is None or self.function is None or self.description is None:
            return self
        bound: Any = functools.partial(cast("Callable[..., Any]", self.function), instance)
        return replace(self, function=bound, _made={})

    def with_spec(self, **changes: Any) -> Self:
        """The same tool, declared differently."""
        spec = replace(self.spec, **changes)
        return replace(self, spec=spec, declared=self.declared | changes.keys(), _made={})

    @classmethod
    def from_function(
        cls,
        function: Callable[Q, S],
        *,
        name: str | None = None,
        description: str | None = None,
        lookup: Callable[..., object] | None = None,
        **declared: Any,
    ) -> Tool[Q, S]:
        """A tool from a signature; `declared` are fields of `ToolSpec` (effect, permission, timeout …).

        Raises ToolError for what cannot be described.
        """
        if isinstance(function, Tool):
            return cast("Tool[Q, S]", function)
        if not callable(function):
            raise ToolError(f"{function!r} is no function")
        label = name or name_of(function)
        made = describe(function, injected=is_injected, name=label)
        text = made.summary if description is None else description
        spec = _spec(label, text, made.schema, {**declared, "has_lookup": lookup is not None})
        return _checked(Tool(spec, function, _kind(function), lookup, made, declared=frozenset(declared)))

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str = "",
        schema: Schema | None = None,
        function: Callable[..., object] | None = None,
        *,
        lookup: Callable[..., object] | None = None,
        **declared: Any,
    ) -> Tool[..., Any]:
        """A tool from raw JSON Schema; the function gets the arguments as keywords, as they are."""
        parameters = dict(schema or {})
        parameters.setdefault("type", "object")
        if parameters["type"] == "object":
            parameters.setdefault("properties", {})
        spec = _spec(name, description, parameters, {**declared, "has_lookup": lookup is not None})
        kind: Kind = "sync" if function is None else _kind(function)
        return _checked(
            Tool(
                spec, function, kind, lookup, _run_parameters(name, function, parameters), declared=frozenset(declared)
            )
        )


def _checked(tool: Tool[Q, S]) -> Tool[Q, S]:
    """The tool, if its schema is one and takes an object."""
    try:
        types = tool.compiled.types
    except ToolError:
        raise
    except ConfigError as error:
        raise ToolError(f"tool {tool.name}: {error}") from error
    if "object" not in types:
        raise ToolError(f"tool {tool.name}: its schema admits no object, so no arguments")
    return tool


def _spec(name: str, description: str, schema: Schema, declared: Mapping[str, Any]) -> ToolSpec:
    if not _NAME.fullmatch(name):
        raise ToolError(f"tool name {name!r}: 1 to 128 letters, digits and _ . : / - (it may be given as name=)")
    # A tool that says nothing is a write: the mistake then costs a question, never an effect.
    effect = declared.get("effect", "write")
    if effect not in ("read", "write"):
        raise ToolError(f"tool {name}: effect {effect!r}: must be 'read' or 'write'")
    if declared.get("unknown", "tool") not in ("tool", "same"):
        raise ToolError(f"tool {name}: unknown {declared['unknown']!r}: must be 'tool' or 'same'")
    rate = declared.get("rate")
    if rate is not None and not _RATE.fullmatch(str(rate)):
        raise ToolError(f"tool {name}: rate {rate!r}: must be like '5/s', '20/min' or '100/h'")
    timeout = declared.get("timeout")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ToolError(f"tool {name}: timeout {timeout!r}: must be seconds, more than 0")
    try:
        # The dataclass knows its fields; its own message is kept, for it names the word that was wrong.
        spec = ToolSpec(name, description, schema, **declared)
    except TypeError as error:
        raise ToolError(f"tool {name}: {str(error).replace('ToolSpec.__init__() ', '')}") from error
    # Lists from the caller could be changed under a spec that is shared between runs.
    return replace(spec, examples=tuple(spec.examples), after=tuple(spec.after))


def _kind(function: Callable[..., Any]) -> Kind:
    # Decorators with `functools.wraps` hide what kind of function is behind them.
    inner = inspect.unwrap(plain_function(function))
    if inspect.isasyncgenfunction(inner):
        return "async_generator"
    if inspect.iscoroutinefunction(inner):
        return "async"
    return "generator" if inspect.isgeneratorfunction(inner) else "sync"


def _run_parameters(name: str, function: Callable[..., object] | None, schema: Schema) -> Description | None:
    """Of a raw tool's function only the parameters that the run fills in matter."""
    if function is None:
        return None
    try:
        kinds = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin: it takes what it takes, and has no annotations
        return None
    found: dict[str, object] = {}
    for parameter, annotation in annotations_of(function).items():
        try:
            if parameter in kinds and is_injected(annotation):
                found[parameter] = annotation
        except ToolError as error:
            raise ToolError(f"tool {name}: parameter {parameter!r}: {error}") from error
    # A model that could name the principal could choose who it is (A5).
    if named := sorted(found.keys() & schema.get("properties", {}).keys()):
        raise ToolError(f"tool {name}: the run fills in {named[0]!r}, so its schema must not offer it to the model")
    return (
        Description(
            "",
            {},
            injected=found,
            optional=frozenset(n for n in found if kinds[n].default is not inspect.Parameter.empty),
            positional={n: kinds[n].default for n in found if kinds[n].kind is inspect.Parameter.POSITIONAL_ONLY},
        )
        if found
        else None
    )


def _bound(
    function: Callable[..., object], made: Description | None, arguments: Mapping[str, object], context: ToolContext
) -> Callable[[], object]:
    values = made.convert(arguments) if made is not None and made.schema else dict(arguments)
    if made is None:
        return functools.partial(function, **values)
    for name, annotation in made.injected.items():
        try:
            values[name] = injected(name, annotation, context)
        except LookupError:
            if name not in made.optional:
                raise
    positional = [values.pop(name, default) for name, default in made.positional.items()]
    return functools.partial(function, *positional, **values)


class ToolMaker(Protocol):
    """What `@tool(…)` gives: it makes a function a tool."""

    def __call__(self, function: Callable[Q, S], /) -> Tool[Q, S]:
        """The tool of this function."""
        ...


@overload
def tool(function: Callable[Q, S], /) -> Tool[Q, S]: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    effect: Effect = ...,
    permission: str | None = ...,
    confirm: bool = ...,
    timeout: float | None = ...,
    rate: str | None = ...,
    group: str | None = ...,
    retries: int = ...,
    repeatable: bool = ...,
    polling: bool = ...,
    lookup: Callable[..., object] | None = ...,
    max_result: int | None = ...,
    examples: Sequence[Mapping[str, object]] = ...,
    hidden: bool = ...,
    grounded: bool = ...,
    strict: bool = ...,
    after: Sequence[str] = ...,
    process: bool = ...,
    untrusted: bool = ...,
    outgoing: bool = ...,
    unknown: Literal["tool", "same"] = ...,
) -> ToolMaker: ...
def tool(function: Callable[..., object] | None = None, /, **declared: Any) -> Any:
    """Makes a function a tool: `@tool`, or `@tool(effect="read", …)` with the fields of `ToolSpec`."""
    if function is not None:
        return Tool.from_function(function, **declared)
    return lambda made: Tool.from_function(made, **declared)


__all__ = ["EMPTY", "Kind", "Tool", "tool"]
