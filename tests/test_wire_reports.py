"""Every reported fault of area `wire`: whole, byte by byte, and at every single cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Reply, read
from callgate.reply import Reader
from callgate.types import CallDelta, Delta, Finish, ReasoningDelta, TextDelta

ROWS = [
    row
    for line in (Path(__file__).parent / "conformance/reports.jsonl").read_bytes().splitlines()
    if (row := json.loads(line))["area"] == "wire"
]
WIRES = {"openai-sse": "openai", "ollama-ndjson": "ollama"}


def tools_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    return row.get("tools") or [{"name": "tide_at"}, {"name": "calc"}]


def cut(body: bytes) -> Iterator[list[bytes]]:
    yield [body]
    yield [body[n : n + 1] for n in range(len(body))]
    for n in range(1, len(body)):
        yield [body[:n], body[n:]]


def merged(deltas: list[Delta]) -> list[Delta]:
    """Neighbours of one kind as one."""
    out: list[Delta] = []
    for delta in deltas:
        last = out[-1] if out else None
        if isinstance(delta, TextDelta) and isinstance(last, TextDelta):
            out[-1] = TextDelta(last.text + delta.text)
        elif isinstance(delta, ReasoningDelta) and isinstance(last, ReasoningDelta):
            out[-1] = ReasoningDelta(last.text + delta.text)
        elif isinstance(delta, CallDelta) and isinstance(last, CallDelta) and delta.index == last.index:
            out[-1] = CallDelta(last.index, last.id, last.name, last.arguments + delta.arguments)
        else:
            out.append(delta)
    return out


def check(reply: Reply, expect: dict[str, Any]) -> None:
    if "text" in expect:
        assert reply.content == expect["text"]
    if "text_contains" in expect:
        assert expect["text_contains"] in reply.content
    if "reasoning" in expect:
        assert reply.reasoning == expect["reasoning"]
    if "calls" in expect:
        assert [{"name": c.name, "arguments": c.arguments} for c in reply.calls] == expect["calls"]
    bad = [{"name": c.name, "raw_arguments": c.text} for c in reply.incomplete]
    wanted = expect.get("incomplete_calls", [])
    assert [{key: b[key] for key in w} for b, w in zip(bad, wanted, strict=True)] == wanted
    for key in ("finish", "raw_finish", "usage"):
        if key in expect:
            assert getattr(reply, key) == expect[key]
    if "error_contains" in expect:
        assert expect["error_contains"] in (reply.error or "")
    if "errors" in expect:
        assert reply.error is None
    if "ids" in expect:
        assert [call.id for call in reply.calls] == expect["ids"]
    if expect.get("ids_generated") or expect.get("ids_distinct"):
        ids = [call.id for call in reply.calls]
        assert all(ids)
        assert len(set(ids)) == len(ids)
    if "other_choices" in expect:
        assert {
            str(n): [{"name": c.name, "arguments": c.arguments} for c in calls]
            for n, calls in reply.other_choices.items()
        } == expect["other_choices"]
    for words in expect.get("diagnostics_include", ()):
        assert any(words in problem for problem in reply.problems)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['id']}" for row in ROWS])
def test_report(row: dict[str, Any]) -> None:
    body = row["input"]["body_text"].encode("utf-8")
    wire, expect = WIRES[row["input"]["protocol"]], row["expect"]
    readings: list[tuple[str | None, dict[str, Any]]] = [(None, expect)]
    if "with_content_dialect" in expect:
        within = expect["with_content_dialect"]
        readings = [(within["dialect"], within), (None, expect["without_content_dialect"])]
    for dialect, wanted in readings:
        whole: tuple[Reply, list[Delta]] | None = None
        for chunks in cut(body):
            reader = Reader(dialect, wire=wire, tools=tools_of(row))
            deltas = [delta for chunk in chunks for delta in reader.feed(chunk)] + reader.finish()
            if whole is None:
                check(reader.reply, wanted)
                assert isinstance(deltas[-1], Finish)
                whole = reader.reply, merged(deltas)
            assert (reader.reply, merged(deltas)) == whole, chunks


def test_every_report_is_read() -> None:
    assert len(ROWS) == 27
    assert read(ROWS[0]["input"]["body_text"].encode(), wire="openai").finish == "tool_calls"
