"""Evaluations: how often a model's calls are right, under each protocol, with what it cost and how sure the figure is.

Law: an outcome is written down as soon as it is known, and a case with an outcome is not asked again: an evaluation
goes on where it was stopped, and its report is made from what is written.
(tests/test_evals.py::test_it_goes_on_where_it_was_stopped)

To add a data set: a function that makes `Case`s, and its name in the command `callgate eval`.
"""

from __future__ import annotations

from callgate.evals._cases import Case, dump_jsonl, load_jsonl
from callgate.evals._from_ledger import from_ledger
from callgate.evals._outcomes import Outcome, load_outcomes
from callgate.evals._report import compare, html, markdown, summary
from callgate.evals._run import Plan, evaluate
from callgate.evals.bfcl import CATEGORIES

__all__ = [
    "CATEGORIES",
    "Case",
    "Outcome",
    "Plan",
    "compare",
    "dump_jsonl",
    "evaluate",
    "from_ledger",
    "html",
    "load_jsonl",
    "load_outcomes",
    "markdown",
    "summary",
]
