"""Dates in a request, as English and numbers write them.

Law: every date found stands in the request; "tomorrow" is none.
(tests/test_grounding_laws.py::test_no_text_is_made_up)
"""

from __future__ import annotations

import re

DATE = re.compile(
    r"\b\d{4}[-/]\d{1,2}[-/]\d{1,2}\b|\b\d{1,2}/\d{1,2}/\d{2,4}\b|"
    r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s\d{1,2}(?:st|nd|rd|th)?(?:,?\s\d{4})?\b|"
    r"\b\d{1,2}(?:st|nd|rd|th)?(?:\sof)?\s(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*(?:,?\s\d{4})?\b"
)
_MONTHS = {
    m: i for i, m in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}


def date_parts(text: str) -> tuple[int, int, int] | None:
    """Year, month and day of a full date; None if it is none."""
    if match := re.fullmatch(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})", text):
        return int(match[1]), int(match[2]), int(match[3])
    if match := re.fullmatch(r"([A-Za-z]{3})[a-z]*\.?\s(\d{1,2})(?:st|nd|rd|th)?,?\s(\d{4})", text):
        month, day = _MONTHS.get(match[1].lower()), int(match[2])
    elif match := re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)?(?:\sof)?\s([A-Za-z]{3})[a-z]*,?\s(\d{4})", text):
        month, day = _MONTHS.get(match[2].lower()), int(match[1])
    else:
        return None
    return (int(match[3]), month, day) if month else None
