"""The numbers of a request: in digits, in rows, and as arithmetic; those in words are in `spelt`.

Law: every number found stands in the request, in digits or in words; none is worked out from what a word implies.
(tests/test_grounding_laws.py::test_no_number_is_made_up)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from callgate.grounding.dates import DATE
from callgate.grounding.spelt import Number, chinese, english
from callgate.grounding.wording import MAX_TEXT

MAX_EXPRESSION = 1000
"""Characters of a request in which arithmetic is looked for."""
MAX_NUMBERS = 40
"""Numbers of a request that are matched to parameters; a longer row is a list."""

_NUMBER = re.compile(
    r"(?<![^\W\u4e00-\u9fff])(?<![.^])(?P<sign>[-−+])?(?P<money>[$€£¥]\s?)?(?P<num>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?P<exp>[eE][-+]?\d+)?(?P<suffix>\s?(?:%|percent\b|million\b|billion\b|thousand\b|hundred\b|[kKM](?![A-Za-z]))|"
    r"(?:st|nd|rd|th)\b|[万亿千百])?"
)
_SCALE: dict[str, float] = {
    "%": 0.01, "percent": 0.01, "million": 1e6, "billion": 1e9, "thousand": 1e3, "hundred": 100, "k": 1e3, "K": 1e3,
    "M": 1e6, "万": 1e4, "亿": 1e8, "千": 1e3, "百": 100,
}  # fmt: skip
_COUNTABLE = re.compile(
    r"\s*(?:dollar|usd|euro|eur\b|gbp|pound|people|person|user|follower|view|subscriber|step|mile|employee|resident|item)",
    re.IGNORECASE,
)
"""What thousands are counted in; behind other words, K is kelvin and M is molar or metres."""
_MONEY = re.compile(
    r"\b(?:budget|salary|income|price|cost|loan|revenue|mortgage|invest\w*|worth|population|principal)\b", re.IGNORECASE
)


def numbers(text: str) -> list[Number]:
    """The numbers in the order in which they stand, digits and words."""
    text = _BRACKETS.sub(lambda m: m.group().replace(",", ";"), text[:MAX_TEXT])  # no thousands inside a list
    days = [(m.start(), m.end()) for m in DATE.finditer(text)]
    found = [_digits(match, text) for match in _NUMBER.finditer(text)]
    found = [replace(n, in_date=any(s <= n.start < e for s, e in days)) for n in found]
    spelt = [n for n in (*english(text), *chinese(text)) if not any(o.start <= n.start < o.end for o in found)]
    return sorted([*found, *spelt], key=lambda n: n.start)


def _digits(match: re.Match[str], text: str) -> Number:
    digits = match["num"].replace(",", "") + (match["exp"] or "")
    value = _tidy(float(digits)) if "." in digits or match["exp"] else int(digits)
    before = text[match.start() - 1 : match.start()]
    if match["sign"] in ("-", "−") and not before.isalnum() and before != ")":
        value = -value
    elif "." in digits and re.match(r"\s?°?\s?[WS]\b", text[match.end() :]):
        value = -value  # a longitude west, a latitude south
    suffix = match["suffix"] or ""
    scale = _SCALE.get(suffix.strip())
    if scale is None:
        return Number(value, match.start(), match.end(), ordinal=suffix in ("st", "nd", "rd", "th"))
    scaled = _tidy(round(value * scale, 9))
    if scale == 0.01:
        return Number(value, match.start(), match.end(), scaled, percent=True)
    if suffix.strip() in ("K", "M") and not _counts(match, text):
        return Number(value, match.start(), match.end())
    return Number(scaled, match.start(), match.end(), value)


def _counts(match: re.Match[str], text: str) -> bool:
    """Whether a capital K or M is a thousand or a million: of money, or before what is counted. 298K is a heat."""
    if match["money"] or _COUNTABLE.match(text, match.end()):
        return True
    return not match["suffix"].startswith(" ") and _MONEY.search(text) is not None


def _tidy(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


# --- arithmetic ---------------------------------------------------------------------------------------------------

_OPERATIONS = (
    (r"\bto the power of\b|\braised to\b", "^"),
    (r"\b(?:multiplied by|times|multiply)\b|[×·]|乘以|乘", "*"),
    (r"\b(?:divided by|over)\b|÷|除以", "/"),
    (r"\b(?:plus|added to|and add)\b|加上|加", "+"),
    (r"\b(?:minus|less|subtract)\b|[−–]|减去|减", "-"),
    (r"\bsquared\b|的平方", "^2"),
    (r"\bcubed\b", "^3"),
    (r"\b(?:modulo|mod)\b", "%"),
)
_SHAPES = (
    (r"(\d[\d.]*)\s*(?:%|percent)\s+of\s+(?:the\s+)?[$€£]?(\d[\d.]*)", r"\1 / 100 * \2"),
    (r"(?:the\s+)?(?:square\s+root|sqrt)\s+of\s+(\d[\d.]*)", r"sqrt(\1)"),
    (r"(\d[\d.]*)\s*的平方根", r"sqrt(\1)"),
    (r"\b(?:sum of|add)\s+(\d[\d.]*)\s+(?:and|to)\s+(\d[\d.]*)", r"\1 + \2"),
    (r"\bproduct of\s+(\d[\d.]*)\s+and\s+(\d[\d.]*)", r"\1 * \2"),
    (r"\bdivide\s+(\d[\d.]*)\s+by\s+", r"\1 / "),
    (r"\bmultiply\s+(\d[\d.]*)\s+(?:by|with|and)\s+", r"\1 * "),
    (r"\bsubtract\s+(\d[\d.]*)\s+from\s+(\d[\d.]*)", r"\2 - \1"),
)
"""Forms in which the operation stands before its operands, or in their reverse order."""
_ARITHMETIC = re.compile(r"(?:sqrt\(|[-(])*\s*\d[\d.]*(?:\s*(?:\^|\*\*|[-+*/%()])\s*|\s*sqrt\(|\d[\d.]*)*")


@lru_cache(maxsize=256)
def expression(text: str) -> str | None:
    """The arithmetic that a request asks for, as an expression: "15% of 80" is "15 / 100 * 80"; None: there is none."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text[:MAX_EXPRESSION].split()))
    spelt = [n for n in (*english(text), *chinese(text)) if not n.ordinal]
    for number in sorted(spelt, key=lambda n: -n.start):
        text = text[: number.start] + str(number.value) + text[number.end :]
    for pattern, written in _SHAPES:
        text = re.sub(pattern, written, text, flags=re.IGNORECASE)
    for pattern, sign in _OPERATIONS:
        text = re.sub(rf"\s*(?:{pattern})", f" {sign} ", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=\d)", " * ", text)
    found = [m.group().strip(" .,") for m in _ARITHMETIC.finditer(text)]
    found = [f for f in found if re.search(r"\d\s*(?:\*\*|[-+*/%^])\s*[\d(s]|sqrt\(", f)]
    best = max(found, key=len, default=None)
    if best is None or re.fullmatch(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}/\d{1,2}/\d{2,4}", best):
        return None
    return re.sub(r"\s+", " ", best + ")" * (best.count("(") - best.count(")"))).strip(" +*/%^-")


