"""A tool: a function, what a model may know of it, and how arguments become its parameters.

One law: what is declared here is all that gate, executor and ledger go by; a tool that says nothing is a write.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, overload

from callgate.errors import ConfigError, ToolError
from callgate.schema import CompiledSchema, Description, describe, name_of, plain_function
from callgate.tools._context import ToolContext, injected, is_injected
from callgate.types import EMPTY, Effect, Schema, ToolSpec

Kind: TypeAlias = Literal["sync", "async", "generator", "async_generator"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
_RATE = re.compile(r"[1-9]\d*/(?:s|min|h)")


@dataclass(frozen=True, eq=False)
class Tool:
    """A function that a model may ask for. Calling it calls the function."""

    spec: ToolSpec
    function: Callable[..., Any] | None
    """None: known to readers, not runnable (a plain JSON description)."""
    kind: Kind = "sync"
    lookup: Callable[..., Any] | None = None
    """Finds out what became of a started write: `lookup(key, arguments)`, or a function with the tool's own parameters
    (and a `ToolContext`, if it wants the key). What it returns is the write's result; None: nobody knows; `NoEffect`:
    it did not happen, and never will."""
    description: Description | None = None
    """How arguments become Python values; None: they are passed as they are."""
    declared: frozenset[str] = frozenset()
    """Which fields of the spec were said, not defaulted."""
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

    def prepare(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """The call with these JSON arguments, ready to be made. Raises ValueError for what the types refuse."""
        if self.function is None:
            raise ToolError(f"tool {self.name} has no function: it is only a description")
        return _bound(self.function, self.description, arguments, context or ToolContext())

    def prepare_lookup(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """The same for its lookup: the arguments that it takes, by name."""
        if self.lookup is None:
            raise ToolError(f"tool {self.name} has no lookup")
        made = self._made.get("lookup")
        if made is None:
            made = self._made["lookup"] = describe(self.lookup, injected=is_injected)
        known = {key: value for key, value in arguments.items() if key in made.adapters}
        return _bound(self.lookup, made, known, context or ToolContext())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function itself, unchecked: it is yours."""
        if self.function is None:
            raise ToolError(f"tool {self.name} has no function: it is only a description")
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Tool:
        """A tool made of a method, bound to its object."""
        if instance is None or self.function is None or self.description is None:
            return self
        return replace(self, function=functools.partial(self.function, instance), _made={})

    def with_spec(self, **changes: Any) -> Tool:
        """The same tool, declared differently."""
        return replace(self, spec=replace(self.spec, **changes), _made={})

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        lookup: Callable[..., Any] | None = None,
        **declared: Any,
    ) -> Tool:
        """A tool from a signature; `declared` are fields of `ToolSpec` (effect, permission, timeout …).

        Raises ToolError for what cannot be described.
        """
        if isinstance(function, Tool):
            return function
        if not callable(function):
            raise ToolError(f"{function!r} is no function")
        label = name or name_of(function)
        made = describe(function, injected=is_injected, name=label)
        text = made.summary if description is None else description
        spec = _spec(label, text, made.schema, {**declared, "has_lookup": lookup is not None})
        return _checked(cls(spec, function, _kind(function), lookup, made, frozenset(declared)))

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str = "",
        schema: Schema | None = None,
        function: Callable[..., Any] | None = None,
        *,
        lookup: Callable[..., Any] | None = None,
        **declared: Any,
    ) -> Tool:
        """A tool from raw JSON Schema; the function gets the arguments as keywords, as they are."""
        parameters = dict(schema or {})
        parameters.setdefault("type", "object")
        if parameters["type"] == "object":
            parameters.setdefault("properties", {})
        spec = _spec(name, description, parameters, {**declared, "has_lookup": lookup is not None})
        kind: Kind = "sync" if function is None else _kind(function)
        return _checked(cls(spec, function, kind, lookup, _run_parameters(function), frozenset(declared)))


def _checked(tool: Tool) -> Tool:
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
    effect = declared.get("effect", "write")
    if effect not in ("read", "write"):
        raise ToolError(f"tool {name}: effect {effect!r}: must be 'read' or 'write'")
    rate = declared.get("rate")
    if rate is not None and not _RATE.fullmatch(str(rate)):
        raise ToolError(f"tool {name}: rate {rate!r}: must be like '5/s', '20/min' or '100/h'")
    timeout = declared.get("timeout")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ToolError(f"tool {name}: timeout {timeout!r}: must be seconds, more than 0")
    try:
        spec = ToolSpec(name, description, schema, **declared)
    except TypeError as error:
        raise ToolError(f"tool {name}: {str(error).replace('ToolSpec.__init__() ', '')}") from error
    return replace(spec, examples=tuple(spec.examples), after=tuple(spec.after))


def _kind(function: Callable[..., Any]) -> Kind:
    inner = inspect.unwrap(plain_function(function))
    if inspect.isasyncgenfunction(inner):
        return "async_generator"
    if inspect.iscoroutinefunction(inner):
        return "async"
    return "generator" if inspect.isgeneratorfunction(inner) else "sync"


def _run_parameters(function: Callable[..., Any] | None) -> Description | None:
    """Of a raw tool's function only the parameters that the run fills in matter."""
    if function is None:
        return None
    try:
        hints = inspect.get_annotations(plain_function(function), eval_str=True)
    except Exception:
        return None
    found = {name: annotation for name, annotation in hints.items() if name != "return" and is_injected(annotation)}
    kinds = inspect.signature(function).parameters
    first = {name: None for name in found if kinds[name].kind is inspect.Parameter.POSITIONAL_ONLY}
    return Description("", {}, injected=found, positional=first) if found else None


def _bound(
    function: Callable[..., Any], made: Description | None, arguments: Mapping[str, Any], context: ToolContext
) -> Callable[[], Any]:
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


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
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
    lookup: Callable[..., Any] | None = ...,
    max_result: int | None = ...,
    examples: Sequence[Mapping[str, Any]] = ...,
    hidden: bool = ...,
    grounded: bool = ...,
    strict: bool = ...,
    after: Sequence[str] = ...,
    process: bool = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Makes a function a tool: `@tool`, or `@tool(effect="read", …)` with the fields of `ToolSpec`."""
    if function is not None:
        return Tool.from_function(function, **declared)
    return lambda made: Tool.from_function(made, **declared)


__all__ = ["EMPTY", "Kind", "Tool", "tool"]
