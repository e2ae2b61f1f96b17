"""Answers of a small model from results: kept if they hold the results, replaced by the results if not.

Law: that of the room (callgate/grounding/__init__.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from callgate.grounding import numerals, wording
from callgate.types import Delta, TextDelta, ToolCall

MAX_SHOWN = 700
"""Characters of a result that a small model answers from."""


class CheckedAnswer:
    """A machine for a small model's answer from results: held until its end, then checked against them.

    The model's words stand if every result is in them and nothing else: no number and no telling word that is neither
    in the results nor in the request. Otherwise the results are given as they are.
    """

    def __init__(self, request: str, results: Sequence[tuple[ToolCall | None, str]]) -> None:
        self.problems: list[str] = []
        self._request = request
        self._results = results
        self._text: list[str] = []

    def feed(self, text: str) -> list[Delta]:
        """Nothing yet: what is not checked is not shown."""
        self._text.append(text)
        return []

    def finish(self) -> list[Delta]:
        """The model's answer, or the results."""
        text = "".join(self._text).strip()
        if text and holds(text, self._request, [result for _, result in self._results]):
            return [TextDelta(text)]
        self.problems.append("the model's answer contradicted the results, so the results are shown instead")
        return [TextDelta("\n".join(tell(call, result) for call, result in self._results))]


def holds(answer: str, request: str, results: Sequence[str]) -> bool:
    """Whether an answer keeps to the results: it has a value of each of them, and says nothing of its own."""
    known = " ".join((request, *results))
    numbers = {v for n in numerals.numbers(known) for v in n.values}
    if any(n.value not in numbers for n in numerals.numbers(answer)):
        return False
    if wording.content(answer) - wording.content(known) - _PLAIN_WORDS:
        return False
    lowered = answer.lower()
    asked = wording.content(request)
    return all(any(v.lower() in lowered for v in _wanted_values(result, asked)) for result in results)


_PLAIN_WORDS = wording.word_set("result answer equal current now local found valu therefor so total yes")
"""Words that an answer may add to what the results say."""


def _wanted_values(result: str, asked: set[str]) -> list[str]:
    """The values of a result of which an answer needs one: of the fields that the request names, else any short one."""
    try:
        value = json.loads(result)
    except ValueError:
        return [result.strip()]
    flat = list(_leaves(value, ""))
    named = [text for name, text in flat if wording.content(name) & asked]
    return named or [text for _, text in flat if len(text) <= 80] or [result]


def _leaves(value: object, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, name)
    elif value is not None:
        yield name, json.dumps(value) if isinstance(value, bool) else str(value)


def tell(call: ToolCall | None, result: str) -> str:
    """A result in plain words: fields as "name value", lists a line an item, an expression with its value."""
    given = [str(v) for v in call.arguments.values()] if call else []
    try:
        value = json.loads(result)
    except ValueError:
        value = result
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if str(v) not in given}
    shown = _in_words(value)
    if len(shown) > MAX_SHOWN:
        shown = shown[:MAX_SHOWN].rsplit(" ", 1)[0] + " …"
    if not given or "\n" in shown:
        return shown
    joined = ", ".join(given)
    return f"{joined} = {shown}" if numerals.expression(joined) and numerals.numbers(shown) else f"{joined}: {shown}"


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{k.replace('_', ' ')} {_in_words(v)}" for k, v in value.items() if v not in (None, "", [], {})
        )
    if isinstance(value, list):
        return "\n".join(f"- {_in_words(v)}" for v in value) if value else "nothing"
    return json.dumps(value) if isinstance(value, bool) else str(value)