# --- rows of numbers ----------------------------------------------------------------------------------------------

_BRACKETS = re.compile(r"[\[(]([^\[\]()\n]{1,400})[\])]")
_UNIT = r"(?:\s?(?!and\b|or\b)[a-zA-Z°]{1,12})?"
_RUN = re.compile(
    rf"(?<![\w.])[-−]?\d[\d.]*%?{_UNIT}(?:\s*,\s*(?:and\s+)?[-−]?\d[\d.]*%?{_UNIT}|\s+and\s+[-−]?\d[\d.]*)+"
)


def number_lists(text: str) -> list[list[float | int]]:
    """Lists of numbers: in brackets, or in a row with commas and "and"."""
    out: list[list[float | int]] = []
    text = text[:MAX_TEXT]
    spots = [m for m in _BRACKETS.finditer(text) if _only_numbers(m.group(1))]
    taken = [(m.start(), m.end()) for m in spots]
    spots += [m for m in _RUN.finditer(text) if not any(s <= m.start() < e for s, e in taken)]
    for match in sorted(spots, key=lambda m: m.start()):
        values = [n.value for n in numbers(match.group().strip("[]()").replace(",", ";"))]
        if values and values not in out:
            out.append(values)
    return out


def _only_numbers(text: str) -> bool:
    return all(re.fullmatch(r"\s*[-−+]?[\d.]+(?:[eE][-+]?\d+)?\s*", part) for part in text.split(","))


def wants_expression(name: str, about: Mapping[str, object]) -> bool:
    """Whether a parameter takes an arithmetic expression."""
    words = f"{name} {about.get('description', '')}".lower()
    return "expression" in words or "formula" in words or "算式" in words or "表达式" in words
