"""The arguments of a call so far, as Python values, while they are being written.

Law: what is shown is never wrong, only early. Every value is either the final one or, if it is still open, a
beginning of it, and each character is looked at once.
(tests/test_liveview.py::test_every_prefix_is_a_beginning_of_the_whole)

Theory of operation. The view is a JSON parser that stops wherever the text stops. It keeps a stack of the open objects
and arrays and puts each value where it belongs as soon as it is certain:

1. A string appears with its opening quote, as "", and grows; an object or array appears empty and grows.
2. A number or a word (true, false, null) appears when it has ended: 12 may yet become 123.
3. A key appears together with its value, never alone.
4. An escape that is cut (`\\`, `\\u00e`, the first half of a surrogate pair) waits for its rest: at most 11 characters.
5. Text that is no JSON, or nests too deep, stops the view: `stopped` says why, the value stays as it was.

Growing in place: the open string is taken out of its container, lengthened and put back. CPython lengthens a string
that nobody else holds where it lies, so a megabyte costs what it should: its characters, once. Whoever keeps the string
itself from one fragment to the next pays a copy each time.
"""

from __future__ import annotations

import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # it is there; the stubs leave it out
from typing import Any, Final

MAX_DEPTH: Final = 512
"""Open objects and arrays: far more than any schema, far fewer than printing the value may recurse."""
MAX_NUMBER: Final = 4300
"""Digits of a number: what Python turns into an int without being asked twice."""

# What may come next.
_VALUE, _FIRST_ITEM, _FIRST_KEY, _NEXT_KEY, _COLON, _AFTER, _END, _KEY, _STRING = range(9)
_EXPECTED: Final = {
    _VALUE: "a value",
    _FIRST_ITEM: "a value or ']'",
    _FIRST_KEY: "a key or '}'",
    _NEXT_KEY: "a key",
    _COLON: "':'",
    _AFTER: "',' or the end of what is open",
    _END: "nothing more",
    _KEY: "a key",
    _STRING: "a string",
}

_CLOSABLE: Final = (_FIRST_ITEM, _FIRST_KEY, _AFTER)

_WORDS: Final = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_BLANK: Final = re.compile(r"[ \t\n\r]*+")
_SCALAR: Final = re.compile(r"[-+.0-9A-Za-z]*+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][-+]?[0-9]++)?")
# A low half as far as it got, at the end of the text: then the high half before it must wait.
_CUT_LOW: Final = r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z"
_PIECES: Final = re.compile(
    r"(?:[^\"\\]++"
    r"|\\[\"\\/bfnrt]"
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?!" + _CUT_LOW + r"))"
    r")*+"
)
_CUT_ESCAPE: Final = re.compile(r"\\(?:u(?:[dD][89abAB][0-9a-fA-F]{2}" + _CUT_LOW + r"|[0-9a-fA-F]{0,3}))?\Z")


