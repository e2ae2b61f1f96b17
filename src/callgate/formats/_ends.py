"""How a message ended, whatever the server calls it.

One law: a stream is finished only if the server said so; an unknown word never makes a cut answer a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callgate.types import FinishReason, Usage

_WORDS: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "complete": "stop",
    "completed": "stop",
    "finish": "stop",
    "finished": "stop",
    "success": "stop",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",  # Zhipu
    "recitation": "content_filter",  # Gemini
    "refusal": "content_filter",
}
_PARTS: tuple[tuple[tuple[str, ...], FinishReason], ...] = (
    (("max_", "length", "limit", "truncat"), "length"),
    (("safety", "filter", "block", "prohibit"), "content_filter"),
    (("error", "fail", "abort", "cancel", "timeout", "malformed", "insufficient", "unavailable", "overload"), "error"),
)


def reason_of(raw: str) -> tuple[FinishReason, bool]:
    """Our word for the server's, and whether the server's word is one that we know."""
    word = raw.strip().lower()
    if word in _WORDS:
        return _WORDS[word], True
    for parts, reason in _PARTS:
        if any(part in word for part in parts):
            return reason, True
    return "stop", False


def error_text(value: Any) -> str:
    """The message in an error of any shape: text, an object, a list of them."""
    if isinstance(value, str):
        return value.strip() or "the server reported an error without words"
    if isinstance(value, list) and value:
        return error_text(value[0])
    if isinstance(value, Mapping):
        for key in ("error", "message", "detail", "msg", "reason"):
            if value.get(key):
                text = error_text(value[key])
                kind = value.get("type") or value.get("code") or value.get("status")
                raw = _raw(value)
                shown = f"{text} ({kind})" if kind and str(kind) not in text and not isinstance(kind, bool) else text
                return f"{shown}: {raw}" if raw and raw not in shown else shown
        return str(dict(value))[:500]
    return str(value)[:500]


def _raw(value: Mapping[str, Any]) -> str:
    """OpenRouter puts the words of the provider behind it into metadata.raw."""
    metadata = value.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    return raw.strip()[:500] if isinstance(raw, str) else ""


def usage_of(value: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> Usage | None:
    """Token counts by our names; `names` gives for each of them the path in `value`. None if none is there."""
    out: dict[str, int] = {}
    for ours, path in names.items():
        found: Any = value
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, (int, float)) and not isinstance(found, bool) and found >= 0:
            out[ours] = int(found)
    if not out:
        return None
    return {"input": out.pop("input", 0), "output": out.pop("output", 0), **out}
