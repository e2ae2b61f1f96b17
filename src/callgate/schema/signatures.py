"""From a function's signature to the JSON Schema of its arguments, and from arguments back to Python values.

A parameter that cannot be described is an error when the tool is made, never when it is called.

Law: what a model may send is all in the schema, and the schema is closed.
(tests/test_tools_identity.py::test_no_signature_lets_the_model_choose_who_it_is)
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from callgate.errors import ToolError
from callgate.schema._place import pointer
from callgate.schema._quote import is_secret, show
from callgate.schema._tidy import tidy

PLAIN: Final = (str, int, float, bool, object, object, type(None), inspect.Parameter.empty)
"""Annotations for which fitting the schema is all there is to check."""
_FIXED: Final = {
    inspect.Parameter.VAR_POSITIONAL: "*{name} cannot be described; give the model a list parameter instead",
    inspect.Parameter.VAR_KEYWORD: "**{name} cannot be described; name the parameters, or take one dict",
}


@dataclass(slots=True, frozen=True)
class Description:
    """What a signature says."""

    summary: str
    """The docstring without its parameter section."""
    schema: dict[str, object]
    adapters: Mapping[str, Any] = field(default_factory=dict)
    """Parameter name -> pydantic's TypeAdapter."""
    injected: Mapping[str, object] = field(default_factory=dict)
    """Parameter name -> annotation of what the run fills in."""
    optional: frozenset[str] = frozenset()
    """Injected parameters with a default."""
    demanding: frozenset[str] = frozenset()
    """Parameters whose types say more than their schema (dates, validators, constraints of classes)."""
    positional: Mapping[str, object] = field(default_factory=dict)
    """Parameter that can only be given by position -> its default."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Parameter name -> the pydantic Field that stands where its default should."""

    def check(self, arguments: Mapping[str, object]) -> list[tuple[str, str]]:
        """What the Python types refuse although the schema took it: (pointer, message)."""
        errors: list[tuple[str, str]] = []
        for name in self.demanding & arguments.keys():
            try:
                self.adapters[name].validate_python(arguments[name])
            except Exception as error:  # pydantic's, or a validator's own
                errors += _errors(name, error, self.schema)
        return errors

    def convert(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The Python values. Raises ValueError that names each field which its type refuses."""
        values: dict[str, object] = {}
        errors: list[tuple[str, str]] = []
        for name, value in arguments.items():
            adapter = self.adapters.get(name)
            if adapter is None:
                errors.append((pointer([name]), "unknown argument"))
                continue
            try:
                values[name] = adapter.validate_python(value)
            except Exception as error:
                errors += _errors(name, error, self.schema)
        for name, info in self.defaults.items():
            if name not in arguments:
                values[name] = info.get_default(call_default_factory=True)
        if errors:
            raise ValueError("\n".join(f"{at}: {what}" for at, what in errors))
        return values


def describe(
    function: Callable[..., object],
    *,
    injected: Callable[[object], bool] = lambda annotation: False,
    name: str | None = None,
) -> Description:
    """The schema and the summary of a callable. Raises ToolError for what cannot be described.

    `injected` tells which annotations the run fills in; those parameters are not in the schema.
    """
    label = name or name_of(function)
    parameters, hints = _parameters(function, label)
    summary, texts = _docstring(function)
    described: dict[str, inspect.Parameter] = {}
    from_run: dict[str, object] = {}
    for parameter in parameters:
        annotation, is_injected = _annotation(parameter, hints, injected, label)
        if is_injected:
            from_run[parameter.name] = annotation
        else:
            described[parameter.name] = parameter.replace(annotation=annotation)
    adapters = {p.name: _adapter(p, label) for p in described.values()}
    return Description(
        summary=summary,
        schema=_schema(described, adapters, texts, label),
        adapters=adapters,
        injected=from_run,
        optional=frozenset(p.name for p in parameters if p.name in from_run and p.default is not p.empty),
        demanding=frozenset(p.name for p in described.values() if not _is_plain(p.annotation)),
        positional={p.name: p.default for p in parameters if p.kind is p.POSITIONAL_ONLY},
        defaults={p.name: p.default for p in described.values() if _has_field_default(p.default)},
    )


def _parameters(function: Callable[..., object], label: str) -> tuple[list[inspect.Parameter], dict[str, object]]:
    """The parameters of a callable, without the object of a method, and their annotations."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ToolError(f"tool {label}: {function!r} has no signature that can be read") from error
    hints = _hints(function, label)
    receiver = bool(parameters) and _is_receiver(parameters[0], function, hints)
    return parameters[receiver:], hints


def _annotation(
    parameter: inspect.Parameter, hints: Mapping[str, object], injected: Callable[[object], bool], label: str
) -> tuple[object, bool]:
    """The annotation of a parameter and whether the run fills it in; without one, a default that the run would fill in
    says as much: `who=Principal("root")`. Raises ToolError for what can be neither."""
    if parameter.kind in _FIXED:
        raise ToolError(f"tool {label}: {_FIXED[parameter.kind].format(name=parameter.name)}")
    annotation = hints.get(parameter.name, parameter.annotation)
    try:
        if annotation is parameter.empty and injected(type(parameter.default)):
            annotation = type(parameter.default)
        return annotation, injected(annotation)
    except ToolError as error:
        raise ToolError(f"tool {label}: parameter {parameter.name!r}: {error}") from error


def _is_receiver(first: inspect.Parameter, function: Callable[..., object], hints: Mapping[str, object]) -> bool:
    """Whether the first parameter is the object of a method, also one with an annotation."""
    if first.name not in ("self", "cls"):
        return False
    return first.name not in hints or _in_class(plain_function(function))


def _in_class(function: Callable[..., object]) -> bool:
    owner = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>")


def name_of(function: Callable[..., object]) -> str:
    """The name that a callable goes by."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def plain_function(function: Callable[..., object]) -> Callable[..., object]:
    """What is really called: behind partials, and the `__call__` of objects."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return getattr(type(function), "__call__", function)  # noqa: B004 - the method itself is wanted


def annotations_of(function: Callable[..., object]) -> dict[str, object]:
    """The annotations that can be read, as types; one whose names are unknown here is left as its text."""
    try:
        return _hints(function, name_of(function))
    except ToolError:
        target = inspect.unwrap(plain_function(function))
        written = {n: a for n, a in getattr(target, "__annotations__", {}).items() if n != "return"}
        return {n: _one_hint(target, a) for n, a in written.items()}


def _one_hint(target: object, annotation: object) -> object:
    only = SimpleNamespace(__annotations__={"x": annotation}, __globals__=getattr(target, "__globals__", {}))
    try:
        return _resolved(only)["x"]
    except Exception:  # a name that only a type checker imports
        return annotation


def _hints(function: Callable[..., object], label: str) -> dict[str, object]:
    target: Any = plain_function(function)
    target = inspect.unwrap(target.__init__ if inspect.isclass(target) else target)
    if _in_class(target):  # its own class does not exist yet where `@tool` stands on a method
        written = {name: hint for name, hint in target.__annotations__.items() if name not in ("self", "cls")}
        target = SimpleNamespace(__annotations__=written, __globals__=getattr(target, "__globals__", {}))
    try:
        return _resolved(target)
    except NameError as error:
        raise ToolError(
            f"tool {label}: the annotation {error.name!r} cannot be found where the tool is made"
        ) from error
    except Exception as error:
        raise ToolError(f"tool {label}: its annotations cannot be read: {error}") from error


def _resolved(target: object) -> dict[str, object]:
    """Annotations as types; names that are local to where the tool is made are looked up there."""
    try:
        return get_type_hints(target, include_extras=True)
    except NameError:
        # A tool is often made inside a function or a test, where its types are local names.
        frame = sys._getframe(2)
        local: dict[str, object] = {}
        while frame is not None:
            if not str(frame.f_globals.get("__name__", "")).startswith("callgate."):
                local = {**frame.f_locals, **local}
            frame = frame.f_back  # type: ignore[assignment]
        return get_type_hints(target, localns=local, include_extras=True)


def _docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """The text of the docstring, and what it says of each parameter (Google, NumPy, Sphinx, Epytext)."""
    written = function.func if isinstance(function, functools.partial) else function
    text = inspect.getdoc(written) if inspect.isroutine(written) or inspect.isclass(written) else None
    text = text or inspect.getdoc(plain_function(written)) or ""
    if not text:
        return "", {}
    parser = _load_docstring_parser()
    try:
        parsed = parser.parse(text)
    except Exception:  # a docstring in no style at all is still a description
        return text.strip(), {}
    parts = [part.strip() for part in (parsed.short_description, parsed.long_description) if part]
    texts = {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}
    return "\n\n".join(parts), texts


def _adapter(parameter: inspect.Parameter, label: str) -> object:
    annotation = object if parameter.annotation is parameter.empty else parameter.annotation
    if _is_field(parameter.default):
        annotation = Annotated[annotation, parameter.default]
    try:
        return type_adapter(annotation)
    except Exception as error:  # pydantic's, or anything a foreign class raises while it is looked at
        raise ToolError(f"tool {label}: parameter {parameter.name!r}: {_reason(error, annotation)}") from error


def type_adapter(annotation: Any) -> Any:
    """Pydantic's TypeAdapter for a type. Raises whatever pydantic raises for one that it cannot describe."""
    return _load_pydantic().TypeAdapter(annotation if sys.version_info >= (3, 12) else _modern(annotation))


def _modern(annotation: Any, seen: frozenset[object] = frozenset()) -> object:
    """The annotation with each `typing.TypedDict` as one of `typing_extensions`, all that pydantic takes on 3.11."""
    if is_typeddict(annotation) and annotation not in seen and type(annotation).__module__ == "typing":
        return _modern_dict(annotation, seen | {annotation})
    origin, arguments = get_origin(annotation), get_args(annotation)
    if not arguments or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(_modern(arguments[0], seen), *annotation.__metadata__)]
    new = tuple(_modern(argument, seen) for argument in arguments)
    if new == arguments:
        return annotation
    if isinstance(annotation, UnionType):
        return functools.reduce(operator.or_, new)
    return annotation.copy_with(new) if hasattr(annotation, "copy_with") else origin[new]