class LiveArguments:
    """The arguments of one call, fed with the fragments of its `CallDelta`s.

    >>> view = LiveArguments()
    >>> view.feed('{"city": "Par')
    >>> view.value
    {'city': 'Par'}
    """

    __slots__ = (
        "_box",
        "_expect",
        "_held",
        "_key",
        "_key_parts",
        "_place",
        "_plain",
        "_slot",
        "_stack",
        "complete",
        "stopped",
    )

    def __init__(self) -> None:
        self.complete = False
        """The text is a whole JSON value."""
        self.stopped: str | None = None
        """Why the view no longer follows the text; None: it does."""
        # The root has a container of its own, so that it is put, grown and closed like every value below it.
        self._box: dict[object, object] = {"": {}}
        self._place: Any = self._box  # the innermost open container, and the key of what is written in it
        self._key = ""
        self._slot: object = ""  # the key or index of the open string
        self._stack: list[tuple[object, str]] = []
        self._expect = _VALUE
        self._plain = False  # in a string value, with nothing held: most fragments end here
        self._held = ""  # a cut escape, or a number or word that goes on
        self._key_parts: list[str] = []

    @property
    def value(self) -> object:
        """The arguments so far, {} before anything came.

        It is the same object each time, and it grows as fragments come: copy what must not change.
        """
        return self._box[""]

    @property
    def path(self) -> tuple[str | int, ...]:
        """Where the value that is being written stands: ("items", 2, "text")."""
        places = [*self._stack[1:], (self._place, self._key)] if self._stack else []
        return tuple(len(place) - 1 if isinstance(place, list) else key for place, key in places)

    def feed(self, fragment: str) -> None:
        """Takes the next fragment of JSON text."""
        if self._plain:
            # A token of a long text has neither a quote nor a backslash: two searches in C instead of the parser.
            piece = fragment if '"' not in fragment and "\\" not in fragment else _decoded(fragment)
            if piece is not None:
                place, slot = self._place, self._slot
                text = place[slot]
                place[slot] = None  # now `text` is the only reference: += lengthens it where it lies
                text += piece
                place[slot] = text
                return
        if self.stopped:
            return
        text = self._held + fragment
        self._held = ""
        at = 0
        while at < len(text) and not self.stopped:
            at = self._read_string(text, at) if self._expect >= _KEY else self._read_token(text, at)
        self._plain = self._expect == _STRING and not self._held

    def _read_string(self, text: str, at: int) -> int:
        """A string as far as it goes; the index after what was read or held."""
        end = _PIECES.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty text too
        if end > at:
            piece = text[at:end]
            self._lengthen(scanstring(piece + '"', 0, False)[0] if "\\" in piece else piece)
        if end == len(text):
            return end
        if text[end] == '"':
            self._close_string()
            return end + 1
        if not _CUT_ESCAPE.match(text, end):
            return self._stop("an escape that JSON does not know")
        self._held = text[end:]  # rule 4
        return len(text)

    def _lengthen(self, piece: str) -> None:
        if self._expect == _KEY:
            self._key_parts.append(piece)
            return
        place, slot = self._place, self._slot
        text = place[slot]
        place[slot] = None  # as in feed
        text += piece
        place[slot] = text

    def _close_string(self) -> None:
        if self._expect == _KEY:
            self._key = "".join(self._key_parts)
            self._key_parts.clear()
            self._expect = _COLON
        else:
            self._value_ended()

    def _read_token(self, text: str, at: int) -> int:
        """One sign, number or word outside strings; the index after it."""
        at = _BLANK.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        sign, expect = text[at], self._expect
        in_list = isinstance(self._place, list)
        if sign == '"' and expect <= _NEXT_KEY:
            self._open_string()
        elif sign in "{[" and expect <= _FIRST_ITEM:
            self._open({} if sign == "{" else [])
        elif sign == "," and expect == _AFTER:
            self._expect = _VALUE if in_list else _NEXT_KEY
        elif sign == ":" and expect == _COLON:
            self._expect = _VALUE
        elif expect in _CLOSABLE and sign == "}]"[in_list]:
            self._close()
        elif expect <= _FIRST_ITEM:
            return self._read_scalar(text, at)
        else:
            return self._stop(f"{sign!r} where {_EXPECTED[expect]} was expected")
        return at + 1

    def _read_scalar(self, text: str, at: int) -> int:
        end = _SCALAR.match(text, at).end()  # type: ignore[union-attr]
        # Python refuses to read longer integers (CVE-2020-10735), and they cost the square of their length.
        if end - at > MAX_NUMBER:
            return self._stop(f"a number of more than {MAX_NUMBER} characters (MAX_NUMBER)")
        if end == len(text):
            self._held = text[at:]  # rule 2
            return end
        word = text[at:end]
        if number := _NUMBER.fullmatch(word):
            # With a fraction or an exponent it is a float, without one an exact integer: what the finished arguments
            # will be.
            self._put(float(word) if number[1] or number[2] else int(word))
        elif word in _WORDS:
            self._put(_WORDS[word])
        else:
            return self._stop(f"{word or text[at]!r} where {_EXPECTED[self._expect]} was expected")
        self._value_ended()
        return end

    def _open_string(self) -> None:
        if self._expect in (_FIRST_KEY, _NEXT_KEY):
            self._expect = _KEY
            return
        self._put("")
        self._slot = len(self._place) - 1 if isinstance(self._place, list) else self._key
        self._expect = _STRING

    def _open(self, container: dict[str, object] | list[object]) -> None:
        if len(self._stack) == MAX_DEPTH:
            self._stop(f"nested deeper than {MAX_DEPTH} levels (MAX_DEPTH)")
            return
        self._put(container)
        self._stack.append((self._place, self._key))
        self._place = container
        self._expect = _FIRST_KEY if isinstance(container, dict) else _FIRST_ITEM

    def _close(self) -> None:
        self._place, self._key = self._stack.pop()
        self._value_ended()

    def _put(self, value: object) -> None:
        if isinstance(self._place, list):
            self._place.append(value)
        else:
            self._place[self._key] = value

    def _value_ended(self) -> None:
        self.complete = not self._stack
        self._expect = _AFTER if self._stack else _END

    def _stop(self, why: str) -> int:
        self.stopped = why
        self._expect, self._held = _END, ""
        self._key_parts.clear()
        return 0


def _decoded(fragment: str) -> str | None:
    """What a fragment with escapes adds to a string, if the string neither ends in it nor is cut in an escape."""
    if "\\" not in fragment or fragment[-1] == "\\":
        return None
    try:
        piece, end = scanstring(fragment + '"', 0, False)
    except ValueError:
        return None
    return piece if end > len(fragment) and not "\ud800" <= piece[-1] <= "\udbff" else None
