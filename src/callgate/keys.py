"""What a call is known by: the idempotency key it is started with, and the hash of what it would do.

One law: equal input, equal key, in every process and every version; nothing random.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_dump = json.JSONEncoder(sort_keys=True, default=str).encode


def idempotency_key(run_id: str, call_id: str) -> str:
    """The key that a write is started with: the same for the same call of the same run, and for no other."""
    return hashlib.sha256(json.dumps([run_id, call_id]).encode("ascii")).hexdigest()[:32]


def arguments_hash(tool: str, arguments: Mapping[str, Any]) -> str:
    """Equal for the same tool with the same arguments, whatever the order of their keys and the spelling of numbers."""
    text = _dump([tool, _plain(arguments)])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _plain(value: Any) -> Any:
    """1.0 is the number 1, in JSON and for an integer of a schema: the same write."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (dict, Mapping)):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
