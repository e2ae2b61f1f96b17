"""The form of a final answer: any type that pydantic can describe, a function, or a JSON Schema.

Law: an output is of the caller's type, or the reason is not `answered`.
(tests/test_agent_output.py::test_an_answer_that_the_type_refuses_is_asked_for_again_with_the_reason)
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from callgate.errors import ConfigError, ToolError
from callgate.schema.signatures import describe, type_adapter
from callgate.tools import is_injected
from callgate.types import Schema

if TYPE_CHECKING:
    from callgate.agent._result import RunResult

LOGGER = logging.getLogger("callgate.agent")
MAX_REASON = 1000
"""Characters of what a type says about an answer: for the model, which needs the reason and not a page."""
T = TypeVar("T")
Make = Callable[[object], Any]


@dataclass(frozen=True)
class Form:
    """The form of a final answer that was asked for."""

    schema: Schema | None = None
    make: Make | None = None
    """Turns the JSON value into one of the caller's type."""
    words: bool = False
    """The answer's text is the output (`output=str`)."""
    _made: list[tuple[object, object]] = field(default_factory=list, compare=False, repr=False)
    """The last value that the type accepted and what it made of it: a function is called once for an answer."""

    @classmethod
    def of(cls, output: object) -> Form:
        """From a type, a function, a JSON Schema, or None. Raises ConfigError for what cannot be described."""
        if output is None:
            return cls()
        if isinstance(output, Mapping):
            return cls(cast("Schema", output))
        if output is str:
            return cls(words=True)
        try:
            return cls(*_described(output))
        except TypeError:  # what cannot be hashed is described anew each time
            return cls(*_described.__wrapped__(output))

    @property
    def wanted(self) -> bool:
        """Whether there is one at all."""
        return self.words or self.schema is not None

    @property
    def accept(self) -> Callable[[Any], str | None] | None:
        """Why the caller's type refuses a value that fits the schema, in one line; None: it does not."""
        return None if self.make is None else self._refusal

    def _refusal(self, value: object) -> str | None:
        try:
            self._value(value)
        except Exception as error:
            return _reason_of(error)
        return None

    def _value(self, value: object) -> object:
        assert self.make is not None
        # By identity and not by equality: True is 1 in Python.
        if not self._made or self._made[-1][0] is not value:
            self._made[:] = [(value, self.make(value))]
        return self._made[-1][1]

    def fill(self, result: RunResult[Any]) -> RunResult[Any]:
        """The result with its output in the caller's type; a value that this refuses is no success."""
        if self.words and result.ok:
            return replace(result, output=result.text)
        if self.make is None or result.output is None or not result.ok:
            return result
        try:
            return replace(result, output=self._value(result.output))
        except Exception as error:
            text = f"the final answer is not valid: {_reason_of(error)}"
            return replace(result, output=None, reason="output_invalid", error=text)


@functools.lru_cache(maxsize=256)
def _described(output: object) -> tuple[Schema, Make]:
    """The schema of a type or function, and what makes a value of it."""
    try:
        if inspect.isroutine(output) or isinstance(output, functools.partial):
            return _of_function(output)
        adapter = type_adapter(output)
        return adapter.json_schema(), adapter.validate_python
    except ToolError as error:
        raise ConfigError(f"output: {error}") from error
    except Exception as error:  # pydantic's, or anything a foreign class raises while it is looked at
        raise ConfigError(
            f"output: a type that pydantic can describe, a function or a JSON Schema is needed, not {output!r}"
        ) from error


def _of_function(function: Callable[..., object]) -> tuple[Schema, Make]:
    """The model writes the arguments; what the function returns is the output."""
    if inspect.iscoroutinefunction(function):
        raise ToolError(f"{function!r} is async: an output function makes a value and waits for nothing; use a tool")
    made = describe(function, injected=is_injected)
    if made.injected:
        raise ToolError(f"the parameter {next(iter(made.injected))!r} of {function!r} is not the model's; use a tool")

    def make(value: object) -> object:
        return function(**made.convert(cast("Mapping[str, object]", value)))

    return made.schema, make


def _reason_of(error: Exception) -> str:
    """What an error says, in one line: by field where it tells (pydantic), without its links and inputs."""
    if not isinstance(error, ValueError):  # pydantic's own is one, and so is what a validator raises
        LOGGER.exception("the output's type or function failed", exc_info=error)
        return f"{type(error).__name__}: {error}"[:MAX_REASON]
    # By shape, since pydantic's ValidationError is not to be imported for those who use none.
    listed: Any = getattr(error, "errors", None)
    if not callable(listed):
        return str(error)[:MAX_REASON]
    try:
        rows: Any = listed()
        parts = [f"/{'/'.join(map(str, row['loc']))}: {row['msg']}" for row in rows]
    except Exception:  # somebody else's `errors`
        parts = [str(error)]
    return "; ".join(parts)[:MAX_REASON]
