"""Servers on loopback that refuse what vendors refuse, in their words: OpenAI (both APIs), Anthropic, Mistral, Gemini,
llama-server, Ollama.

A strict server answers a request that its vendor would take with the next of its scripted texts, and any other with
the vendor's own refusal. What it was sent stands in `bodies`, what it refused in `refused`.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Refusal = str | None
Answer = str | tuple[str, dict[str, Any]]
"""A text, or name and arguments of a call."""

ROOT = {"anyOf", "oneOf", "allOf", "enum", "not"}
GEMINI_FIELDS = {
    "type", "format", "title", "description", "nullable", "default", "items", "minItems", "maxItems", "enum",
    "properties", "propertyOrdering", "required", "minProperties", "maxProperties", "minimum", "maximum", "minLength",
    "maxLength", "pattern", "example", "anyOf",
}  # fmt: skip
"""ai.google.dev/api/caching#Schema"""


class StrictServer:
    """One vendor; `refuse` judges a body, `answers` are texts or (name, arguments) of a call."""

    def __init__(self, vendor: str, *answers: Answer, shows: Mapping[str, Any] = {}) -> None:
        self.bodies: list[Body] = []
        self.refused: list[str] = []
        self._answers = list(answers) or ["ok"]
        self._refuse = VENDORS[vendor]
        self._write = WRITERS.get(vendor, _sse)
        self._kind = "application/x-ndjson" if vendor == "ollama" else "text/event-stream"
        self._shows = shows
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _reply(self, status: int, kind: str, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                found = outer._shows.get(self.path)
                self._reply(200 if found else 404, "application/json", json.dumps(found or {"error": "no"}).encode())

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path in outer._shows:
                    self._reply(200, "application/json", json.dumps(outer._shows[self.path]).encode())
                    return
                body = json.loads(raw.decode("utf-8"))
                outer.bodies.append(body)
                if (why := outer._refuse(body)) is not None:
                    outer.refused.append(why)
                    error = {"error": {"message": why, "type": "invalid_request_error"}}
                    self._reply(400, "application/json", json.dumps(error).encode())
                    return
                answer = outer._answers.pop(0) if len(outer._answers) > 1 else outer._answers[0]
                self._reply(200, outer._kind, outer._write(answer).encode())

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.root = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.root}/v1"

    def __enter__(self) -> StrictServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _sse(answer: Answer) -> str:
    delta: dict[str, Any] = {"role": "assistant", "content": answer}
    finish = "stop"
    if not isinstance(answer, str):
        function = {"name": answer[0], "arguments": json.dumps(answer[1])}
        delta = {"role": "assistant", "tool_calls": [{"index": 0, "id": "abcdefghi", "function": function}]}
        finish = "tool_calls"
    out = ""
    for made, end in ((delta, None), ({}, finish)):
        choice = {"index": 0, "delta": made, "finish_reason": end}
        out += f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"
    return out + "data: [DONE]\n\n"


def _ollama(answer: Answer) -> str:
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if not isinstance(answer, str):
        message = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": answer[0], "arguments": answer[1]}}],
        }
    records: list[Body] = [{"message": message, "done": False}]
    records.append({"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"})
    return "".join(json.dumps(record) + "\n" for record in records)


def _events(*events: Body) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def _anthropic(answer: Answer) -> str:
    block: Body = {"type": "text", "text": ""}
    delta: Body = {"type": "text_delta", "text": answer}
    if not isinstance(answer, str):
        block = {"type": "tool_use", "id": "toolu_1", "name": answer[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer[1])}
    reason = "end_turn" if isinstance(answer, str) else "tool_use"
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None}
    return _events(
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 1, "output_tokens": 0}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )


