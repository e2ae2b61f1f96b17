"""Bytes to records: the same records for every cut, and only the line ends that the format names."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.errors import LimitExceeded
from callgate.wire import DONE, NDJSON, SSE, Record, dump_ndjson, dump_sse


def read(make: type[SSE] | type[NDJSON], chunks: list[bytes]) -> list[Record]:
    framing = make()
    out = [record for chunk in chunks for record in framing.feed(chunk)]
    return out + framing.finish()


def cuts(body: bytes) -> Iterator[list[bytes]]:
    yield [body[n : n + 1] for n in range(len(body))]
    for n in range(len(body) + 1):
        yield [body[:n], body[n:]]
    for size in (2, 3, 7):
        yield [body[n : n + size] for n in range(0, len(body), size)]


SSE_CASES = {
    "LF": (b"data: a\n\ndata: b\n\n", [Record("a"), Record("b")]),
    "CR LF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [Record("a"), Record("b")]),
    "CR": (b"data: a\r\rdata: b\r\r", [Record("a"), Record("b")]),
    "mixed line ends": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", [Record("a"), Record("b"), Record("c")]),
    "no space after the colon, and only one space taken": (b"data:a\n\ndata:  b\n\n", [Record("a"), Record(" b")]),
    "several data lines are joined": (b"data: a\ndata: b\ndata:\ndata: c\n\n", [Record("a\nb\n\nc")]),
    "comments and blank events are nothing": (b": ping\n\n\n\nevent: x\n\ndata: a\n\n", [Record("a")]),
    "an event's name is for one event": (
        b"event: error\ndata: a\n\ndata: b\n\n",
        [Record("a", "error"), Record("b")],
    ),
    "id and retry carry nothing": (b"id: 7\nretry: 10\ndata: a\n\nid: 8\n\n", [Record("a")]),
    "blank data is no record": (b"data:\n\ndata: \n\ndata\n\ndata: a\n\n", [Record("a")]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [Record("a")]),
    "only the first byte order mark": (
        b"data: \xef\xbb\xbfa\n\n\xef\xbb\xbfdata: b\n\n",
        [Record("\ufeffa")],
    ),
    "Python's other line ends are text": (
        "data: a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n\n".encode(),
        [Record("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg")],
    ),
    "the end cuts off the blank line": (b"data: a\n\ndata: b\n", [Record("a"), Record("b", cut=True)]),
    "the end cuts off the line": (b"data: a\n\ndata: b", [Record("a"), Record("b", cut=True)]),
    "invalid UTF-8 is replaced, not fatal": (b"data: a\xffb\n\n", [Record("a\ufffdb")]),
    "a JSON body instead of events": (
        b'  \n{\n "error": {"message": "no"}\n}\n',
        [Record('{\n "error": {"message": "no"}\n}', cut=True)],
    ),
    "llama.cpp's error field": (b'data: a\n\nerror: {"code":500}\n\n', [Record("a"), Record('{"code":500}', "error")]),
    "a bare error in mid-stream": (b'data: a\n\n{"error":"x"}\n', [Record("a"), Record('{"error":"x"}', "error")]),
    "words instead of events": (
        b"upstream connect error\nor reset",
        [Record("upstream connect error\nor reset", "error")],
    ),
    "a stream that is cut in its first word": (b"dat", []),
    "an unknown field": (b"foo: 1\ndata: a\n\n", [Record("a")]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("name", SSE_CASES)
def test_events_do_not_depend_on_the_cuts(name: str) -> None:
    body, expected = SSE_CASES[name]
    assert read(SSE, [body]) == expected
    for chunks in cuts(body):
        assert read(SSE, chunks) == expected, chunks


NDJSON_CASES = {
    "LF": (b'{"a":1}\n{"b":2}\n', [Record('{"a":1}'), Record('{"b":2}')]),
    "CR LF": (b'{"a":1}\r\n{"b":2}\r\n', [Record('{"a":1}\r'), Record('{"b":2}\r')]),
    "blank lines": (b'\n\r\n{"a":1}\n \n\n', [Record('{"a":1}')]),
    "no line end at the end": (b'{"a":1}\n{"b":2}', [Record('{"a":1}'), Record('{"b":2}', cut=True)]),
    "a byte order mark": (b'\xef\xbb\xbf{"a":1}\n', [Record('{"a":1}')]),
    "Python's other line ends are text": ('"\u2028\u2029\x85\x1c"\n'.encode(), [Record('"\u2028\u2029\x85\x1c"')]),
    "nothing": (b"", []),
    "one body, set out for people": (b'\n{\r\n "a": 1\n}\n', [Record('{\r\n "a": 1\n}\n', cut=True)]),
    "a body that is a list": (b"\xef\xbb\xbf[\n1]", [Record("[\n1]", cut=True)]),
}


@pytest.mark.parametrize("name", NDJSON_CASES)
def test_lines_do_not_depend_on_the_cuts(name: str) -> None:
    body, expected = NDJSON_CASES[name]
    assert read(NDJSON, [body]) == expected
    for chunks in cuts(body):
        assert read(NDJSON, chunks) == expected, chunks


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1).filter(lambda t: not t.isspace())


@settings(deadline=None)
@given(st.lists(TEXT, max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_what_is_framed_is_read_back(texts: list[str], end: str, data: st.DataObject) -> None:
    body = b"".join(dump_sse(Record(text)) for text in texts).replace(b"\n", end.encode())
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    chunks = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    assert read(SSE, chunks) == [Record(text) for text in texts]
    lines = b"".join(dump_ndjson(Record(json.dumps(text))) for text in texts)
    assert [json.loads(r.data) for r in read(NDJSON, [lines[:7], lines[7:]])] == texts


@pytest.mark.parametrize(
    ("make", "piece"),
    [
        (SSE, b"data: " + b"x" * 50),
        (SSE, b"data: x\n"),
        (NDJSON, b"x" * 50),
        (SSE, b"{" + b"x" * 50),
        (NDJSON, b"{\n" + b"x" * 50),
    ],
)
def test_a_record_without_end_is_refused(make: type[SSE] | type[NDJSON], piece: bytes) -> None:
    framing = make(limit=1000)

    def feed() -> None:
        for _ in range(1000):
            framing.feed(piece)

    with pytest.raises(LimitExceeded, match="MAX_RECORD = 1000"):
        feed()


def test_one_huge_line_in_one_piece_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        NDJSON(limit=1000).feed(b"x" * 2000 + b"\n")


def test_a_long_line_in_small_pieces_costs_no_square() -> None:
    """8 MB in 64-byte pieces: each byte is moved twice at most."""
    framing = SSE()
    piece = b"x" * 64
    framing.feed(b"data: ")
    for _ in range(8 * 1024 * 1024 // 64):
        framing.feed(piece)
    (record,) = framing.feed(b"\n\n")
    assert len(record.data) == 8 * 1024 * 1024


def test_an_event_with_a_name_and_several_lines_is_read_back() -> None:
    record = Record("a\nb", "error")
    assert SSE().feed(dump_sse(record) + dump_sse(DONE)) == [record, DONE]
