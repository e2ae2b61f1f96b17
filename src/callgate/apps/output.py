r"""Everything that a program writes for people goes through here; what others wrote arrives escaped.

Law: no text of a model, tool, server or file reaches a terminal with a character that controls or hides something.
    (tests/test_output.py::test_no_hostile_text_controls_the_terminal)
Law: no module of the programs writes to a stream by itself. (tests/test_output.py::test_nothing_is_written_elsewhere)

The rules:
 1. Controls (C0, C1), bidirectional controls, zero-width and other invisible characters, tags, line separators and half
    surrogate pairs are shown as escapes: `\x1b`, `\u202e`, `\U000e0041`. Line feeds and tabs stay; a carriage return is
    left out, for it only hides what stands before it.
 2. The two joiners (U+200C, U+200D) are left out of running text: what they join stays legible (Persian, families of
    emoji), and no terminal agrees with another on their width.
 3. JSON in a terminal spells all of these as `\uXXXX`; JSON in a pipe is exact, as is the answer itself.
 4. A line to be copied is quoted for the shell, word by word.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

_INVISIBLE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed; C1, of which U+009B is a whole CSI
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"  # U+FE0E and FE0F choose text or picture, and people type them
    r"\U00013430-\U00013455\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = re.compile(rf"[{_INVISIBLE}\ud800-\udfff]")
_SGR = re.compile(r"(\x1b\[[0-9;]*m)")
_DROPPED = {"\r", "\u200c", "\u200d"}
_STYLES = {"": "", "dim": "2", "bold": "1", "call": "36", "good": "32", "bad": "31", "odd": "33", "think": "2;3"}
ERROR_SHOWN = 2000
"""Characters of an error's line."""
QUIET = 20.0
"""Seconds without a line of progress after which one is owed."""


# --- texts ------------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """The text as it may stand in a terminal, with its line feeds; tabs as spaces. Twice is the same as once."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_shown, text).replace("\t", "    ")


def _shown(match: re.Match[str]) -> str:
    return "" if match[0] in _DROPPED else _escape(match[0])


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str, limit: int) -> str:
    """The text on one line, at most `limit` characters with the ellipsis."""
    flat = " ".join(printable(text[: 8 * limit]).split())  # cut first: a huge text costs no more than a long one
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def name(text: str) -> str:
    """A name or id on one line, with nothing left out: what differs looks different."""
    return re.sub(rf"[{_INVISIBLE}\ud800-\udfff\n\t]", lambda match: _escape(match[0]), text)


