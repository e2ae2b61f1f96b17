"""What became of one case under one protocol, and the file that holds outcomes.

Law: a line is an outcome; a line that was cut off by a crash is not, and its case is asked again.
(tests/test_evals.py::test_it_goes_on_where_it_was_stopped)
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True, frozen=True)
class Outcome:
    """One case, asked under one protocol."""

    model: str
    protocol: str
    group: str
    case: str
    wants_call: bool
    called: bool
    parses: bool
    """The last answer was readable: a whole call, or text."""
    valid: bool
    """Every call named a listed tool and its arguments fitted the schema, as sent or after coercion."""
    right_tool: bool
    right: bool
    """The calls are those that were wanted, or there was none where none was wanted."""
    retries: int
    input: int
    output: int
    seconds: float
    cpu: float
    """Seconds of processor time in this process: all of the work of an embedded model, little for a server."""
    wrong: str | None = None
    """What was wrong, in words."""
    chooser: str | None = None
    confidence: float | None = None
    error: str | None = None
    calls: Sequence[dict[str, Any]] = field(default=())
    kept: bool = True
    """The first answer had the form that was asked for: it needed no repair, no retry and no other protocol."""

    words: bool | None = None
    """The word matcher alone would have been right, without any model; None: not counted."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is the outcome of."""
        return (self.model, self.protocol, self.group, self.case)


def dump(outcome: Outcome) -> str:
    """One line."""
    return json.dumps(dataclasses.asdict(outcome), ensure_ascii=False) + "\n"


def load_outcomes(path: Path) -> list[Outcome]:
    """All outcomes of a file, the last one of each case; a file that is not there has none."""
    if not path.exists():
        return []
    known = {f.name for f in dataclasses.fields(Outcome)}
    found: dict[tuple[str, str, str, str], Outcome] = {}
    for line in path.read_text("utf-8").split("\n"):
        try:
            row = json.loads(line)
            outcome = Outcome(**{k: v for k, v in row.items() if k in known})
        except (ValueError, TypeError, AttributeError):
            continue
        found[outcome.key] = outcome
    return list(found.values())
