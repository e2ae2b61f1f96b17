"""Parameters of a request that a server refuses by name.

Law: a refused parameter is left out once, where nobody asked for it in particular, and the run is told; any other one
ends the request, which is not asked again in another form.
(tests/test_vendors.py::test_a_parameter_that_is_refused_is_left_out_once)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from callgate.errors import BadParameter, BadRequest

SAFE = frozenset({"stream_options", "reasoning_effort", "parallel_tool_calls", "think", "truncate", "include"})
"""What can be left out without another answer being asked for: our own additions, and hints of how long to think. A
temperature is not among them: whoever sets it wants it. `include` asks for encrypted reasoning, which models without
any refuse ("Encrypted content is not supported with this model.")."""
_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""OpenAI's reasoning models: "Unsupported parameter: 'max_tokens' … Use 'max_completion_tokens' instead."; older
servers know only the other one."""
_FORM = frozenset({"model", "messages", "tools", "tool_choice", "response_format", "format", "stream"})
"""What the request is about: a refusal of it blames the form of the request, not a parameter."""
_QUOTED = re.compile(r"""['"`]([A-Za-z_]\w*)[\w.\[\]]*['"`]|supplied: ([A-Za-z_]\w*)|parameter:? ([A-Za-z_]\w*)""")


class LeftOut:
    """What one server was found to refuse."""

    def __init__(self) -> None:
        self._dropped: dict[str, str] = {}
        self._renamed: dict[str, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left out, for the problems of an answer."""
        return tuple(self._dropped.values())

    def apply(self, body: dict[str, Any]) -> None:
        """Takes out of the body what the server refuses."""
        for key in self._dropped:
            body.pop(key, None)
        for old, new in self._renamed.items():
            if old in body:
                body[new] = body.pop(old)

    def learn(self, error: BadRequest, body: Mapping[str, Any]) -> bool:
        """Whether the refusal names something that can be left out or renamed: then the body is worth another try."""
        found = parameters(error, body)
        if len(found) != 1:
            return False
        key = found[0]
        if key in _RENAMED and _RENAMED[key] in str(error) and key not in self._renamed.values():
            self._renamed[key] = _RENAMED[key]
            return True
        if key not in SAFE or key in self._dropped:
            return False
        self._dropped[key] = f"sent without {key}, which the server refuses ({error.status})"
        return True


def parameters(error: BadRequest, body: Mapping[str, Any]) -> list[str]:
    """The parameters of the body that a refusal names; none if it also names what the request is about."""
    words: Iterable[str] = (*error.named, *(w for found in _QUOTED.findall(str(error)) for w in found if w))
    heads = {re.split(r"[.\[]", word)[0] for word in words}
    if error.named and heads & _FORM & {re.split(r"[.\[]", word)[0] for word in error.named}:
        return []
    options = body.get("options")
    keys = body.keys() | (options.keys() if isinstance(options, Mapping) else set())
    return sorted((heads & keys) - _FORM)


def named(error: Exception, body: Mapping[str, Any]) -> Exception:
    """The error as a BadParameter, if it is a refusal of parameters alone."""
    if type(error) is not BadRequest or not (found := parameters(error, body)):
        return error
    return BadParameter(str(error), provider=error.provider, status=error.status, named=found)
