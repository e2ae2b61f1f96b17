"""What makes models choose wrong tools, fill in wrong arguments or leave a write in doubt, found before a model does.

Law: every finding has a reason and shows what better looks like.
(tests/test_tools_lint.py::test_every_finding_has_a_reason_and_a_better_example)

To add a check: one generator of findings, and its row in `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal

from callgate.schema.introspect import allowed_types, is_recursive
from callgate.tools._names import folded
from callgate.tools._words import only_vague, telling, words

if TYPE_CHECKING:
    from callgate.tools._tool import Tool
    from callgate.tools._toolbox import Toolbox

GROUP_MAX: Final = 10
"""Tools that a model is shown at once before its choice gets worse; small models need fewer."""
WORDS_MIN: Final = 3
OVERLAP: Final = 0.6
"""Shared words of two descriptions, of all their words, from which models confuse them."""

_UNENFORCED: Final = frozenset(
    {"not", "if", "then", "else", "patternProperties", "propertyNames", "uniqueItems", "contains", "multipleOf"}
    | {"dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "minProperties"}
)
_DATA: Final = frozenset({"const", "default", "enum", "examples"})

_WHAT_TO_SAY: Final = {
    "string": 'what it names and in which form, with an example, as in: such as "A-17"',
    "integer": "what it counts or numbers, and from where to where",
    "number": "what it measures, and its unit",
    "boolean": "what happens if it is true",
    "array": "what each item is, and how many there may be",
}
"""An example of another domain would be copied as it stands, so the hint says what is missing (by the type)."""


@dataclass(slots=True, frozen=True)
class Finding:
    """One thing to improve."""

    check: str
    tool: str
    where: str
    """A parameter's JSON pointer, another tool's name, or empty."""
    message: str
    reason: str
    better: str
    level: Literal["error", "warning"] = "warning"


def lint(tools: Toolbox) -> list[Finding]:
    """Everything that could be better about these tools, in their order."""
    found = [finding for check in CHECKS.values() for finding in check(tools)]
    place = {name: i for i, name in enumerate(tools.names)}
    return sorted(found, key=lambda finding: place[finding.tool])


def description(tools: Toolbox) -> Iterator[Finding]:
    """Missing or vague descriptions."""
    for tool in tools:
        text = tool.spec.description.strip()
        better = f'"""…"""  with what {tool.name} does, to what, when to use it, and what it returns'
        reason = "the description is all that a model knows of what a tool is for and when to use it"
        if not text:
            yield Finding("description", tool.name, "", "has no description", reason, better, "error")
        elif only_vague(text, tool.name):
            better = f"beside the words of its name: what {tool.name} returns, and for which requests it is"
            yield Finding("description", tool.name, "", f"vague description {text!r}", reason, better)
        elif telling(text) < WORDS_MIN:
            better = f"{text!r} and more: to what it does so, when to use it, and what it returns"
            yield Finding("description", tool.name, "", f"short description {text!r}", reason, better)


def parameters(tools: Toolbox) -> Iterator[Finding]:
    """Parameters without description or type."""
    for tool in tools:
        for name, found in _properties(tool).items():
            schema = found if isinstance(found, Mapping) else {}
            where = f"/{name}"
            if not schema.get("description") and not schema.get("enum"):
                yield Finding(
                    "parameters", tool.name, where, f"parameter {name!r} has no description",
                    "a model guesses units, formats and meaning from the name alone",
                    f'{name}: {_example(schema)}   (in the docstring under "Args:")',
                )  # fmt: skip
            if len(allowed_types(schema, tool.spec.parameters)) == 7:
                yield Finding(
                    "parameters", tool.name, where, f"parameter {name!r} has no type",
                    "without a type nothing can be checked or converted, and a constrained engine writes anything",
                    f"{name}: int",
                )  # fmt: skip


def _example(schema: Mapping[str, object]) -> str:
    """What a description of a parameter of this type should say."""
    kind = schema.get("type")
    return _WHAT_TO_SAY.get(kind if isinstance(kind, str) else "", "what it is, and its form")


def overlap(tools: Toolbox) -> Iterator[Finding]:
    """Descriptions that say nearly the same."""
    bags = {tool.name: frozenset(words(tool.spec.description)) for tool in tools}
    for one, other in combinations(bags, 2):
        shared, both = bags[one] & bags[other], bags[one] | bags[other]
        if len(shared) >= WORDS_MIN and len(shared) / len(both) >= OVERLAP:
            yield Finding(
                "overlap", one, other, f"described almost like {other!r}",
                "a model picks one of two tools that sound alike at random",
                f"say what only {one} does, and when {other} is the right one; both say: {', '.join(sorted(shared))}",
            )  # fmt: skip


def names(tools: Toolbox) -> Iterator[Finding]:
    """Names that models confuse."""
    for one, other in combinations(tools.names, 2):
        level: Literal["error", "warning"] = "warning"
        if folded(one) == folded(other):
            problem, level = f"is {other!r} but for case and separators", "error"
        elif sorted(words(one)) == sorted(words(other)):
            problem = f"has the same words as {other!r}"
        elif len(one) > 4 and _one_off(folded(one), folded(other)):
            problem = f"is one letter away from {other!r}"
        else:
            continue
        reason = "models misspell names; a slip must never reach another tool"
        yield Finding(
            "names",
            one,
            other,
            problem,
            reason,
            "a verb and a noun of its own for each: find_order, cancel_order",
            level,
        )


def groups(tools: Toolbox) -> Iterator[Finding]:
    """Too many tools in one group."""
    for name, group in tools.groups.items():
        if len(group) > GROUP_MAX:
            label = f"group {name!r}" if name else "no group"
            yield Finding(
                "groups", group.names[0], name, f"{len(group)} tools in {label}",
                f"with more than {GROUP_MAX} tools at once models choose worse; in groups they choose in two steps",
                '@tool(group="calendar")',
            )  # fmt: skip


def effects(tools: Toolbox) -> Iterator[Finding]:
    """Effects that are not declared, and writes that nobody can look up."""
    for tool in tools:
        if tool.function is not None and "effect" not in tool.declared:
            yield Finding(
                "effects", tool.name, "", "does not declare its effect, so it is taken for a write",
                "reads may overlap, be tried again and be repaired; a write never is",
                '@tool(effect="read")  or  @tool(effect="write", lookup=find_order)',
            )  # fmt: skip
        elif tool.spec.effect == "write" and not tool.spec.has_lookup and not tool.spec.repeatable:
            yield Finding(
                "effects", tool.name, "", "a write without lookup",
                "after a crash or a timeout nothing can tell whether it took effect, so its outcome stays unknown",
                '@tool(effect="write", lookup=find_order)  # takes the same arguments, returns what was done or None',
            )  # fmt: skip


def enforceable(tools: Toolbox) -> Iterator[Finding]:
    """What a constrained engine cannot hold a model to."""
    for tool in tools:
        found = sorted(set(_keywords(tool.spec.parameters)) & _UNENFORCED)
        if found:
            yield Finding(
                "enforceable", tool.name, "", f"its schema uses {', '.join(found)}",
                "engines that write under a grammar ignore these; arguments are checked only afterwards",
                'an enum, a type or a length says it in a way that can be enforced: unit: Literal["C", "F"]',
            )  # fmt: skip
        if is_recursive(tool.spec.parameters):
            yield Finding(
                "enforceable", tool.name, "", "its schema refers to itself",
                "small models loop in it, and engines cut it off at some depth",
                "a list of rows with a parent number, or two fixed levels",
            )  # fmt: skip


CHECKS: Final[dict[str, Callable[[Toolbox], Iterator[Finding]]]] = {
    "description": description,
    "parameters": parameters,
    "overlap": overlap,
    "names": names,
    "groups": groups,
    "effects": effects,
    "enforceable": enforceable,
}


def _properties(tool: Tool) -> Mapping[str, object]:
    found = tool.spec.parameters.get("properties")
    return found if isinstance(found, Mapping) else {}


def _one_off(a: str, b: str) -> bool:
    """Whether one change of one letter makes a name the other."""
    if abs(len(a) - len(b)) > 1 or a == b:
        return False
    short, long = sorted((a, b), key=len)
    i = next((i for i, char in enumerate(short) if char != long[i]), len(short))
    if short[i:].isdigit() and long[i:].isdigit():
        return False  # page1, page2: a series
    return short[i:] == long[i + 1 :] or short[i + 1 :] == long[i + 1 :]


def _keywords(schema: object) -> Iterator[str]:
    """Every keyword of a schema; the names of properties are none."""
    todo: list[tuple[object, bool]] = [(schema, False)]
    while todo:
        node, named = todo.pop()
        if isinstance(node, Mapping):
            for key, value in node.items():
                if not named:
                    yield key
                    if key in _DATA:
                        continue
                todo.append((value, not named and key in ("properties", "patternProperties", "$defs", "definitions")))
        elif isinstance(node, list):
            todo += [(item, False) for item in node]
