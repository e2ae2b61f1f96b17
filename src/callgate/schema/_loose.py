"""Reads what models write where JSON was asked for, and only as far as it can be read in one way.

Every character of the text is structure, or space, or comment, or stands in the value; text that ends inside the object
is `CutOff`, whatever it looks like; anything that could mean two things is `Unreadable`.

Law: nothing is invented.
(tests/test_schema_laws.py::test_damaged_text_never_yields_words_that_were_not_written)

Theory of operation. One pass, one explicit stack (depth costs memory, never Python frames), three states: a value is
due, a key is due, or something ended and a comma or a closer is due. The liberties, each noted once:

 1. typographic and full-width quotes, colons, commas, brackets as structure; single quotes; keys without quotes;
 2. Python's literals, numbers like `.5` and `5.`; trailing commas; comments; raw control characters in strings;
 3. a backslash before a character that needs none stands for itself;
 4. a quote that is not followed by structure belongs to the string, if such quotes come in pairs;
 5. plain words where a value is due are a text; a word with signs or digits might be code, and is refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

MAX_DEPTH: Final = 128
"""Levels of nesting: deeper than any tool's arguments, far enough from the recursion limits of json and pydantic."""
KEY_LOOK: Final = 200
"""How far a quote looks ahead for the key that would prove it a closer; longer keys need a strict writer."""