def _responses(answer: Answer) -> str:
    item: Body = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": answer, "annotations": []}]
    delta: Body = {"type": "response.output_text.delta", "content_index": 0, "delta": answer}
    begun = {**item, "content": []}
    if not isinstance(answer, str):
        written = json.dumps(answer[1])
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": answer[0], "arguments": written}
        delta = {"type": "response.function_call_arguments.delta", "delta": written}
        begun = {**item, "arguments": ""}
    made = {"id": "resp_1", "object": "response", "model": "m", "output": [], "status": "in_progress"}
    done = {**made, "status": "completed", "output": [item]}
    return _events(
        {"type": "response.created", "response": made},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {**delta, "output_index": 0, "item_id": item["id"]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    )


WRITERS: Mapping[str, Callable[[Answer], str]] = {
    "ollama": _ollama,
    "anthropic": _anthropic,
    "openai-responses": _responses,
}
"""How they stream an answer; the others do as OpenAI's chat completions."""


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(value, dict):
            for part in value.values():
                yield from nodes(part)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
            for part in value:
                yield from nodes(part)
        elif key in ("items", "additionalProperties", "not", "if", "then", "else"):
            yield from nodes(value)


def openai_schema(parameters: Body) -> Refusal:
    """What OpenAI says of a function's parameters."""
    if parameters.get("type") != "object" or ROOT & parameters.keys():
        return "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    if "properties" not in parameters:
        return "In context=(), object schema missing properties."
    if any(n.get("type") == "array" and not isinstance(n.get("items"), dict) for n in nodes(parameters)):
        return "array schema missing items."
    return None


def gemini_schema(parameters: Body) -> Refusal:
    """What Gemini says of a declaration's parameters."""
    for node in nodes(parameters):
        if unknown := node.keys() - GEMINI_FIELDS:
            return f'Invalid JSON payload received. Unknown name "{sorted(unknown)[0]}"'
        if not isinstance(node.get("type", "string"), str) or ("type" not in node and "anyOf" not in node):
            return "schema didn't specify the schema type field"
        if "anyOf" in node and node.keys() - {"anyOf"}:
            return "when using any_of, it must be the only field set"
        if node.get("type") == "array" and not node.get("items"):
            return "items: missing field"
        if any(not isinstance(value, str) or not value for value in node.get("enum", ())):
            return "enum[0]: Invalid value (TYPE_STRING)"
        if node is not parameters and node.get("properties") == {}:
            return "properties: should be non-empty for OBJECT type"
        if any(name not in node.get("properties", {}) for name in node.get("required", ())):
            return "required[0]: property is not defined"
    return None


def llama_schema(parameters: Body) -> Refusal:
    """What llama.cpp's grammar says of a function's parameters."""
    for node in nodes(parameters):
        pattern = node.get("pattern")
        if pattern is not None and not (pattern.startswith("^") and pattern.endswith("$")):
            return "JSON schema conversion failed: Pattern must start with '^' and end with '$'"
        if any(node.get(key, 0) == 2000 for key in ("minLength", "maxLength", "minItems", "maxItems")):
            return "failed to parse grammar"
        if "not" in node:
            return "JSON schema conversion failed: Unrecognized schema"
    return openai_schema(parameters)


def _tools(body: Body, judge: Callable[[Body], Refusal], most: int | None = 128) -> Refusal:
    tools = body.get("tools", [])
    if most is not None and len(tools) > most:
        return f"Invalid 'tools': array too long. Expected an array with maximum length {most}"
    for i, tool in enumerate(tools):
        name = tool["function"]["name"]
        if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name):
            return f"Invalid 'tools[{i}].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
        if (why := judge(tool["function"]["parameters"])) is not None:
            return f"Invalid schema for function '{name}': {why}"
    return None


def _messages(body: Body, fits: Callable[[str], bool]) -> Refusal:
    waiting: set[str] = set()
    for message in body["messages"]:
        content = message.get("content")
        if not message.get("tool_calls") and not (content.strip() if isinstance(content, str) else content):
            return "messages: text content blocks must be non-empty"
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return "An assistant message with 'tool_calls' must be followed by tool messages"
        for call in message.get("tool_calls") or ():
            if not fits(call["id"]):
                return f"tool call id {call['id']!r} is too long or of another form"
            waiting.add(call["id"])
            if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"]):
                return "Invalid 'messages.tool_calls.function.name'"
    return None


def _orders(body: Body) -> Refusal:
    """Chat templates: one system message first, no two of one role in a row."""
    roles = [m["role"] for m in body["messages"]]
    if "system" in roles[1:]:
        return "System message must be at the beginning"
    if any(a == b and a != "tool" for a, b in itertools.pairwise(roles)):
        return "Conversation roles must alternate user/assistant/user/assistant/..."
    return None


def openai(body: Body) -> Refusal:
    return _tools(body, openai_schema) or _messages(body, lambda i: len(i) <= 40)


def mistral(body: Body) -> Refusal:
    roles = [m["role"] for m in body["messages"]]
    if "stream_options" in body:
        return "extra_forbidden: stream_options"
    if any(a == "tool" and b in ("user", "system") for a, b in itertools.pairwise(roles)):
        return "Unexpected role 'user' after role 'tool'"
    known = {"role", "content", "tool_calls", "tool_call_id", "name", "prefix"}
    if any(m.keys() - known for m in body["messages"]):
        return "extra_forbidden: messages"
    return (
        _tools(body, openai_schema)
        or _messages(body, lambda i: re.fullmatch("[a-zA-Z0-9]{9}", i) is not None)
        or _orders(body)
    )


def gemini(body: Body) -> Refusal:
    return _tools(body, gemini_schema) or _messages(body, lambda i: True)


def llama_server(body: Body) -> Refusal:
    return _tools(body, llama_schema, None) or _messages(body, lambda i: True) or _orders(body)


def ollama(body: Body) -> Refusal:
    """Ollama reads tools into Go structures: a wrong type is a 400."""
    for tool in body.get("tools", ()):
        parameters = tool["function"]["parameters"]
        if not isinstance(parameters.get("type"), str):
            return "json: cannot unmarshal array into Go struct field ToolFunctionParameters.type of type string"
        if any(not isinstance(value, dict) for value in parameters.get("properties", {}).values()):
            return "json: cannot unmarshal bool into Go struct field .properties of type api.ToolProperty"
    if body.get("think", False) not in (True, False, "low", "medium", "high", "max"):
        return f"invalid think value: {body['think']!r}"
    return None