def shell(*words: str) -> str:
    """The words as a line that a shell reads as these very words."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if name(word) == word:
        return shlex.quote(word)
    return f"$'{''.join(map(_ansi, word))}'"  # ANSI-C quoting (bash, zsh, POSIX 2024)


def _ansi(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if name(char) == char:
        return char
    code = ord(char)
    return f"\\u{code:04x}" if 0x80 <= code < 0x100 else _escape(char)  # there \x80 is a byte, and \u0080 a character


def json_text(value: object, *, indent: int | None = None, to: TextIO) -> str:
    """The value as JSON: exact in a pipe, with escapes for what is not to be seen in a terminal (rule 3)."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    if to.isatty():
        return _UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], text)
    try:
        text.encode(getattr(to, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, or a pipe that is not UTF-8: JSON can say it in ASCII
        return json.dumps(value, indent=indent, default=str)
    return text


# --- streams ----------------------------------------------------------------------------------------------------------


def _stream(err: bool) -> TextIO:
    out = sys.stderr if err else sys.stdout
    reconfigure = getattr(out, "reconfigure", None)
    if reconfigure is not None and getattr(out, "errors", "") == "strict":
        reconfigure(errors="replace")  # a terminal that cannot show a sign shows a question mark
    return out


def _write(text: str, *, err: bool = False) -> None:
    out = _stream(err)
    out.write(text)
    out.flush()


def say(text: str = "", *, err: bool = False, style: str = "") -> None:
    """One line, whatever is in the text."""
    line = " ".join(printable(text).split("\n"))
    _write(_paint(line, style, _is_colored(_stream(err))) + "\n", err=err)


def page(text: str, *, err: bool = False) -> None:
    """Several lines, with a line feed at their end."""
    _write(printable(text).rstrip("\n") + "\n", err=err)


def answer(text: str, *, end: str = "\n") -> None:
    """A model's answer on stdout: exact where it is not a terminal, for another program may read it."""
    out = _stream(False)
    _write((printable(text) if out.isatty() else text) + end)


def fail(text: str) -> None:
    """What went wrong, as one line on stderr."""
    _write(f"callgate: {one_line(text, ERROR_SHOWN)}\n", err=True)


def prompt(text: str) -> str:
    """A line that a person types; raises EOFError at the end of the input."""
    return input(printable(text))


def say_json(value: object, *, indent: int | None = None) -> None:
    """The value as JSON on stdout; without `indent` it is one line."""
    out = _stream(False)
    _write(json_text(value, indent=indent, to=out) + "\n")


def crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A fault of our own, as Python shows it; takes what `sys.excepthook` takes."""
    page("".join(traceback.format_exception(kind, error, trace)), err=True)


class _Log(logging.Handler):
    """Warnings of libraries and of ours, with their tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        page(self.format(record), err=True)


def install() -> None:
    """Whatever Python itself prints of errors and warnings goes through here, too, and no stream is missing."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed by who started us: `callgate … <&-`
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for good
    logging.lastResort = _Log(logging.WARNING)
    sys.excepthook = crash
    threading.excepthook = lambda args: crash(args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)


@contextmanager
def progress(
    total: int, label: Callable[[int], str], clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """A bar on stderr with a label; where that is no terminal, a line for each tenth of the way, and where a tenth
    takes long, one every QUIET seconds. The function takes how much of `total` is done."""
    pen = Pen(sys.stderr)
    live = sys.stderr.isatty()
    tenths, last = 0, clock()

    def show(done: int) -> None:
        nonlocal tenths, last
        reached = 10 * min(done, total) // max(1, total)
        if not live and (reached > tenths or clock() - last >= QUIET):
            tenths, last = reached, clock()
            say(label(done), err=True)
        elif live:
            full = 30 * min(done, total) // max(1, total)
            pen.erase()
            pen.put(f"  {'━' * full}{'─' * (30 - full)} {label(done)}")
            pen.flush()

    try:
        yield show
    finally:
        if live:
            pen.erase()
            pen.flush()


def _is_colored(out: TextIO) -> bool:
    return out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "") not in {"", "dumb"}


def _paint(text: str, style: str, color: bool) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if color and style and text else text


class Pen:
    """Draws in a terminal: texts are escaped, and the sequences are these methods'."""

    def __init__(self, out: TextIO, *, color: bool | None = None) -> None:
        self._out = out
        self._color = _is_colored(out) if color is None else color

    def put(self, text: str, style: str = "") -> None:
        """The text, where the cursor stands."""
        self._out.write(_paint(printable(text), style, self._color))

    def spans(self, *spans: tuple[str, str]) -> None:
        """Texts with their styles, as one line."""
        for text, style in spans:
            self.put(" ".join(text.split("\n")), style)
        self._out.write("\n")
        self._out.flush()

    def line(self, text: str, style: str = "") -> None:
        """The text and a line feed."""
        self.put(text, style)
        self._out.write("\n")
        self._out.flush()

    def erase(self) -> None:
        """Empties the row of the cursor."""
        self._out.write("\r\x1b[2K")

    def rewrite(self, above: int, drawn: str) -> None:
        """Goes up so many rows, empties all from there on and writes what another library drew: its colours stay."""
        up = f"\x1b[{above}A" if above > 0 else ""
        # Markdown's entities (&#x202e;) become characters only in the drawing, so it is looked through once more
        parts = (part if _SGR.fullmatch(part) else printable(part) for part in _SGR.split(drawn))
        self._out.write(f"\r{up}\x1b[J" + "".join(parts))

    def record(self, value: object) -> None:
        """The value as one line of JSON."""
        self._out.write(json_text(value, to=self._out) + "\n")
        self._out.flush()

    def flush(self) -> None:
        """Everything is on its way to the screen."""
        self._out.flush()
