"""What a server's tool returned, as a value.

Law: a result that says that the tool failed is an error, and everything else reaches the model as it was sent.
(tests/test_mcp.py::test_calls_return_structured_values_texts_and_errors)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from callgate.errors import Denied, NotFound, NotStarted, ToolFailure
from callgate.mcp._definitions import MAX_TEXT

SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""Kinds of sound that models take, and how the API calls them."""


STATUS: Final = "callgate/status"
"""Under which name of a result's `_meta` our own server tells how a call ended."""
REFUSALS: Final[Mapping[str, type[ToolFailure]]] = {
    "denied": Denied,
    "not_started": NotStarted,
    "invalid_arguments": NotStarted,
    "unknown_tool": NotStarted,
    "not_found": NotFound,
}


class ServerError(ToolFailure):
    """The server ran the tool and reported that it failed."""


def value_of(result: Any, *, believed: bool = False, refused: str = "") -> object:
    """What a tool returned: its structured content, its text, or both under the protocol's own names where the text
    says something else. Raises `ServerError` if the result says that the tool failed; if what it says of a refusal is
    `believed`, `Denied`, `NotStarted` or `NotFound`. `refused` says why the tool's own question was not answered."""
    texts = [text for block in result.content if (text := text_of(block))]
    if result.is_error:
        text = " ".join(texts)[:MAX_TEXT] or "the tool failed without a reason"
        raise _error_of(result, f"{text} (its question was not answered: {refused})" if refused else text, believed)
    text, structured = "\n".join(texts), result.structured_content
    value: object = text
    if structured is not None:
        plain = _unwrapped(structured)
        value = plain if _says_the_same(texts, plain, structured) else {"content": text, "structuredContent": plain}
    parts = [part for block in result.content if (part := _part(block)) is not None]
    return [*([value] if value != "" else []), *parts] if parts else value


def _error_of(result: Any, text: str, believed: bool) -> ToolFailure:
    """A stranger's word is no proof that nothing happened, so a refusal counts only if the server is believed."""
    status = (result.meta or {}).get(STATUS) if believed else None
    return REFUSALS.get(status if isinstance(status, str) else "", ServerError)(text)


def _says_the_same(texts: Sequence[str], plain: object, structured: object) -> bool:
    """Whether the texts are only the structured content once more: as JSON, as itself, or one item a text."""
    if not texts:
        return True
    if len(texts) == 1:
        wanted = {_canonical(plain), _canonical(structured)}
        return texts[0] == plain or _canonical(_parsed(texts[0])) in wanted
    if isinstance(plain, list) and len(plain) == len(texts):
        return all(
            text == item or _canonical(_parsed(text)) == _canonical(item)
            for text, item in zip(texts, plain, strict=True)
        )
    return False


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return object()  # equal to nothing


def _canonical(value: object) -> str:
    """One text for one JSON value: 1 and true differ, the order of fields does not count."""
    return json.dumps(value, sort_keys=True, default=repr)


def _unwrapped(value: object) -> object:
    """SDKs wrap a plain value as {"result": value}."""
    return value["result"] if isinstance(value, dict) and list(value) == ["result"] else value


def text_of(block: Any) -> str:
    """What a model reads of a block; nothing for one that goes to it as a part."""
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio" if _part(block) is not None:
            return ""
        case "image" | "audio":
            return f"[{block.type} {block.mime_type}, {len(block.data) * 3 // 4} bytes]"
        case "resource":
            inner = block.resource
            return str(getattr(inner, "text", None) or f"[resource {inner.uri}]")
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case other:
            return f"[{other}]"


def _part(block: Any) -> dict[str, object] | None:
    return part_of(block.type, str(getattr(block, "mime_type", "")), getattr(block, "data", ""))


def part_of(kind: str, mime: str, data: str) -> dict[str, object] | None:
    """An image, or a sound of a kind that models take, as a content part."""
    if kind == "image" and re.fullmatch(r"image/[\w.+-]{1,40}", mime):
        return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}
    if kind == "audio" and (form := SOUNDS.get(mime)) is not None:
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    return None