ANTHROPIC_FIELDS = {
    "model", "messages", "max_tokens", "system", "stream", "temperature", "top_p", "top_k", "stop_sequences", "tools",
    "tool_choice", "thinking", "metadata", "output_config", "cache_control", "service_tier",
}  # fmt: skip
"""The parameters of the official package's `messages.create`."""


def anthropic(body: Body) -> Refusal:
    """The Messages API: its own words as far as they are public."""
    if unknown := body.keys() - ANTHROPIC_FIELDS:
        return f"{sorted(unknown)[0]}: Extra inputs are not permitted"
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    for i, tool in enumerate(body.get("tools", ())):
        if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool["name"]):
            return f"tools.{i}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        if tool["input_schema"].get("type") != "object":
            return f"tools.{i}.custom.input_schema.type: Field required"
        if {"oneOf", "allOf", "anyOf"} & tool["input_schema"].keys():
            return (
                f"tools.{i}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
            )
    return _anthropic_messages(body["messages"])


def _anthropic_messages(messages: list[Body]) -> Refusal:
    if not messages or messages[0]["role"] != "user":
        return 'messages: first message must use the "user" role'
    waiting: set[str] = set()
    for i, message in enumerate(messages):
        blocks = message["content"]
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        if not blocks:
            return f"messages.{i}: all messages must have non-empty content"
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if set(results) != waiting or len(results) != len(waiting):
            return f"messages.{i}: `tool_use` ids were found without `tool_result` blocks immediately after"
        if any(b["type"] == "tool_result" for b in blocks[len(results) :]):
            return f"messages.{i}: `tool_result` blocks must come first"
        waiting = {b["id"] for b in blocks if b["type"] == "tool_use"}
        if (why := next(filter(None, map(_anthropic_block, blocks)), None)) is not None:
            return f"messages.{i}.content: {why}"
    last = messages[-1]["content"]
    if messages[-1]["role"] == "assistant" and isinstance(last, str) and last != last.rstrip():
        return "messages: final assistant content cannot end with trailing whitespace"
    return "messages: `tool_use` without `tool_result`" if waiting else None


def _anthropic_block(block: Body) -> Refusal:
    if block["type"] == "text" and not block["text"].strip():
        return "text content blocks must contain non-whitespace text"
    if block["type"] == "thinking" and not block.get("signature"):
        return "thinking.signature: Field required"
    if block["type"] == "tool_use":
        if not re.fullmatch("[a-zA-Z0-9_-]+", block["id"]):
            return "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", block["name"]) or not isinstance(block["input"], dict):
            return "tool_use.name: String should match pattern"
    return None


RESPONSES_FIELDS = {
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "stream",
    "store", "include", "reasoning", "text", "temperature", "top_p", "metadata", "previous_response_id", "truncation",
    "user", "stream_options",
}  # fmt: skip
"""The parameters of the official package's `responses.create` that a run may need."""


def openai_responses(body: Body) -> Refusal:
    """The Responses API."""
    if unknown := body.keys() - RESPONSES_FIELDS:
        return f"Unknown parameter: '{sorted(unknown)[0]}'."
    flat = [{"function": tool} for tool in body.get("tools", ())]
    if (why := _tools({"tools": flat}, openai_schema)) is not None:
        return why.replace(".function", "")
    return _responses_items(body["input"] if isinstance(body["input"], list) else [])


def _responses_items(items: list[Body]) -> Refusal:
    waiting: set[str] = set()
    for i, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            if item["call_id"] not in waiting:
                return f"No tool call found for function call output with call_id {item['call_id']}."
            waiting.discard(item["call_id"])
        elif kind == "function_call":
            if len(item["call_id"]) > 64 or not re.fullmatch("[a-zA-Z0-9_-]{1,64}", item["name"]):
                return f"Invalid 'input[{i}].call_id': string too long"
            if not str(item.get("id", "fc_")).startswith("fc"):
                return f"Invalid 'input[{i}].id': Expected an ID that begins with 'fc'."
            waiting.add(item["call_id"])
        elif kind == "reasoning":
            if i + 1 == len(items) or not str(item["id"]).startswith("rs"):
                return f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
        elif (why := _responses_message(item)) is not None:
            return f"Invalid 'input[{i}].content': {why}"
    return f"No tool output found for function call {sorted(waiting)[0]}." if waiting else None


def _responses_message(item: Body) -> Refusal:
    parts = item["content"]
    parts = [] if isinstance(parts, str) else parts
    wanted = {"output_text", "refusal"} if item["role"] == "assistant" else {"input_text", "input_image", "input_file"}
    wrong = [part["type"] for part in parts if part["type"] not in wanted]
    return f"Invalid value: '{wrong[0]}'. Supported values are: {sorted(wanted)}" if wrong else None


VENDORS: Mapping[str, Callable[[Body], Refusal]] = {
    "anthropic": anthropic,
    "openai-responses": openai_responses,
    "openai": openai,
    "mistral": mistral,
    "gemini": gemini,
    "llama-server": llama_server,
    "ollama": ollama,
}
