"""When a call counts as right: the rules of the Berkeley Function-Calling Leaderboard (AST categories, Python).

Law: for calls of Python functions the verdict is that of the leaderboard's own checker, oddities included; each
oddity that is kept on purpose is named where it stands.
(tests/test_evals.py::test_the_leaderboards_rules)

Gold answers list what is accepted for each parameter; `""` among them means that the parameter may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callgate.types import ToolCall

Gold = Mapping[str, Mapping[str, Sequence[Any]]]
"""One accepted call: {function: {parameter: [accepted values]}}."""
Function = Mapping[str, Any]
"""A function as the data set describes it, with its own type names."""

_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_IGNORED = re.compile(r"[ ,./\-_*^]")


def wrong(calls: Sequence[ToolCall], gold: Sequence[Gold], functions: Sequence[Function]) -> str | None:
    """What is wrong with these calls; None: they are right. Several calls may come in any order."""
    if len(calls) != len(gold):
        return f"{len(calls)} calls, {len(gold)} wanted"
    left = list(calls)
    for answer in gold:
        name = next(iter(answer))
        function = next((f for f in functions if f["name"] == name), functions[0])
        verdicts = [_wrong_call(call, answer, function) for call in left]
        if None not in verdicts:
            return verdicts[0] if len(verdicts) == 1 else f"no call fits {name}: {verdicts[0]}"
        del left[verdicts.index(None)]
    return None


def _wrong_call(call: ToolCall, answer: Gold, function: Function) -> str | None:
    accepted = next(iter(answer.values()))
    parameters = function["parameters"]
    if call.name != function["name"]:
        return f"called {call.name}, not {function['name']}"
    for name in parameters.get("required") or ():
        if name not in call.arguments:
            return f"{name}: missing"
    for name, value in call.arguments.items():
        if name not in parameters["properties"] or name not in accepted:
            return f"{name}: not wanted"
        if reason := _wrong_value(value, accepted[name], parameters["properties"][name]):
            return f"{name}: {reason}"
    for name, values in accepted.items():
        if name not in call.arguments and "" not in values:
            return f"{name}: left out"
    return None


def _wrong_value(value: object, accepted: Sequence[object], schema: Mapping[str, Any]) -> str | None:
    kind = schema["type"]
    wanted = _TYPES[kind]
    inner = _TYPES[schema["items"]["type"]] if wanted is list else None
    if kind == "float" and type(value) is int:
        value = float(value)
    as_type = _type_of(accepted)
    by_name = as_type is not None and as_type is not wanted  # gold of another type: the name of a variable
    if type(value) is wanted:
        if inner is not None and not any(_items_fit(value, item, inner) for item in accepted):
            return f"{value!r} has items of a wrong type"
    elif as_type is not None and type(value) is as_type:
        by_name = True
    else:
        return f"{value!r} is no {kind}"
    if by_name:
        return None if value in accepted else _expected(value, accepted)
    return None if _accepted(value, accepted, wanted, inner) else _expected(value, accepted)


def _accepted(value: Any, accepted: Sequence[Any], wanted: type, inner: type | None) -> bool:
    if wanted is dict:
        return any(_object_fits(value, answer) for answer in accepted)
    if wanted is list and inner is dict:
        return any(_objects_fit(value, answer) for answer in accepted)
    if wanted is str:
        return plain(value) in [plain(a) for a in accepted if type(a) is str]
    if wanted is list:  # the gold "" (may be left out) reads as the empty list
        return [plain(v) for v in value] in [[plain(a) for a in answer] for answer in accepted]
    return value in accepted


def _items_fit(value: Any, answer: object, inner: type) -> bool:
    """Whether the items have the right type, or that of the answer's first item; a gold that is no list admits all."""
    if type(answer) is not list:
        return True
    as_type = _type_of(answer)
    return all(type(v) is inner or (as_type is not None and type(v) is as_type) for v in value)


def _objects_fit(values: Sequence[Mapping[str, object]], answers: Sequence[object]) -> bool:
    return len(values) == len(answers) and all(_object_fits(v, a) for v, a in zip(values, answers, strict=True))


def _object_fits(value: Mapping[str, object], answer: Any) -> bool:
    if answer == "":
        return False
    if any(k not in answer or plain(v) not in [plain(a) for a in answer[k]] for k, v in value.items()):
        return False
    return all(k in value or "" in accepted for k, accepted in answer.items())


def plain(value: object) -> Any:
    """A string without case, blanks and most punctuation; anything else as it is."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if type(value) is str else value


def _type_of(accepted: Sequence[object]) -> type | None:
    return next((type(a) for a in accepted if a != ""), None)


def _expected(value: object, accepted: Sequence[object]) -> str:
    return f"{value!r}, expected one of {list(accepted)!r}"
