"""Ranges of numbers as languages of their decimal texts.

Law: the decimal texts of the language are the numbers within the bounds, and no others.
(tests/test_protocols_grammar.py::test_the_rules_of_a_range_write_the_numbers_within_it_and_no_others)

Texts are canonical: no leading zeros, no exponent, no minus zero, and so many digits behind the point at the most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from callgate.protocols._language import (
    NEVER,
    Language,
    Multiple,
    both,
    chars,
    either,
    literal,
    negated,
    optional,
    sequence,
    then,
    times,
)

DIGITS = 15
"""Digits of a number, where no bound has more: beyond them a double no longer tells neighbours apart."""
PLACES = 6
"""Digits behind the point, where no bound or step has more."""
MAX_MULTIPLES = 200
"""Multiples that are written out, where a rule for all of them would be too large."""
MAX_DIGITS = 40
"""A bound with more digits than this is not written out."""

_DIGIT = chars((48, 57))
_POINT = literal(".")


@dataclass(slots=True, frozen=True)
class Bound:
    """A bound, and whether the number itself is out."""

    value: Decimal
    open: bool = False


def language_of_number(schema: Mapping[str, object], *, whole: bool) -> Language:
    """The decimal texts of the numbers that a schema takes; `whole`: integers only."""
    low, high = _bound(schema, "inimum", max), _bound(schema, "aximum", min)
    step = _decimal(schema.get("multipleOf"))
    parts = [_shape(low, high, step, whole=whole), _between(low, high)]
    if step is not None and step > 0:
        places = max(0, -_exponent(step))
        parts.append(Multiple(int(step.scaleb(places)), places))
    return both(parts)


def _decimal(value: object) -> Decimal | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return Decimal(repr(value)) if abs(value) < 10**MAX_DIGITS else None


def _exponent(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def _bound(schema: Mapping[str, object], name: str, tightest: type | object) -> Bound | None:
    """The tighter of the two bounds on one side. Draft 4 writes `exclusiveMinimum` as a flag beside `minimum`."""
    closed, beyond = _decimal(schema.get(f"m{name}")), _decimal(schema.get(f"exclusiveM{name}"))
    found = [
        Bound(v, out) for v, out in ((closed, schema.get(f"exclusiveM{name}") is True), (beyond, True)) if v is not None
    ]
    if not found:
        return None
    sign = 1 if tightest is max else -1
    return max(found, key=lambda bound: (sign * bound.value, bound.open))


def _shape(low: Bound | None, high: Bound | None, step: Decimal | None, *, whole: bool) -> Language:
    """Canonical decimals, with as many digits as the bounds and the step need."""
    known = [bound.value for bound in (low, high) if bound is not None]
    digits = max([DIGITS, *(len(str(int(abs(v)))) for v in known)])
    places = max([PLACES, *(-_exponent(v) for v in (*known, *([step] if step else [])))])
    integer = either([literal("0"), then(chars((49, 57)), times(_DIGIT, 0, digits - 1))])
    # The bound that is nearer to zero tells how many digits a number must have before its point.
    nearest = [abs(b.value) for b, sign in ((low, 1), (high, -1)) if b is not None and sign * b.value > 0]
    left = max([DIGITS - min(places, DIGITS - 1), *(len(str(int(value))) for value in nearest)])
    small = either([literal("0"), then(chars((49, 57)), times(_DIGIT, 0, left - 1))])
    number = integer if whole else either([integer, sequence([small, _POINT, times(_DIGIT, 1, places)])])
    zero = then(literal("0"), optional(then(_POINT, times(literal("0"), 1, None))))
    return either([number, then(literal("-"), both([number, negated(zero)]))])


def _between(low: Bound | None, high: Bound | None) -> Language:
    """Decimals within the bounds, signs included."""
    above = negated(NEVER) if low is None else _signed(low, at_least=True)
    below = negated(NEVER) if high is None else _signed(high, at_least=False)
    return both([above, below])


def _signed(bound: Bound, *, at_least: bool) -> Language:
    """The decimals on one side of a bound."""
    minus = literal("-")
    plus_numbers = then(_DIGIT, negated(NEVER))
    size = Bound(abs(bound.value), bound.open)
    if bound.value < 0:
        # Behind a minus the order is the other way round.
        behind = then(minus, _unsigned(size, at_least=not at_least))
        return either([behind, plus_numbers]) if at_least else behind
    own = _unsigned(size, at_least=at_least)
    return own if at_least else either([own, then(minus, negated(NEVER))])


def _unsigned(bound: Bound, *, at_least: bool) -> Language:
    """The decimals without a sign that are at least, or at most, a bound."""
    whole, _, fraction = f"{bound.value.normalize():f}".partition(".")
    free = optional(then(_POINT, times(_DIGIT, 1, None)))
    digits = _longer(whole) if at_least else _shorter(whole)
    beyond = [then(part, free) for part in (digits, *_differing(whole, up=at_least))]
    same = then(literal(whole), _fraction(fraction, at_least=at_least))
    side = either([*beyond, same])
    return both([side, negated(_equal(whole, fraction))]) if bound.open else side


def _longer(whole: str) -> Language:
    return then(chars((49, 57)), times(_DIGIT, len(whole), None))


def _shorter(whole: str) -> Language:
    """Integers with fewer digits."""
    if len(whole) == 1:
        return NEVER
    return either([literal("0"), then(chars((49, 57)), times(_DIGIT, 0, len(whole) - 2))])


def _differing(digits: str, *, up: bool) -> list[Language]:
    """Digits of the same number that differ at one place, upwards or downwards, and are free behind it."""
    out: list[Language] = []
    for at, digit in enumerate(digits):
        low, high = (ord(digit) + 1, ord("9")) if up else (ord("0"), ord(digit) - 1)
        if low <= high:
            out.append(
                sequence(
                    [
                        literal(digits[:at]),
                        chars((low, high)),
                        times(_DIGIT, len(digits) - at - 1, len(digits) - at - 1),
                    ]
                )
            )
    return out


def _fraction(fraction: str, *, at_least: bool) -> Language:
    """What may stand behind the same integer part."""
    rest = times(_DIGIT, 0, None)
    if at_least:
        if not fraction:
            return optional(then(_POINT, times(_DIGIT, 1, None)))
        behind = [*_cut(fraction, up=True), then(literal(fraction), rest)]
        return then(_POINT, either(behind))
    zeros = times(literal("0"), 0, None)
    if not fraction:
        return optional(sequence([_POINT, literal("0"), zeros]))
    # Fewer digits are less: .2 is not more than .25
    shorter = [literal(fraction[:end]) for end in range(1, len(fraction))]
    behind = [*_cut(fraction, up=False), *shorter, then(literal(fraction), zeros)]
    return optional(then(_POINT, either(behind)))


def _cut(fraction: str, *, up: bool) -> list[Language]:
    """Fractions that differ at one place, upwards or downwards."""
    out: list[Language] = []
    for at, digit in enumerate(fraction):
        low, high = (ord(digit) + 1, ord("9")) if up else (ord("0"), ord(digit) - 1)
        if low <= high:
            out.append(sequence([literal(fraction[:at]), chars((low, high)), times(_DIGIT, 0, None)]))
    return out


def _equal(whole: str, fraction: str) -> Language:
    """The number itself, however many zeros are behind it."""
    zeros = times(literal("0"), 0, None)
    if fraction:
        return sequence([literal(whole), _POINT, literal(fraction), zeros])
    return then(literal(whole), optional(sequence([_POINT, literal("0"), zeros])))


def some_multiples(schema: Mapping[str, object]) -> list[str]:
    """The multiples within the bounds that are next to zero, or to the bound that is; none without a step."""
    step = _decimal(schema.get("multipleOf"))
    if not step:
        return []
    low, high = _bound(schema, "inimum", max), _bound(schema, "aximum", min)
    first = Decimal(0)
    if low is not None and low.value > 0:
        first = (low.value / step).to_integral_value(ROUND_CEILING)
    elif high is not None and high.value < 0:
        first = (high.value / step).to_integral_value(ROUND_FLOOR) - MAX_MULTIPLES + 1
    found = [(first + i) * step for i in range(MAX_MULTIPLES)]
    return [f"{value.normalize():f}" for value in found if _within(value, low, high)]


def _within(value: Decimal, low: Bound | None, high: Bound | None) -> bool:
    above = low is None or value > low.value or (value == low.value and not low.open)
    return above and (high is None or value < high.value or (value == high.value and not high.open))
