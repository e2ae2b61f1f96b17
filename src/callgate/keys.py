"""What a call is known by: the idempotency key it is started with, and the keyed hash of what it would do.

Law: equal input, equal key, in every process and every version; nothing random.
(tests/test_keys.py::test_equal_arguments_have_equal_hashes)

A hash is computed once, from the true arguments, when a call was read, and recorded. It is keyed with a secret of the
ledger, so that nobody can guess a short secret among the arguments from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

MAX_KEY = 64
"""Bytes of a key that BLAKE2b takes (RFC 7693, 2.1)."""

_dump = json.JSONEncoder(sort_keys=True, default=str).encode


def idempotency_key(run_id: str, call_id: str) -> str:
    """The key that a write is started with: the same for the same call of the same run, and for no other."""
    return hashlib.sha256(json.dumps([run_id, call_id]).encode("ascii")).hexdigest()[:32]


def arguments_hash(tool: str, arguments: Mapping[str, object], *, key: bytes) -> str:
    """Equal for the same tool with the same arguments, whatever the order of their keys and the spelling of numbers.

    `key`: the ledger's `hash_key()`, at most 64 bytes; hashes under different keys have nothing to do with each other.
    """
    text = _dump([tool, _plain(arguments)])
    return hashlib.blake2b(text.encode("ascii"), key=key[:MAX_KEY], digest_size=32).hexdigest()


def without_defaults(arguments: Mapping[str, object], parameters: Mapping[str, Any]) -> Mapping[str, object]:
    """The arguments that say more than the schema's defaults do: a default that is written out changes no effect."""
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return arguments
    required = parameters.get("required") or ()
    return {
        name: value
        for name, value in arguments.items()
        if name in required or not _is_default(value, properties.get(name))
    }


def _is_default(value: object, schema: object) -> bool:
    return (
        isinstance(schema, Mapping) and "default" in schema and _dump(_plain(value)) == _dump(_plain(schema["default"]))
    )


def _plain(value: object) -> object:
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
