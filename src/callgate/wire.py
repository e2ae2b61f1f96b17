"""Bytes to records: server-sent events and JSON lines, as they arrive.

Law: the records do not depend on how the bytes were cut, and only the line ends that the format names end a line,
never U+2028, U+0085 or others that Python knows.
(tests/test_wire.py::test_events_do_not_depend_on_the_cuts)

Bytes are split before they are decoded, so a character cut in two is whole again when it is read.
"""

from __future__ import annotations

from typing import NamedTuple

from callgate.errors import LimitExceeded

MAX_RECORD = 32 * 1024 * 1024
"""Bytes of one record. Real ones are below 100 KB; whole answers with images reach some MB. A server that never ends a
line must not fill the memory."""

# HTML standard, 9.2.6: one leading byte order mark is ignored, wherever it was cut.
_BOM = b"\xef\xbb\xbf"


class Record(NamedTuple):
    """One record of a stream: the text of (usually) one JSON value."""

    data: str
    event: str = ""
    """The name of the event, where the wire has names."""
    cut: bool = False
    """The stream ended inside this record, as far as the framing tells."""


_new = tuple.__new__  # a NamedTuple's own constructor costs twice as much, and one is made for each event


class _Buffer:
    """Bytes until the next line end. What the end of a chunk cuts off is kept in pieces: each byte is moved twice at
    most."""

    __slots__ = ("_pieces", "_size", "_start", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._start = True

    def whole(self, chunk: bytes) -> bytes:
        """Everything up to the last line end that has come, that end included; the rest is kept."""
        # Searched from the end: a chunk that holds whole lines is split once, by whoever reads them.
        end = chunk.rfind(b"\n") + 1
        pieces = self._pieces
        if not end:
            pieces.append(chunk)
            self._size += len(chunk)
            if self._size > self.limit:
                self._refuse()
            return b""
        rest = b""
        if end < len(chunk):
            rest, chunk = chunk[end:], chunk[:end]
        if pieces:
            pieces.append(chunk)
            chunk = b"".join(pieces)
            pieces.clear()
            self._size = 0
        if rest:
            pieces.append(rest)
            self._size = len(rest)
            if self._size > self.limit:
                self._refuse()
        if self._start:
            self._start = False
            if chunk.startswith(_BOM):
                chunk = chunk[3:]
        return chunk

    @property
    def empty(self) -> bool:
        """Whether nothing is kept."""
        return not self._pieces

    def _refuse(self) -> None:
        raise LimitExceeded(f"wire: a line is longer than MAX_RECORD = {self.limit} bytes; the server never ends it")

    def rest(self) -> bytes:
        """The last line, which no line end followed."""
        line = b"".join(self._pieces)
        self._pieces.clear()
        return line[3:] if self._start and line.startswith(_BOM) else line


class NDJSON:
    """JSON lines: one record a line, blank lines skipped, the last one may lack its line end.

    A stream whose first line is a lone bracket is no JSON lines but one JSON body, set out for people to read (a saved
    answer, a proxy): it is one record, marked `cut`, for nothing tells whether it is whole.
    """

    def __init__(self, *, limit: int = MAX_RECORD) -> None:
        self._buffer = _Buffer(limit)
        self._begun = False
        self._body: list[bytes] | None = None
        self._held = 0

    def feed(self, chunk: bytes) -> list[Record]:
        """The records that are whole now."""
        whole = self._buffer.whole(chunk)
        if not whole:
            return []
        if not self._begun:
            self._begin(whole)
        if self._body is not None:
            return self._hold(whole)
        if whole.find(b"\n") == len(whole) - 1 <= self._buffer.limit:  # one line, as most servers flush
            text = whole[:-1].decode("utf-8", "replace")
            return [_new(Record, (text, "", False))] if text and not text.isspace() else []
        out = [
            _new(Record, (line.decode("utf-8", "replace"), "", False))
            for line in whole.split(b"\n")
            if line and not line.isspace()
        ]
        if len(whole) > self._buffer.limit:
            _check(out, self._buffer.limit)
        return out

    @property
    def between(self) -> bool:
        """Whether the bytes so far end behind a record: what comes next is read as if nothing had come before."""
        return self._begun and self._body is None and self._buffer.empty

    def finish(self) -> list[Record]:
        """The bytes are over: the last record, if its line end is missing."""
        rest = self._buffer.rest()
        if self._body is not None:
            rest = b"".join([*self._body, rest])
            self._body = None
        return [Record(rest.decode("utf-8", "replace"), cut=True)] if rest and not rest.isspace() else []

    def _begin(self, whole: bytes) -> None:
        if first := whole.strip():
            self._begun = True
            # A lone bracket cannot be a line of JSON, so no NDJSON stream starts with it.
            if first.partition(b"\n")[0].strip() in (b"{", b"["):
                self._body = []

    def _hold(self, piece: bytes) -> list[Record]:
        assert self._body is not None
        self._held += len(piece)
        if self._held > self._buffer.limit:
            raise LimitExceeded(f"wire: a JSON body is longer than MAX_RECORD = {self._buffer.limit} bytes")
        self._body.append(piece if self._body else piece.lstrip())
        return []


def _check(records: list[Record], limit: int) -> None:
    """Records that came whole in one piece have a limit too."""
    if any(len(record.data) > limit for record in records):
        raise LimitExceeded(f"wire: a record is longer than MAX_RECORD = {limit} bytes")


class SSE:
    """Server-sent events, as the HTML standard reads them, and what servers send in their place.

    1. Lines end in LF, CR LF or CR; a blank line ends an event; several `data` lines are joined by LF; comments, `id`
       and `retry` carry no record; an event without data is none.
    2. A stream whose first line starts like JSON is no event stream but one JSON body (a gateway's error page, a
       server that ignored `stream`): it is one record.
    3. The field `error:` (llama.cpp) and a bare line of JSON that holds an "error" are records of the event "error".
       A line `data: [DONE]` behind it, or glued to its end, is the end of the stream and not of the body.
    4. An event that the end of the bytes cut off is still a record, marked `cut`; so is a JSON body, for nothing tells
       whether it is whole.
    5. A body of plain words without any event (a proxy's "upstream connect error") is a record of the event "error".
    """

    def __init__(self, *, limit: int = MAX_RECORD) -> None:
        self._buffer = _Buffer(limit)
        self._limit = limit
        self._after_cr = False
        self._data: list[bytes] = []
        self._held = 0
        self._event = b""
        self._body: list[bytes] | None = None  # rule 2
        self._begun = False
        self._odd: list[bytes] = []
        self._spoke = False
        self._between = True
        """Nothing of an event has come since the last one ended."""

    def feed(self, chunk: bytes) -> list[Record]:
        """The records that are whole now."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 10:  # the LF of a CR LF that was cut in two
                chunk = chunk[1:]
        if b"\r" in chunk:
            # CR, LF and CR LF all end a line (HTML, 9.2.6); made one sign here, so that the rest looks for a single
            # byte.
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        whole = self._buffer.whole(chunk)
        if not whole:
            return []
        out: list[Record] = []
        at, size = 0, len(whole)
        while at < size:
            # The fast way is only safe between events: behind an `event:` line the same data belongs to that event.
            if self._between and self._begun:
                at = self._plain(whole, at, out)
                if at == size:
                    break
            end = whole.find(b"\n", at)
            self._line(whole[at:end], out)
            at = end + 1
        if out:
            self._spoke = True
            if len(whole) > self._limit:
                _check(out, self._limit)
        return out

    @property
    def between(self) -> bool:
        """Whether the bytes so far end behind a record: what comes next is read as if nothing had come before."""
        return self._between and self._begun and not self._after_cr and self._body is None and self._buffer.empty

    def _plain(self, whole: bytes, at: int, out: list[Record]) -> int:
        """The events of one data line, which nearly all are, at the speed of `find`; where another one begins."""
        while whole.startswith(b"data: ", at):
            end = whole.find(b"\n", at + 6)
            if not whole.startswith(b"\n", end + 1):
                break
            # "replace": one broken character must not cost the record; what reads its JSON decides if it still counts.
            text = whole[at + 6 : end].decode("utf-8", "replace")
            if text and not text.isspace():
                out.append(_new(Record, (text, "", False)))
            at = end + 2
        return at

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self._limit:
            raise LimitExceeded(f"wire: an event is longer than MAX_RECORD = {self._limit} bytes")

    def _dispatch(self, out: list[Record], *, cut: bool = False) -> None:
        data = self._data
        text = (data[0] if len(data) == 1 else b"\n".join(data)).decode("utf-8", "replace")
        data.clear()
        self._held = 0
        if text and not text.isspace():
            out.append(Record(text, self._event.decode("utf-8", "replace"), cut))

    def _line(self, line: bytes, out: list[Record]) -> None:
        if self._body is not None:
            self._body.append(line)
            self._hold(len(line) + 1)
            return
        if not line:
            if self._data:
                self._dispatch(out)
            self._event = b""
            self._between = True
            return
        self._between = False
        if not self._begun and not line.isspace():
            self._begun = True
            if line.lstrip()[:1] in (b"{", b"["):  # rule 2
                self._body = [line]
                self._hold(len(line))
                return
        self._field(line, out)

    def _field(self, line: bytes, out: list[Record]) -> None:
        """One line that is not blank, as the standard's "process the field" (HTML, 9.2.6) and rules 3 and 5 read it."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")  # one space at most belongs to the form
        if name == b"data":
            self._data.append(value)
            self._hold(len(line))
        # An `event` line names the event that the next blank line ends, however many lines lie between.
        elif name == b"event":
            self._event = value
        elif name == b"error" or (line[:1] == b"{" and b'"error"' in line):  # rule 3
            if self._data:
                self._dispatch(out)
            out.append(Record((value if name == b"error" else line).decode("utf-8", "replace"), "error"))
        elif b" " in name.strip() and len(self._odd) < 20:  # no field has a space in its name
            self._odd.append(line[:500])

    def finish(self) -> list[Record]:
        """The bytes are over: the event that no blank line ended (rule 4), or the whole JSON body."""
        out: list[Record] = []
        if rest := self._buffer.rest():
            self._line(rest, out)
        if self._body is not None:
            body = b"\n".join(self._body).decode("utf-8", "replace").rstrip()
            whole = body.removesuffix("[DONE]").rstrip().removesuffix("data:").rstrip()
            done = body.endswith("[DONE]") and whole.endswith(("}", "]"))
            out += [Record(whole), DONE] if done else [Record(body, cut=True)]
        elif self._data:
            self._dispatch(out, cut=True)
        if self._odd and not self._spoke and not out:  # rule 5
            out.append(Record(b"\n".join(self._odd).decode("utf-8", "replace"), "error"))
        return out


# --- the other way ------------------------------------------------------------------------------------------------

DONE = Record("[DONE]")
"""How a stream of chat completions ends."""


def dump_sse(record: Record) -> bytes:
    """A record as a server-sent event. (A record of text without line ends comes back as it was.)"""
    head = f"event: {record.event}\n" if record.event else ""
    lines = record.data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode("utf-8", "replace")


def dump_ndjson(record: Record) -> bytes:
    """A record as a JSON line; JSON text has no line ends of its own."""
    return record.data.encode("utf-8", "replace") + b"\n"