def _modern_dict(made: Any, seen: frozenset[object]) -> object:
    fields: dict[str, object] = {}
    for name, hint in get_type_hints(made, include_extras=True).items():
        needed = name in made.__required_keys__
        if get_origin(hint) in (Required, NotRequired):
            needed, hint = get_origin(hint) is Required, get_args(hint)[0]  # noqa: PLW2901 - the mark is taken off
        fields[name] = _modern(hint, seen) if needed else NotRequired[_modern(hint, seen)]
    create: Any = import_module("typing_extensions").TypedDict
    return create(made.__name__, fields)


def _is_field(default: object) -> bool:
    return isinstance(default, _load_pydantic().fields.FieldInfo)


def _has_field_default(default: Any) -> bool:
    """Whether the default is a pydantic `Field` that gives a value."""
    return _is_field(default) and not default.is_required()


_NO_SCHEMA: Final = ("Unable to generate", "Cannot generate")
"""How pydantic says that it does not know a type; the rest of what it says is about its own settings."""
_FITTING: Final = (
    "use str, int, float, bool, list, dict, Literal, an Enum, a dataclass, a TypedDict or a pydantic model; "
    "for what the application gives, not the model: Inject[…]"
)


def _reason(error: Exception, annotation: object) -> str:
    lines = [line.strip() for line in str(error).split("\n") if line.strip()] or [type(error).__name__]
    why = _FITTING if lines[0].startswith(_NO_SCHEMA) else " ".join(lines[:2])
    return f"its type {inspect.formatannotation(annotation)} cannot be described as JSON; {why}"


