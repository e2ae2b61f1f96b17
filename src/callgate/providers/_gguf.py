"""Reads what a GGUF file says about itself: name, context length, chat template.

One law: only the head is read, and a damaged file is a `ConfigError`, never a crash or an endless read.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO, Any

from callgate.errors import ConfigError

_SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX = 64 * 1024 * 1024
"""Bytes of one string or array item list; real heads are below 20 MB."""


def metadata(path: Path) -> dict[str, Any]:
    """The key-value pairs of the head; arrays (vocabularies) are left out."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ConfigError(f"{path}: not a GGUF file")
            version, _, pairs = struct.unpack("<IQQ", _take(file, 20))
            if version not in (2, 3) or pairs > 100_000:
                raise ConfigError(f"{path}: GGUF version {version} with {pairs} entries cannot be read")
            out: dict[str, Any] = {}
            for _ in range(pairs):
                key = _string(file)
                value = _value(file, _number(file, "I"))
                if value is not None:
                    out[key] = value
            return out
    except (OSError, struct.error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _take(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise struct.error("the file ends in its head")
    return data


def _number(file: IO[bytes], code: str) -> Any:
    return struct.unpack(f"<{code}", _take(file, struct.calcsize(code)))[0]


def _string(file: IO[bytes]) -> str:
    size = _number(file, "Q")
    if size > _MAX:
        raise struct.error(f"a string of {size} bytes")
    return _take(file, size).decode("utf-8")


def _value(file: IO[bytes], kind: int) -> Any:
    if kind in _SIZES:
        return _number(file, _SIZES[kind])
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        raise struct.error(f"value type {kind} is unknown")
    inner, count = _number(file, "I"), _number(file, "Q")
    if inner in _SIZES:
        file.seek(struct.calcsize(_SIZES[inner]) * count, 1)
    elif inner == _STRING:
        for _ in range(count):
            file.seek(_number(file, "Q"), 1)
    else:
        raise struct.error(f"an array of type {inner}")
    return None
