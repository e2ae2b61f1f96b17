"""What a check of a prompt or an answer may say, beside nothing: that accepts the text.

Law: nobody's mistake accepts anything; only None does, and a check that fails refuses.
(tests/test_agent_checks.py::test_a_check_that_fails_refuses)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["AskAgain", "Change", "Decision", "Refuse"]


@dataclass(slots=True, frozen=True)
class Change:
    """This text takes the place of the one that was checked."""

    text: str


@dataclass(slots=True, frozen=True)
class Refuse:
    """The run ends as `refused`, with this reason as its `error`; the model is not told."""

    reason: str


@dataclass(slots=True, frozen=True)
class AskAgain:
    """The model is told the reason and asked for another answer, `retries` times; then the run ends as `refused`. Of a
    prompt there is nobody to ask, so it is refused."""

    reason: str


Decision: TypeAlias = Change | Refuse | AskAgain | None
"""None accepts the text as it is."""