def _schema(
    parameters: Mapping[str, inspect.Parameter], adapters: Mapping[str, Any], texts: Mapping[str, str], label: str
) -> dict[str, object]:
    properties: dict[str, object] = {}
    definitions: dict[str, object] = {}
    pydantic = _load_pydantic()
    try:
        # All parameters at once: two that use the same model then share one definition under `$defs`.
        parts, shared = pydantic.TypeAdapter.json_schemas([(n, "validation", a) for n, a in adapters.items()])
        definitions = shared.get("$defs", {})
    except Exception:
        for name, adapter in adapters.items():
            try:
                # Which of them failed is not in the error of all: each is asked alone, to name the parameter.
                adapter.json_schema()
            except Exception as error:
                raise ToolError(
                    f"tool {label}: parameter {name!r}: {_reason(error, parameters[name].annotation)}"
                ) from error
        raise
    required = []
    for name, parameter in parameters.items():
        part = dict(parts[name, "validation"])
        text = part.get("description") or _annotated_text(parameter.annotation) or texts.get(name)
        if text:
            part["description"] = text
        default, given = _default(parameter, adapters[name])
        if not given:
            required.append(name)
        elif default is not _UNSAYABLE:
            part["default"] = default
        properties[name] = part
    schema: dict[str, object] = {"type": "object", "properties": properties, "required": required}
    if definitions:
        schema["$defs"] = definitions
    return tidy(schema)


