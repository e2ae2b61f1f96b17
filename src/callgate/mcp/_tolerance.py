"""A server's messages, made to fit the specification before the SDK sees them.

The SDK validates a page of a list as one value, so one definition that does not fit would cost all the others; a
result of a call is validated in the same way. Each item is therefore validated by itself here.

Law: one definition that does not fit costs only itself, and is named.
(tests/test_mcp_field.py::test_one_odd_definition_costs_only_itself)
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

MAX_NAME: Final = 80
"""Characters of a name that a message repeats."""
MAX_REMEMBERED: Final = 10_000
"""Requests whose answers are still awaited; a server that never answers must not make this grow."""
PAGES: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""Lists, and under which name their items stand."""
STRICTEST: Final = "2025-11-25"
"""The version whose definitions every later one takes as well."""
KEPT: Final = {
    "tools/list": ("name", "description", "inputSchema", "annotations"),
    "resources/list": ("name", "uri", "description", "mimeType", "size"),
    "resources/templates/list": ("name", "uriTemplate", "description", "mimeType"),
    "prompts/list": ("name", "description", "arguments"),
}
"""The fields that are used; what nobody uses (icons, output schemas) cannot make a definition useless."""
OPTIONAL: Final = ("description", "mimeType", "size", "annotations", "arguments")
SAMPLING: Final = "it asked for an answer of the model (sampling), which callgate gives to no server"


class Tolerance:
    """Knows which request an answer belongs to, and mends what comes."""

    def __init__(self, problem: Callable[[str], None], asked: Callable[[str], None]) -> None:
        self._problem = problem
        self._asked = asked
        self._methods: dict[str | int, str] = {}

    def sent(self, item: object) -> None:
        """A message to the server."""
        message = getattr(item, "message", None)
        method, number = getattr(message, "method", None), getattr(message, "id", None)
        if method is not None and number is not None and (method in PAGES or method == "tools/call"):
            self._methods[number] = method
            if len(self._methods) > MAX_REMEMBERED:
                del self._methods[next(iter(self._methods))]

    def received(self, item: object) -> None:
        """A message from the server; an answer is mended in place."""
        message = getattr(item, "message", None)
        if getattr(message, "method", None) == "sampling/createMessage":
            self._asked(SAMPLING)
        result = getattr(message, "result", None)
        method = self._methods.pop(message.id, None) if hasattr(message, "id") and result is not None else None  # type: ignore[union-attr]
        if method is None or not isinstance(result, dict):
            return
        if method == "tools/call":
            _mend_call(result)
        else:
            _mend_page(method, result, self._problem)


class Reading:
    """The stream of a server's messages, mended as they are read."""

    def __init__(self, stream: Any, tolerance: Tolerance) -> None:
        self._stream = stream
        self._tolerance = tolerance

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    async def receive(self) -> object:
        item = await self._stream.receive()
        self._tolerance.received(item)
        return item

    def __aiter__(self) -> Reading:
        return self

    async def __anext__(self) -> object:
        item = await self._stream.__anext__()
        self._tolerance.received(item)
        return item

    async def __aenter__(self) -> Reading:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> object:
        return await self._stream.__aexit__(*error)


class Writing:
    """The stream of our messages, noted as they are sent."""

    def __init__(self, stream: Any, tolerance: Tolerance) -> None:
        self._stream = stream
        self._tolerance = tolerance

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    async def send(self, item: object) -> None:
        self._tolerance.sent(item)
        await self._stream.send(item)

    async def __aenter__(self) -> Writing:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> object:
        return await self._stream.__aexit__(*error)


# --- lists ------------------------------------------------------------------------------------------------------------


def _mend_page(method: str, page: dict[str, object], problem: Callable[[str], None]) -> None:
    """Leaves only the items that fit, and gives the page what some servers forget."""
    key = PAGES[method]
    items = page.get(key)
    if not isinstance(items, list):
        problem(f"its answer to {method} holds no list of {key}")
        items = []
    page[key] = [item for found in items if (item := _mended(method, found, problem)) is not None]
    if not isinstance(page.get("nextCursor"), str):
        page.pop("nextCursor", None)
    if not isinstance(page.get("_meta"), dict):
        page.pop("_meta", None)
    page["resultType"], page["ttlMs"], page["cacheScope"] = "complete", 0, "private"  # nothing is cached


def _mended(method: str, found: object, problem: Callable[[str], None]) -> dict[str, object] | None:
    """The item, if it fits once what is optional and odd is left away; None: it is named as a problem."""
    import mcp_types.methods
    from pydantic import ValidationError

    name = found.get("name", found.get("uri", "?")) if isinstance(found, dict) else "?"
    label = repr(str(name)[:MAX_NAME])
    if not isinstance(found, dict):
        problem(f"{label}: left out; it is no object")
        return None
    item = {key: found[key] for key in KEPT[method] if found.get(key) is not None}
    if method == "tools/list":
        item["inputSchema"] = _object_schema(item.get("inputSchema", {}))
    elif "name" not in item and isinstance(found.get("uri"), str):
        item["name"] = found["uri"]

    def error_of(item: Mapping[str, object]) -> ValidationError | None:
        page = {PAGES[method]: [item]}
        try:
            mcp_types.methods.parse_server_result(method, STRICTEST, page)
        except ValidationError as error:
            return error
        return None

    error = error_of(item)
    for key in OPTIONAL:
        if error is None:
            break
        if key in item and any(key in place["loc"] for place in error.errors(include_url=False, include_input=False)):
            problem(f"{label}: its {key} is not what the specification says and was left out")
            del item[key]
            error = error_of(item)
    if error is not None:
        problem(f"{label}: left out; {_first(error)}")
        return None
    return item


def _object_schema(schema: object) -> object:
    """Arguments are an object in any case, so a schema that forgets to say so means the same with it."""
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind is None or (isinstance(kind, list) and "object" in kind):
        return {**schema, "type": "object"}
    return schema


def _first(error: Any) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
    return f"{where}: {first['msg']}"


# --- results ----------------------------------------------------------------------------------------------------------


def _mend_call(result: dict[str, Any]) -> None:
    """A result of a call that the SDK takes: what it does not know becomes text, and nothing is lost."""
    if result.get("resultType", "complete") != "complete" or "inputRequests" in result:
        return  # it asks for more first
    content = result.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    result["content"] = [_block(block) for block in blocks]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        result["structuredContent"] = {"result": structured}  # as SDKs wrap what is no object
    if structured is None:
        result.pop("structuredContent", None)
    result["isError"] = bool(result.get("isError", False))
    if not isinstance(result.get("_meta"), dict):
        result.pop("_meta", None)
    result["resultType"] = "complete"


@functools.cache
def _blocks() -> Any:
    import mcp_types
    from pydantic import TypeAdapter

    return TypeAdapter(mcp_types.ContentBlock)


def _block(block: object) -> object:
    from pydantic import ValidationError

    if isinstance(block, dict):
        block = {key: value for key, value in block.items() if key not in ("annotations", "_meta", "icons")}
        try:
            _blocks().validate_python(block, by_name=False)
        except ValidationError:
            pass
        else:
            return block
    text = block if isinstance(block, str) else json.dumps(block, ensure_ascii=False)
    return {"type": "text", "text": text}
