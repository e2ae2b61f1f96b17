"""OpenAI's Responses API: its streams, its imitators' habits, and what must go back unchanged."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Reply, formats, read
from callgate.errors import ConfigError
from callgate.formats import openai
from callgate.formats import responses as api
from callgate.providers.openai import LOCAL
from callgate.types import CAME, Message, Request, ToolCall, ToolSpec

ENCRYPTED = "gAAAAABoXqmrU-KwSTzXiZbJJO0cJDrP"
HEAD = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
MORE = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None}


def body(*events: dict[str, Any]) -> bytes:
    return b"".join(api.frame({"sequence_number": n, **event}) for n, event in enumerate(events))


def start() -> list[dict[str, Any]]:
    response = {**HEAD, **MORE, "status": "in_progress", "output": []}
    return [{"type": f"response.{word}", "response": response} for word in ("created", "in_progress")]


def end(status: str = "completed", *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = {**HEAD, **MORE, "status": status, "output": list(items), **fields}
    return {"type": f"response.{status}", "response": response}


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def text_item(index: int, text: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []}] if status == "completed" else []
    return {"type": "message", "id": f"msg_{index}", "role": "assistant", "status": status, "content": parts, **more}


def text(index: int, *pieces: str, **more: Any) -> list[dict[str, Any]]:
    place = {"item_id": f"msg_{index}", "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    whole = "".join(pieces)
    deltas = [{"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in pieces]
    return [
        added(index, text_item(index, "", "in_progress", **more)),
        {"type": "response.content_part.added", **place, "part": part},
        *deltas,
        {"type": "response.output_text.done", **place, "text": whole, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": {**part, "text": whole}},
        done(index, text_item(index, whole, **more)),
    ]


def call_item(index: int, name: str, arguments: str, **more: Any) -> dict[str, Any]:
    fields = {"id": f"fc_{index}", "call_id": f"call_{index}", "name": name, "arguments": arguments}
    return {"type": "function_call", "status": "completed", **fields, **more}


def call(index: int, name: str, *pieces: str, **more: Any) -> list[dict[str, Any]]:
    place = {"item_id": f"fc_{index}", "output_index": index}
    deltas = [{"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in pieces]
    whole = call_item(index, name, "".join(pieces), **more)
    return [
        added(index, {**whole, "arguments": "", "status": "in_progress"}),
        *deltas,
        {"type": "response.function_call_arguments.done", **place, "arguments": whole["arguments"]},
        done(index, whole),
    ]


def reasoning_item(index: int, *summary: str, encrypted: str | None = ENCRYPTED) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": f"rs_{index}", "summary": parts, "encrypted_content": encrypted}


def reasoning(index: int, *summary: str, encrypted: str | None = ENCRYPTED) -> list[dict[str, Any]]:
    out = [added(index, {"type": "reasoning", "id": f"rs_{index}", "summary": [], "encrypted_content": "part"})]
    for n, whole in enumerate(summary):
        place = {"item_id": f"rs_{index}", "output_index": index, "summary_index": n}
        part = {"type": "summary_text", "text": ""}
        out.append({"type": "response.reasoning_summary_part.added", **place, "part": part})
        for piece in (whole[:3], whole[3:]):
            out.append({"type": "response.reasoning_summary_text.delta", **place, "delta": piece})
        out.append({"type": "response.reasoning_summary_text.done", **place, "text": whole})
        out.append({"type": "response.reasoning_summary_part.done", **place, "part": {**part, "text": whole}})
    return [*out, done(index, reasoning_item(index, *summary, encrypted=encrypted))]


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
USAGE = {
    "input_tokens": 132,
    "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 0},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 182,
}
SEARCHES = [
    added(1, {**SEARCH, "status": "in_progress"}),
    {"type": "response.web_search_call.searching", "item_id": "ws_1", "output_index": 1},
    {"type": "response.web_search_call.completed", "item_id": "ws_1", "output_index": 1},
    done(1, SEARCH),
]
ITEMS = [
    reasoning_item(0, "Let me see.", "Then look."),
    SEARCH,
    text_item(2, "I look it up.", phase="commentary"),
    call_item(3, "f", '{"a": 1}'),
    call_item(4, "g", "{}"),
]
EVENTS = [
    *start(),
    *reasoning(0, "Let me see.", "Then look."),
    *SEARCHES,
    *text(2, "I look", " it up.", phase="commentary"),
    *call(3, "f", '{"a"', ": 1}"),
    *call(4, "g", "{}"),
    end("completed", *ITEMS, usage=USAGE),
]
WHOLE = body(*EVENTS)


def seen(reply: Reply) -> list[tuple[str, str, Any]]:
    return [(c.id, c.name, c.arguments) for c in reply.calls]


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
def test_the_stream_becomes_the_message(size: int) -> None:
    pieces = [WHOLE[n : n + size] for n in range(0, len(WHOLE), size)]
    reply = read(pieces, wire="responses")
    assert (reply.content, reply.reasoning) == ("I look it up.", "Let me see.\n\nThen look.")
    assert seen(reply) == [("call_3", "f", {"a": 1}), ("call_4", "g", {})]
    assert (reply.finish, reply.raw_finish) == ("tool_calls", "completed")
    assert reply.usage == {"input": 132, "output": 50, "cached": 100, "reasoning": 20}
    assert [p for p in reply.problems if "web_search_call" in p], "what is not shown is named"


def test_every_cut_is_interrupted_and_gives_no_call() -> None:
    last = WHOLE.index(b"event: response.completed")
    for cut in range(0, last, 7):
        reply = read(WHOLE[:cut], wire="responses")
        assert (reply.finish, reply.calls) == ("interrupted", [])


def test_every_cut_in_two_gives_the_same() -> None:
    want = read(WHOLE, wire="responses")
    for cut in range(1, len(WHOLE), 5):
        assert read([WHOLE[:cut], WHOLE[cut:]], wire="responses") == want


def answer(reply: Reply) -> Message:
    return Message("assistant", reply.content, reply.reasoning, tuple(reply.calls), extra=reply.extra)


def items(*messages: Message) -> list[Any]:
    body: Any = api.build(Request((Message("user", "?"), *messages)), "m")
    return list(body["input"][1:])


def test_reasoning_goes_back_as_it_came_and_in_its_place() -> None:
    assert items(answer(read(WHOLE, wire="responses"))) == [
        ITEMS[0],
        SEARCH,
        {"role": "assistant", "content": "I look it up.", "phase": "commentary"},
        {"type": "function_call", "call_id": "call_3", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "call_4", "name": "g", "arguments": "{}"},
    ]


def test_reasoning_that_is_only_summed_up_does_not_go_back() -> None:
    """Errors of the API: "Item 'rs_0' of type 'reasoning' was not found", where nothing is stored."""
    events = [*start(), *reasoning(0, "hm", encrypted=None), *text(1, "Yes."), end()]
    reply = read(body(*events), wire="responses")
    assert (reply.reasoning, items(answer(reply))) == ("hm", [{"role": "assistant", "content": "Yes."}])


def test_reasoning_of_an_answer_without_calls_goes_back_too() -> None:
    reply = read(body(*start(), *reasoning(0), *text(1, "Yes."), end()), wire="responses")
    assert items(answer(reply))[0] == reasoning_item(0)


def test_the_reasoning_text_of_open_models_is_read_once_and_goes_back() -> None:
    place = {"item_id": "rs_0", "output_index": 0, "content_index": 0}
    content = [{"type": "reasoning_text", "text": "hm hm"}]
    item = {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": "h"}], "content": content}
    events = [
        added(0, {**item, "content": [], "summary": []}),
        {"type": "response.reasoning_text.delta", **place, "delta": "hm "},
        {"type": "response.reasoning_summary_text.delta", **place, "summary_index": 0, "delta": "h"},
        {"type": "response.reasoning_text.delta", **place, "delta": "hm"},
        done(0, item),
        *text(1, "Yes."),
        end(),
    ]
    reply = read(body(*events), wire="responses")
    assert (reply.reasoning, items(answer(reply))[0]) == ("hm hm", item)


def test_citations_and_refusals_stay_in_their_parts() -> None:
    cited = {"type": "output_text", "text": "So.", "annotations": [{"type": "url_citation", "url": "https://e.org"}]}
    refused = {"type": "refusal", "refusal": "No."}
    item = {**text_item(0, "x"), "content": [cited, refused]}
    reply = read(body(*start(), added(0, item), done(0, item), end()), wire="responses")
    assert (reply.content, "the model refused" in reply.problems) == ("So.No.", True)
    assert items(answer(reply)) == [{"role": "assistant", "content": [cited, refused]}]
    changed = Message("assistant", "***", extra=reply.extra)
    assert items(changed)[0]["content"] == [{**cited, "text": "***"}, {**refused, "refusal": ""}]


FAILED = {"code": "rate_limit_exceeded", "message": "Slow down"}
ENDS: dict[str, tuple[list[dict[str, Any]], str, str | None]] = {
    "length": ([end("incomplete", incomplete_details={"reason": "max_output_tokens"})], "length", "max_output_tokens"),
    "filter": (
        [end("incomplete", incomplete_details={"reason": "content_filter"})],
        "content_filter",
        "content_filter",
    ),
    "a reason that nobody knows": (
        [end("incomplete", incomplete_details={"reason": "steered"})],
        "interrupted",
        "steered",
    ),
    "incomplete without a reason": ([end("incomplete")], "interrupted", "incomplete"),
    "failed": ([end("failed", error=FAILED)], "error", None),
    "failed without words": ([end("failed")], "error", None),
    "cancelled": ([end("cancelled")], "error", "cancelled"),
    "an error": ([{"type": "error", "code": "server_error", "message": "No", "param": None}], "error", None),
    "an error with an object": ([{"type": "error", "error": FAILED}], "error", None),
    "an error after the end": ([end(), {"type": "error", "message": "late"}], "error", "completed"),
    "no end": ([], "interrupted", None),
    "completed": ([end()], "tool_calls", "completed"),
    "an item that is not whole": (
        [done(1, call_item(1, "f", "{}", status="incomplete")), end()],
        "interrupted",
        "incomplete",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_is_told_truly(case: str) -> None:
    events, finish, raw = ENDS[case]
    reply = read(body(*start(), *text(0, "x"), *call(1, "f", "{}"), *events), wire="responses")
    assert (reply.finish, reply.raw_finish) == (finish, raw)
    assert bool(reply.calls) == (finish == "tool_calls")


def test_an_error_is_told_in_the_servers_words() -> None:
    failed = read(body(*start(), end("failed", error=FAILED)), wire="responses")
    assert failed.error == "Slow down (rate_limit_exceeded)"
    assert read(json.dumps({"error": FAILED}).encode(), wire="responses").error == failed.error


def test_what_comes_after_the_end_does_not_count() -> None:
    reply = read(body(*start(), *text(0, "x"), end(), *call(1, "f", "{}")), wire="responses")
    assert (reply.finish, reply.calls) == ("stop", [])
    assert "text or calls after the end of the response were dropped" in reply.problems


TWICE = {
    "deltas alone": [*(e for e in EVENTS[:-1] if ".done" not in e["type"]), end()],
    "items alone": [*start(), *(done(n, item) for n, item in enumerate(ITEMS)), end("completed", *ITEMS)],
    "announced items alone": [*start(), *(added(n, item) for n, item in enumerate(ITEMS)), end("completed", *ITEMS)],
    "the end alone": [*start(), end("completed", *ITEMS)],
    "all of it": EVENTS,
    "no start": EVENTS[2:],
    "[DONE] behind it": EVENTS,
}


@pytest.mark.parametrize("case", TWICE)
def test_what_comes_twice_counts_once(case: str) -> None:
    tail = b"data: [DONE]\n\n" if case.startswith("[DONE]") else b""
    reply = read(body(*TWICE[case]) + tail, wire="responses")
    assert (reply.content, reply.reasoning) == ("I look it up.", "Let me see.\n\nThen look.")
    assert seen(reply) == [("call_3", "f", {"a": 1}), ("call_4", "g", {})]


def test_an_answer_that_is_not_streamed_is_read_alike() -> None:
    whole = {**HEAD, **MORE, "status": "completed", "output": ITEMS, "usage": USAGE}
    reply = read(json.dumps(whole).encode(), wire="responses")
    assert reply == read(WHOLE, wire="responses")
    assert items(answer(reply)) == items(answer(read(WHOLE, wire="responses")))


def test_imitators_are_read() -> None:
    """Arguments as an object, content as a text, items without places."""
    function = {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}}
    message = {"type": "message", "role": "assistant", "content": "Hi"}
    whole = {"object": "response", "output": [message, function]}
    reply = read(json.dumps(whole).encode(), wire="responses")
    assert (reply.content, seen(reply), reply.finish) == ("Hi", [("c", "f", {"a": 1})], "tool_calls")
    bare = [{"type": "response.output_text.delta", "delta": "Hi"}, {"type": "response.completed"}]
    assert read(body(*bare), wire="responses").content == "Hi"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@settings(deadline=None)
@given(data=st.data())
def test_events_of_a_wrong_shape_never_raise(data: st.DataObject) -> None:
    records = copy.deepcopy(EVENTS)
    place: Any = data.draw(st.sampled_from(records))
    while isinstance(place, (dict, list)) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            place[key] = data.draw(ANYTHING)
            break
        place = place[key]
    loader = api.Loader()
    deltas = [delta for record in records for delta in loader.take(record)] + loader.finish()
    reply = read(body(*records), wire="responses")
    assert deltas
    api.build(Request((answer(reply),)), "m")


# --- Request -> body ----------------------------------------------------------------------------------------------

TOOL = ToolSpec("f", "Does f.", {"type": "object", "properties": {"a": {"type": "integer"}}})
SHAPE = {"parameters": TOOL.parameters}


def test_a_request_becomes_the_body() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}}
    request = Request(
        (
            Message("system", "Be brief."),
            Message("user", ({"type": "text", "text": "What?"}, image, file)),
            Message("assistant", "So.", "hm", (ToolCall("c" * 70, "f", {"a": 1}), ToolCall("b", "f", {}))),
            Message("tool", "one", call_id="c" * 70, name="f"),
            Message("tool", ({"type": "text", "text": "two"}, image), call_id="b", name="f"),
            Message("system", "And now?"),
        ),
        (TOOL,),
        tool_choice="f",
        parallel=False,
        schema={"type": "object"},
        options={"temperature": 0.5, "max_tokens": 99, "reasoning_effort": "minimal", "verbosity": "low"},
        extra={"reasoning": {"summary": "auto"}, "previous_response_id": "resp_0"},
    )
    built: Any = api.build(request, "m", stateless=True)
    sent = built["input"][2]["call_id"]
    assert len(sent) <= 64
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}
    pdf = {"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}
    shape = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": False}
    assert built == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "What?"}, picture, pdf]},
            {"role": "assistant", "content": "So."},
            {"type": "function_call", "call_id": sent, "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": sent, "output": "one"},
            {
                "type": "function_call_output",
                "call_id": "b",
                "output": [{"type": "input_text", "text": "two"}, picture],
            },
            {"role": "system", "content": "And now?"},
        ],
        "tools": [{"type": "function", "name": "f", "description": "Does f.", **SHAPE, "strict": False}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "max_output_tokens": 99,
        "reasoning": {"effort": "minimal", "summary": "auto"},
        "text": {"verbosity": "low", "format": shape},
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "previous_response_id": "resp_0",
    }


def test_what_the_api_cannot_do_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ConfigError, match="seed, stop"):
        api.build(Request((), options={"seed": 1, "stop": "x"}), "m")


def test_nothing_of_a_stored_conversation_is_used_unless_it_is_asked_for() -> None:
    reply = read(WHOLE, wire="responses")
    built = api.build(Request((Message("user", "?"), answer(reply))), "m", stateless=True)
    assert "previous_response_id" not in built
    assert "resp_1" not in json.dumps(built)


# --- what clients send --------------------------------------------------------------------------------------------

BODY: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "House rules."},
        {"role": "system", "content": "More."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_file", "file_url": "u"}]},
        reasoning_item(0, "Let me see.", "Then look."),
        SEARCH,
        {"type": "item_reference", "id": "msg_9"},
        text_item(2, "I look", phase="commentary"),
        text_item(3, " it up."),
        call_item(4, "f", '{"a": 1}'),
        {"type": "function_call", "call_id": "call_5", "name": "g", "arguments": '{"a": '},
        {"type": "function_call_output", "call_id": "call_4", "output": "1", "status": "completed"},
        {"type": "function_call_output", "call_id": "call_5", "output": [{"type": "input_text", "text": "2"}]},
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "And?"},
    ],
    "tools": [
        {
            "type": "function",
            "name": "f",
            "description": "Does f.",
            "parameters": TOOL.parameters,
            "strict": True,
        },
        {"type": "function", "name": "g", "parameters": TOOL.parameters, "strict": False},
        {"type": "web_search", "search_context_size": "low"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []},
    "text": {"format": {"type": "json_schema", "name": "mine", "schema": {"type": "object"}}, "verbosity": "low"},
    "reasoning": {"effort": "high", "summary": "auto"},
    "max_output_tokens": 7,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "previous_response_id": "resp_0",
    "metadata": {"a": "b"},
    "stream": True,
}


def test_what_openais_clients_send_is_kept_whatever_we_know_of_it() -> None:
    request = api.load_request(BODY)
    roles = [message.role for message in request.messages]
    assert roles == ["system"] * 3 + ["user", "assistant", "tool", "tool", "assistant", "user"]
    answer_ = request.messages[4]
    assert (answer_.content, answer_.reasoning) == ("I look it up.", "Let me see.\n\nThen look.")
    assert [(c.id, c.name, c.arguments) for c in answer_.calls] == [("call_4", "f", {"a": 1}), ("call_5", "g", {})]
    assert [m.name for m in request.messages[5:7]] == ["f", "g"]
    assert (request.tool_choice, request.schema) == ("required", {"type": "object"})
    assert request.options == {"max_tokens": 7, "reasoning_effort": "high", "verbosity": "low"}
    assert api.build(request, "m") == BODY


def test_a_text_alone_is_what_the_user_says() -> None:
    request = api.load_request({"model": "m", "input": "Hi"})
    assert (request.messages, request.stream) == ((Message("user", "Hi"),), False)


@pytest.mark.parametrize("wire", ["anthropic", "responses"])
def test_a_layout_is_no_field_of_another_api(wire: str) -> None:
    came = {CAME: {"response_items": [{"type": "reasoning", "x": ENCRYPTED}], "content_blocks": [{"x": ENCRYPTED}]}}
    message = Message("assistant", "Hi", extra=came)
    for other in set(formats.names()) - {"anthropic", "responses"}:
        assert ENCRYPTED not in json.dumps(formats.get(other).build(Request((message,)), "m"))
    assert ENCRYPTED not in json.dumps(openai.build(Request((message,)), "m", LOCAL))
    own = json.dumps(formats.get(wire).build(Request((message,)), "m"))
    assert own.count(ENCRYPTED) == 1