def _annotated_text(annotation: Any) -> str | None:
    """The text in `Annotated[str, "The city."]`, or `Doc("…")` there."""
    if get_origin(annotation) is not Annotated:
        return None
    for mark in annotation.__metadata__:
        text = mark if isinstance(mark, str) else getattr(mark, "documentation", None)
        if isinstance(text, str):
            return text
    return None


_UNSAYABLE: Final = object()


def _default(parameter: inspect.Parameter, adapter: Any) -> tuple[object, bool]:
    """(the default as JSON or _UNSAYABLE, whether there is one)."""
    default = parameter.default
    if default is parameter.empty:
        return _UNSAYABLE, False
    if _is_field(default):
        if default.is_required():
            return _UNSAYABLE, False
        if default.default_factory is not None:  # made anew for each call: a value of now would be wrong then
            return _UNSAYABLE, True
        default = default.get_default()
    if default is None:
        return _UNSAYABLE, True  # "may be left out" says it; a null default makes models send null
    try:
        value = adapter.dump_python(default, mode="json", warnings=False)
        json.dumps(value, allow_nan=False)
    except Exception:
        return _UNSAYABLE, True
    return value, True


def _is_plain(annotation: object) -> bool:
    """Whether a value of this type is valid whenever it fits the schema: JSON's own types and what is made of them."""
    origin = get_origin(annotation)
    if origin in (list, dict, Union, UnionType, Sequence, Mapping):
        return all(_is_plain(part) for part in get_args(annotation))
    if origin is Literal or (inspect.isclass(annotation) and issubclass(annotation, enum.Enum)):
        return True
    try:
        return annotation in PLAIN
    except TypeError:  # an annotation that cannot be compared
        return False


def _errors(name: str, error: Exception, schema: Mapping[str, object]) -> list[tuple[str, str]]:
    """An exception of a validation as (pointer, message), without addresses of documentation."""
    if not isinstance(error, _load_pydantic().ValidationError):
        return [(pointer([name]), str(error) or type(error).__name__)]
    found: Any = error
    rows = []
    for row in found.errors(include_url=False, include_context=False, include_input=True):
        path = [part for part in row["loc"] if isinstance(part, int) or "[" not in part]
        message = row["msg"][:1].lower() + row["msg"][1:]
        # Large values would fill the message, and those of secret fields must not be in it.
        hidden = isinstance(row["input"], (dict, list)) or is_secret([name, *path], schema)
        rows.append((pointer([name, *path]), message if hidden else f"{message}, got {show(row['input'])}"))
    return rows


def _load_pydantic() -> Any:
    import pydantic
    import pydantic.fields

    return pydantic


def _load_docstring_parser() -> Any:
    import docstring_parser

    return docstring_parser