_SPACE = re.compile(r"(?:[\s\ufeff\u200b]+|//[^\n]*|(?<![^\s,{\[])#[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])", re.ASCII)
_WORD = re.compile(r"[A-Za-z_$][\w$-]*")
_BARE = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)*(?![\w.(\[{'\"])")
_NOT_TEXT: Final = frozenset(["true", "false", "null", "none", "nil", "nan", "inf", "infinity", "undefined"])
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_WORDS: Final = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_COLONS: Final = ":："
_COMMAS: Final = ",，"
_OPENERS: Final = {"{": "{", "｛": "{", "[": "[", "［": "["}
_CLOSERS: Final = {"}": "{", "｝": "{", "]": "[", "］": "["}
_DOUBLE: Final = "“”„‟＂"
_SINGLE: Final = "‘’‚‛＇"
_QUOTES: Final = {'"': '"', "'": "'", **dict.fromkeys(_DOUBLE, _DOUBLE), **dict.fromkeys(_SINGLE, _SINGLE)}
_PLAIN: Final = {q: re.compile(rf"[^\\{''.join(ends)}]+") for q, ends in _QUOTES.items()}

_ANY_QUOTE = f"\"'{_DOUBLE}{_SINGLE}"
_GAP = r"[\s\ufeff\u200b]*"
_COMMENT = r"//|/\*|(?<=\s)\#"


def _key(opener: str, closer: str) -> str:
    """A key that is followed by a colon, or is too long or too cut off to tell."""
    inside = rf"(?:[^{closer}\\\n]|\\.)"
    return rf"{opener}(?:{inside}{{{KEY_LOOK}}}|{inside}{{0,{KEY_LOOK}}}(?:\Z|[{closer}]{_GAP}(?:\Z|[:：])))"


_KEY = (
    "(?:"
    + "|".join((_key('"', '"'), _key("'", "'"), _key(f"[{_DOUBLE}]", _DOUBLE), _key(f"[{_SINGLE}]", _SINGLE)))
    + ")"
)
_AFTER_KEY = re.compile(rf"{_GAP}(?:\Z|[:：])")
_IN_OBJECT = re.compile(
    rf"{_GAP}(?:\Z|[}}｝]|{_COMMENT}|[,，]{_GAP}(?:\Z|[}}｝]|{_COMMENT}|{_KEY}|[A-Za-z_$][\w$-]*{_GAP}[:：]))"
    rf"|[ \t\r]*\n{_GAP}{_KEY}"
)
_IN_ARRAY = re.compile(
    rf"{_GAP}(?:\Z|[\]］]|{_COMMENT}|[,，]{_GAP}(?:\Z|[\]］{{\[｛［{_ANY_QUOTE}]|{_COMMENT}|-?\d"
    r"|(?:true|false|null|True|False|None)\b))"
)
_NEW_KEY = re.compile(_KEY)
_NEXT_KEY = re.compile(rf"{_GAP}[,，]{_GAP}{_KEY}")
_CONTROL = re.compile(r"[\x00-\x1f]")
_PATH_LIKE = re.compile(r"[A-Za-z]:\\|\\\\")


class CutOff(Exception):
    """The text ends before its object does."""


class Unreadable(Exception):
    """The text cannot be read in exactly one way; the message says where and why."""


class Loose:
    """One reading of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.notes: dict[str, None] = {}
        self._stack: list[tuple[Any, str | None]] = []
        self._depth = 0
        self._in_object = False

    def read(self, start: int) -> object:
        """The value that begins at `start`; `pos` is then the place after it."""
        self.pos = start
        state = self._value(first=False)
        while state != "end":
            self._skip()
            if self.pos >= len(self.text):
                raise CutOff
            state = self._key(state) if state.startswith("key") else self._next(state)
        if self._depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH} levels (MAX_DEPTH)")
        return self._result

    def _next(self, state: str) -> str:
        return self._after() if state == "after" else self._value(first=state == "first")

    # --- states: each returns the next one ------------------------------------------------------------------------

    def _value(self, *, first: bool) -> str:
        char = self.text[self.pos]
        if char in _OPENERS:
            self._liberty(char not in "{[", "full-width brackets")
            return self._open(_OPENERS[char])
        if char in _QUOTES:
            return self._ended(self._string(char, key=False))
        if (first or self._comma) and _CLOSERS.get(char) == "[" and self._stack:
            self._liberty(not first, "a trailing comma")
            return self._close(char)
        number = _NUMBER.match(self.text, self.pos)
        if number:
            self.pos = number.end()
            return self._ended(self._number(number.group()))
        return self._word()

    def _word(self) -> str:
        """A value without quotes that is no number: a literal, or plain words (liberties 2 and 5)."""
        word = _WORD.match(self.text, self.pos)
        if word and word.group() in _WORDS:
            self.pos = word.end()
            self._liberty(word.group()[0] in "TFN", "Python literals")
            return self._ended(_WORDS[word.group()])
        bare = _BARE.match(self.text, self.pos)
        if bare and bare.group().casefold() not in _NOT_TEXT and self._closes(bare.end(), False):
            self.pos = bare.end()
            self._liberty(True, "text without quotes")
            return self._ended(bare.group())
        end = word.end() if word else self.pos + 1
        if end == len(self.text) and (word or self.text[self.pos] in "-.+"):
            raise CutOff
        raise self._unexpected("a value")

    def _key(self, state: str) -> str:
        char = self.text[self.pos]
        if _CLOSERS.get(char) == "{":
            self._liberty(state == "key after comma", "a trailing comma")
            return self._close(char)
        if char in _QUOTES:
            key = self._string(char, key=True)
        else:
            word = _WORD.match(self.text, self.pos)
            if word is None:
                raise self._unexpected("a key")
            self.pos = word.end()
            self._liberty(True, "keys without quotes")
            key = word.group()
        self._skip()
        if self.pos >= len(self.text):
            raise CutOff
        if self.text[self.pos] not in _COLONS:
            raise self._unexpected("a colon")
        self._liberty(self.text[self.pos] == "：", "full-width punctuation")
        self.pos += 1
        self._stack[-1] = (self._stack[-1][0], key)
        self._comma = False
        return "value"

    def _after(self) -> str:
        char = self.text[self.pos]
        if char in _COMMAS:
            self._liberty(char == "，", "full-width punctuation")
            self.pos += 1
            self._comma = True
            return "key after comma" if self._in_object else "value"
        if char in _CLOSERS:
            return self._close(char)
        if self._in_object and _NEW_KEY.match(self.text, self.pos):
            self._liberty(True, "a missing comma")
            return "key"
        raise self._unexpected("a comma or a closing bracket")

    # --- what the states do ---------------------------------------------------------------------------------------

    _comma = False
    _result: object = None

    def _open(self, kind: str) -> str:
        self.pos += 1
        self._in_object = kind == "{"
        self._stack.append(({} if self._in_object else [], None))
        self._depth = max(self._depth, len(self._stack))
        self._comma = False
        return "key" if self._in_object else "first"

    def _close(self, char: str) -> str:
        if (_CLOSERS[char] == "{") != self._in_object:
            raise self._unexpected("the other closing bracket")
        self.pos += 1
        self._liberty(char not in "}]", "full-width brackets")
        container, _ = self._stack.pop()
        self._in_object = bool(self._stack) and isinstance(self._stack[-1][0], dict)
        return self._ended(container)

    def _ended(self, value: object) -> str:
        if not self._stack:
            self._result = value
            return "end"
        container, key = self._stack[-1]
        if key is None:
            container.append(value)
        else:
            if key in container:
                self.notes[f"duplicate key {key!r}: the last one counts"] = None
            container[key] = value
        return "after"

    def _number(self, text: str) -> int | float:
        try:
            value: int | float = int(text) if re.fullmatch(r"-?\d+", text, re.ASCII) else float(text)
        except ValueError as error:
            raise Unreadable(f"a number of {len(text)} digits: {error}") from None
        if value - value != 0:
            raise Unreadable(f"{text[:40]} is no finite number")
        self._liberty(text.lstrip("-")[0] == "." or re.search(r"\.(?!\d)", text) is not None, "a number without digits")
        return value

    def _string(self, opener: str, *, key: bool) -> str:
        text, plain = self.text, _PLAIN[opener]
        self._liberty(opener != '"', "quotes that are not JSON's")
        start = self.pos
        if text.startswith(('"""', "'''"), start):
            raise Unreadable(f"three quotes at character {start}: JSON's strings have one")
        out: list[str] = []
        inner, kept, pos = 0, False, start + 1
        while True:
            run = plain.match(text, pos)
            if run:
                out.append(run.group())
                pos = run.end()
            if pos >= len(text):
                raise self._endless(start, inner)
            char = text[pos]
            if char == "\\":
                piece, pos, lone = self._escape(pos)
                self._check_escaped(piece, start, pos, key)
                out.append(piece)
                kept = kept or lone
                continue
            pos += 1
            if self._closes(pos, key):
                break
            if _AFTER_KEY.match(text, pos):
                raise Unreadable(f"unescaped quotes in the string at character {start} that look like a key's")
            out.append(char)
            inner += not self._is_apostrophe(char, pos)
        if inner % 2:
            raise Unreadable(f"unescaped quotes in the string at character {start}: where it ends is unclear")
        self.pos = pos
        value = "".join(out)
        self._liberty(inner > 0, "unescaped quotes inside a string")
        self._note_backslashes(kept, start, value)
        self._liberty(_CONTROL.search(text, start, pos) is not None, "raw control characters")
        return value

    def _check_escaped(self, piece: str, start: int, pos: int, key: bool) -> None:
        """Models escape the quote that ends a string, too: `"a\\", "b": 1` and `"\\"}` have two readings."""
        if piece in _QUOTES and (_NEXT_KEY.match(self.text, pos) or (pos == start + 3 and self._closes(pos, key))):
            raise Unreadable(f"a backslash before what may be the end of the string at character {start}")

    def _is_apostrophe(self, char: str, pos: int) -> bool:
        """Whether the quote before `pos` stands inside a word: `don't` opens nothing that would have to be closed."""
        return char not in '"“”' and self.text[pos - 2].isalnum() and self.text[pos : pos + 1].isalnum()

    def _note_backslashes(self, kept: bool, start: int, value: str) -> None:
        """In `C:\\temp\\x` with single backslashes some were read as escapes and some were not: no reading is right."""
        if kept and _PATH_LIKE.match(self.text, start + 1) and re.search(r"[\b\f\n\r\t]", value):
            raise Unreadable(f"single backslashes in the string at character {start}: write \\\\ for each")
        self._liberty(kept, "a lone backslash")

    def _endless(self, start: int, inner: int) -> Exception:
        if inner and self.text.rstrip().endswith(("}", "]")):
            return Unreadable(f"quotes are missing or not escaped in the string at character {start}")
        return CutOff()

    def _closes(self, pos: int, key: bool) -> bool:
        after = _AFTER_KEY if key else _IN_OBJECT if self._in_object else _IN_ARRAY
        return not self._stack or after.match(self.text, pos) is not None

    def _escape(self, pos: int) -> tuple[str, int, bool]:
        """What the backslash at `pos` stands for, the place after it, and whether it stood for itself."""
        text = self.text
        char = text[pos + 1 : pos + 2]
        if not char:
            raise CutOff
        if char == "u":
            digits = _HEX.match(text, pos + 2)
            if digits is None:
                if pos + 6 > len(text):
                    raise CutOff
                return "\\", pos + 1, True
            code = int(digits.group(), 16)
            low = _HEX.match(text, pos + 8) if 0xD800 <= code < 0xDC00 and text[pos + 6 : pos + 8] == "\\u" else None
            if low and 0xDC00 <= int(low.group(), 16) < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + int(low.group(), 16) - 0xDC00), pos + 12, False
            return chr(code), pos + 6, False
        if char in _ESCAPES or char in _QUOTES:
            self._liberty(char in _QUOTES and char != '"', "an escaped quote that needs no escape")
            return _ESCAPES.get(char, char), pos + 2, False
        return "\\", pos + 1, True

    def _skip(self) -> None:
        space = _SPACE.match(self.text, self.pos)
        assert space is not None
        end = space.end()
        if self.text.startswith("/*", end):
            raise CutOff  # a comment that never ends
        if end > self.pos:
            self._liberty(not self.text[self.pos : end].isspace(), "comments")
        self.pos = end

    def _liberty(self, taken: bool, what: str) -> None:
        if taken:
            self.notes[what] = None

    def _unexpected(self, wanted: str) -> Unreadable:
        near = self.text[self.pos : self.pos + 20]
        return Unreadable(f"character {self.pos}: expected {wanted}, found {near!r}")
