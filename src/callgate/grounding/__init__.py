"""The word matcher for tiny models: which tool a request needs and which of its words are the arguments.

    wording    words, stems, Chinese terms, and whether a value stands in a text
    numerals   numbers in digits and in words, rows of them, arithmetic
    extract    quoted texts, dates, names, phrases, and rows of them
    matching   which of them belongs to which parameter, by the words around it
    slots      each argument's schema, narrowed to what the request offers for it
    choosers   the tool that a request needs, by words
    routing    a request in several parts, and the call that each needs
    answers    a small model's answer, checked against the results it is made from

Law: everything offered as a value stands in the request, and the tool's own schema takes it.
(tests/test_grounding_laws.py::test_every_offered_value_is_valid_under_the_tools_own_schema)

Only `protocols` imports this package, in one line, for `routed`; and `run` its `ungrounded`, for the tools that are
declared `grounded`. Models that choose tools well need nothing of it.
"""

from __future__ import annotations

from callgate.grounding.answers import MAX_SHOWN, CheckedAnswer
from callgate.grounding.choosers import Ranked, rank
from callgate.grounding.routing import NONE_BELOW, Need, next_need, plan
from callgate.grounding.slots import narrow, ungrounded

__all__ = [
    "MAX_SHOWN",
    "NONE_BELOW",
    "CheckedAnswer",
    "Need",
    "Ranked",
    "narrow",
    "next_need",
    "plan",
    "rank",
    "ungrounded",
]
