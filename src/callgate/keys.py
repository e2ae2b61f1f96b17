"""What a call is known by: the idempotency key it is started with, and the hash of what it would do.

One law: equal input, equal key, in every process and every version; nothing random.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def idempotency_key(run_id: str, call_id: str) -> str:
    """The key that a write is started with: the same for the same call of the same run, and for no other."""
    return hashlib.sha256(json.dumps([run_id, call_id]).encode("ascii")).hexdigest()[:32]


def arguments_hash(tool: str, arguments: Mapping[str, Any]) -> str:
    """Equal for the same tool with the same arguments, whatever the order of their keys; 1 and 1.0 differ."""
    text = json.dumps([tool, dict(arguments)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
