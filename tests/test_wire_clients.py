"""What the vendors' own clients make of the same bytes: the same as callgate, where they are right.

The bytes are those of the reported faults, so the lists of rows on which a client differs are the faults it has.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from inline_snapshot import snapshot
from ollama import ChatResponse
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from callgate import read
from callgate.types import Reply
from test_wire_reports import ROWS, WIRES

CLIENT = openai.OpenAI(api_key="x", base_url="http://127.0.0.1:9")
REQUEST = httpx.Request("POST", "http://127.0.0.1:9")
Said = tuple[str, list[tuple[str, Any]]]


def ours(row: dict[str, Any]) -> Said:
    reply: Reply = read(row["input"]["body_text"].encode(), wire=WIRES[row["input"]["protocol"]])
    return reply.content, [(call.name, call.arguments) for call in reply.calls]


def theirs_openai(row: dict[str, Any]) -> Said:
    """The typed stream and the accumulator of the openai package."""
    response = httpx.Response(200, content=row["input"]["body_text"].encode(), request=REQUEST)
    state = ChatCompletionStreamState()
    for chunk in openai.Stream(cast_to=ChatCompletionChunk, response=response, client=CLIENT):
        state.handle_chunk(chunk)
    message = state.get_final_completion().choices[0].message
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]  # type: ignore[union-attr]
    return message.content or "", calls


def theirs_ollama(row: dict[str, Any]) -> Said:
    """As `ollama.Client.chat(stream=True)` reads a response."""
    response = httpx.Response(200, content=row["input"]["body_text"].encode(), request=REQUEST)
    content, calls = "", []
    for line in response.iter_lines():
        message = ChatResponse(**json.loads(line)).message
        content += message.content or ""
        calls += [(call.function.name, dict(call.function.arguments)) for call in message.tool_calls or ()]
    return content, calls


def differences(protocol: str, client: Any) -> tuple[int, dict[str, str]]:
    """On how many rows the client agrees, and what it does on the others."""
    agree, differ = 0, {}
    for row in ROWS:
        if row["input"]["protocol"] != protocol:
            continue
        try:
            said = client(row)
        except Exception as error:
            differ[row["id"]] = f"raises {type(error).__name__}"
            continue
        if said == ours(row):
            agree += 1
        else:
            differ[row["id"]] = row["title"][:60]
    return agree, differ


@pytest.mark.parametrize(
    ("protocol", "client", "expected"),
    [
        (
            "openai-sse",
            theirs_openai,
            snapshot(
                (
                    11,
                    {
                        "B079": "raises JSONDecodeError",
                        "B084": "raises APIError",
                        "B086": "raises KeyError",
                        "B087": "Stream ends without finish reason or [DONE]; a call with com",
                        "B090": "raises TypeError",
                        "B092": "raises JSONDecodeError",
                        "B098": "Full name repeated in each delta is concatenated ('file_getf",
                        "B105": "raises JSONDecodeError",
                        "B109": "raises JSONDecodeError",
                        "B110": "raises JSONDecodeError",
                        "B112": "raises TypeError",
                        "B120": "raises UserWarning",
                    },
                )
            ),
        ),
        ("ollama-ndjson", theirs_ollama, snapshot((3, {"B074": "raises JSONDecodeError"}))),
    ],
)
def test_the_vendors_clients_agree_where_they_are_right(protocol: str, client: Any, expected: Any) -> None:
    assert differences(protocol, client) == expected
