"""What the vendors' own clients make of the same bytes: the same as callgate, where they are right.

The bytes are those of the reported faults, so the lists of rows on which a client differs are the faults it has.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from inline_snapshot import snapshot
from ollama import ChatResponse
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from callgate import Reader, read
from callgate.errors import ConfigError
from callgate.formats import dump
from callgate.types import Reply, ToolCall
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


def objects_of(row: dict[str, Any]) -> list[Any]:
    """What a user of the client gets to see, one object after the other."""
    response = httpx.Response(200, content=row["input"]["body_text"].encode(), request=REQUEST)
    if row["input"]["protocol"] == "openai-sse":
        return list(openai.Stream(cast_to=ChatCompletionChunk, response=response, client=CLIENT))
    return [ChatResponse(**json.loads(line)) for line in response.iter_lines()]


def told(reply: Reply) -> Any:
    calls = [(call.name, call.arguments) for call in reply.calls]
    return reply.content, reply.reasoning, calls, len(reply.incomplete), reply.finish, reply.usage


@pytest.mark.parametrize("as_dicts", [False, True])
def test_the_objects_of_the_clients_are_read_as_their_bytes_are(as_dicts: bool) -> None:
    compared, differ = 0, {}
    for row in ROWS:
        wire = WIRES[row["input"]["protocol"]]
        if wire not in ("openai", "ollama"):
            continue
        try:
            chunks = objects_of(row)
        except Exception:  # the client itself refuses such a stream
            continue
        given = [chunk.model_dump(exclude_unset=True, warnings=False) for chunk in chunks] if as_dicts else chunks
        reply = read(given, wire=wire)
        compared += 1
        if told(reply) != told(read(row["input"]["body_text"].encode(), wire=wire)):
            differ[row["id"]] = row["title"]
    assert compared > 10
    assert differ == snapshot({"B086": "Error signalled by the event name only"})


def test_a_whole_answer_of_a_client_is_one_record() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    whole = openai.types.chat.ChatCompletion.model_validate(body)
    for given in (whole, [whole], body, [body]):
        reply = read(given, wire="openai")
        assert [(call.id, call.name, call.arguments) for call in reply.calls] == [("c1", "look", {"at": "x"})]
    answer = ChatResponse(message={"role": "assistant", "content": "Hi."}, done=True, done_reason="stop")
    assert (read(answer, wire="ollama").content, read(answer, wire="ollama").finish) == ("Hi.", "stop")


def test_an_object_without_a_wire_says_what_is_needed() -> None:
    chunk = ChatResponse(message={"role": "assistant", "content": "Hi."})
    with pytest.raises(ConfigError, match=r'not ChatResponse; give Reader the wire it comes from \(wire="openai"\)'):
        Reader("hermes").feed(chunk)
    with pytest.raises(ConfigError, match="not tuple"):
        Reader(wire="openai").feed(("choices", []))  # type: ignore[arg-type]


def test_the_events_of_anthropics_client_are_read_as_their_bytes_are() -> None:
    reply = Reply("Let me see.", calls=[ToolCall("toolu_1", "look", {"at": "東京"})], finish="tool_calls")
    body = dump("anthropic", reply, model="m")
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(200, content=body)))
    client = anthropic.Anthropic(api_key="x", base_url="http://127.0.0.1:9", http_client=http)
    messages: Any = [{"role": "user", "content": "?"}]
    events = list(client.messages.create(model="m", max_tokens=9, messages=messages, stream=True))
    assert told(read(events, wire="anthropic")) == told(read(body, wire="anthropic"))
    assert read(events, wire="anthropic").calls == reply.calls
