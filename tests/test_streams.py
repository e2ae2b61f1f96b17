"""Raw streams of real servers (conformance/streams): Ollama's two APIs and llama-server, as they came over the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate import Reader, Reply

STREAMS = sorted((Path(__file__).parent / "conformance" / "streams").glob("*.bin"))
BYTEWISE = 20_000
CUTS = 60


def wire_of(path: Path) -> str:
    return "ollama" if path.name.startswith("ollama") else "openai"


def reply_of(path: Path, *pieces: bytes) -> Reply:
    reader = Reader(wire=wire_of(path))
    for piece in pieces:
        reader.feed(piece)
    reader.finish()
    return reader.reply


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_real_stream_does_not_depend_on_its_cuts(path: Path) -> None:
    data = path.read_bytes()
    whole = reply_of(path, data)
    assert whole.error is None
    assert whole.finish in ("stop", "tool_calls", "length")
    assert whole.content or whole.reasoning or whole.calls or whole.incomplete
    for at in range(1, len(data), max(1, len(data) // CUTS)):
        assert reply_of(path, data[:at], data[at:]) == whole, at
    some = data[:BYTEWISE]
    assert reply_of(path, *(some[i : i + 1] for i in range(len(some)))) == reply_of(path, some)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_real_stream_that_broke_off_is_never_sound(path: Path) -> None:
    data = path.read_bytes()
    for at in range(0, len(data) * 3 // 4, max(1, len(data) // 20)):
        reply = reply_of(path, data[:at])
        assert reply.finish == "interrupted"
        assert reply.calls == []


def test_there_are_streams_of_each_server() -> None:
    kinds = {path.name.rpartition("-")[0] for path in STREAMS}
    assert kinds == {"ollama", "openai", "openai-ollamav1"}
    assert sum(1 for path in STREAMS if reply_of(path, path.read_bytes()).calls) >= 3
