"""Arithmetic: an exact evaluator of expressions, by precedence climbing; nothing is ever handed to Python.

Law: whole numbers and fractions stay exact until they are shown, and no expression can cost more than `MAX_BITS`.
    (tests/test_demo_tools.py::test_arithmetic_never_fails_in_another_way)

Theory of operation. `_Expression` holds the tokens and a position. `value(n)` reads one operand and then every operator
that binds at least as tightly as n, in this order: + and -, then * / // %, then a sign, then ^ (to the right), then the
degree of brackets and functions. Numbers are `Fraction`; only roots and logarithms leave it, through a float.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from callgate.errors import NoEffect
from callgate.tools import tool

MAX_LENGTH = 500
MAX_DEPTH = 50
_DIGITS = Context(prec=12, Emin=-10_000, Emax=10_000)
MAX_BITS = 8192  # of a numerator or denominator: 2,466 digits, well under a millisecond

_TOKEN = re.compile(r"\s*(?:(\d+(?:_\d+)*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?|\.\d+)|([A-Za-z]+)|(\*\*|//|[-+*/%^(),]))")
_SAME = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")"})


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator == 1:
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if size * abs(exponent.numerator) > MAX_BITS and abs(base) != 1 and base:
            raise NoEffect(f"the result of ^ has more than {MAX_BITS * 3 // 10} digits")
        return base**exponent.numerator
    if base < 0:
        raise NoEffect("the root of a negative number is not a real number")
    if exponent == Fraction(1, 2):  # exact where it can be
        top, bottom = math.isqrt(base.numerator), math.isqrt(base.denominator)
        if top * top == base.numerator and bottom * bottom == base.denominator:
            return Fraction(top, bottom)
    return Fraction(float(base) ** float(exponent))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise NoEffect(f"a number on the way has more than {MAX_BITS * 3 // 10} digits")
    return value


def _round(value: Fraction, digits: Fraction = Fraction(0)) -> Fraction:
    if digits.denominator != 1 or not 0 <= digits <= 30:
        raise NoEffect("round: the number of digits must be a whole number from 0 to 30")
    return Fraction(round(value, int(digits)))


_BINARY: dict[str, tuple[int, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": (1, operator.add),
    "-": (1, operator.sub),
    "*": (2, operator.mul),
    "/": (2, operator.truediv),
    "//": (2, lambda a, b: Fraction(a // b)),
    "%": (2, operator.mod),
    "^": (4, _power),
    "**": (4, _power),
}
_SIGN = 3
_CONSTANTS = {"pi": Fraction(math.pi), "e": Fraction(math.e)}
_FUNCTIONS: dict[str, tuple[range, Callable[..., Fraction]]] = {  # how many arguments, and what to do with them
    "abs": (range(1, 2), Fraction.__abs__),
    "ceil": (range(1, 2), lambda x: Fraction(math.ceil(x))),
    "floor": (range(1, 2), lambda x: Fraction(math.floor(x))),
    "log": (range(1, 3), lambda x, base=Fraction(math.e): Fraction(math.log(x, base))),
    "max": (range(1, 50), max),
    "min": (range(1, 50), min),
    "round": (range(1, 3), _round),
    "sqrt": (range(1, 2), lambda x: _power(x, Fraction(1, 2))),
}


@tool(
    effect="read",
    timeout=5,
    examples=[
        {"request": "What is 12 * 9?", "arguments": {"expression": "12 * 9"}},
        {"request": "Calculate the square root of (8 - 2) / 4.", "arguments": {"expression": "sqrt((8 - 2) / 4)"}},
    ],
)
def calculate(expression: Annotated[str, Field(max_length=60)]) -> str:
    """Works out an arithmetic expression exactly.

    Args:
        expression: For example "17 * 23", "2^10", "(3 + 4) / 5" or "sqrt(2)".
    """
    return show(evaluate(expression))


def evaluate(expression: str) -> Fraction:
    """The value. Raises NoEffect, saying where and why, for what is no expression."""
    try:
        return _Expression(expression).whole()
    except ZeroDivisionError as error:
        raise NoEffect("division by zero") from error
    except (ValueError, OverflowError) as error:
        raise NoEffect(f"{expression!r} cannot be worked out: {error}") from error


def show(value: Fraction) -> str:
    """A number as people write it: whole if it is whole, else with up to 12 digits, marked if they are not all."""
    if value.denominator == 1:
        return str(value.numerator)
    number = _DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))
    text = f"{number:.12g}" if -7 < number.adjusted() < 15 else f"{number:e}"
    return text if Fraction(number) == value else f"about {text}"


class _Expression:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise NoEffect(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are worked out")
        text = text.translate(_SAME).strip().rstrip("=").rstrip()
        self._tokens: list[str] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise NoEffect(f"{text[at:].strip()[:20]!r} in the expression is no number, operator or bracket")
            self._tokens.append(match.group().strip())
            at = match.end()
        self._next = 0
        self._depth = 0

    def whole(self) -> Fraction:
        """The value of all of it."""
        value = self.value(0)
        if self._peek():
            raise NoEffect(f"an operator is missing before {self._peek()!r}")
        return value

    def value(self, binding: int) -> Fraction:
        """An operand, and the operators after it that bind at least as tightly."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NoEffect(f"the expression is nested more than {MAX_DEPTH} deep")
        left = self._operand()
        while (entry := _BINARY.get(self._peek())) and entry[0] >= binding:
            self._next += 1
            level, work = entry
            left = _bounded(work(left, self.value(level if level == 4 else level + 1)))
        self._depth -= 1
        return left

    def _operand(self) -> Fraction:
        word = self._peek()
        self._next += 1
        if word in {"-", "+"}:
            value = self.value(_SIGN)
            return -value if word == "-" else value
        if word == "(":
            value = self.value(0)
            self._expect(")")
            return value
        if word[:1].isdigit() or word[:1] == ".":
            return _bounded(Fraction(word))
        if word.lower() in _FUNCTIONS and self._peek() == "(":
            counts, work = _FUNCTIONS[word.lower()]
            arguments = self._arguments()
            if len(arguments) not in counts:
                raise NoEffect(f"{word}: {len(arguments)} arguments; it takes {counts.start} to {counts.stop - 1}")
            return _bounded(work(*arguments))
        if word.lower() in _CONSTANTS:
            return _CONSTANTS[word.lower()]
        known = ", ".join(sorted([*_FUNCTIONS, *_CONSTANTS]))
        raise NoEffect(
            f"a number is missing before {word!r}; named values and functions are {known}"
            if word
            else "the expression ends where a number is missing"
        )

    def _arguments(self) -> list[Fraction]:
        self._expect("(")
        values = [self.value(0)]
        while self._peek() == ",":
            self._next += 1
            values.append(self.value(0))
        self._expect(")")
        return values

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise NoEffect(f"{token!r} is missing before {self._peek() or 'the end'!r}")
        self._next += 1

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""
