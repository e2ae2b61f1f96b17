"""Reads what a GGUF file says about itself: name, context length, chat template.

Law: only the head is read, and a damaged file is a `ConfigError`, never a crash or an endless read.
(tests/test_providers_limits.py::test_a_damaged_gguf_is_a_config_error)

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO, Any, Final

from callgate.errors import ConfigError

_SIZES: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
MAX_HEAD: Final = 128 * 1024 * 1024
"""Bytes of the whole head; real ones, with vocabularies of 260,000 words, are below 20 MB."""
MAX_ITEMS: Final = 2_000_000
"""Strings in all arrays together. Each costs a read: a count of 2^62 in a sparse file would be read for ever."""
_MAX_PAIRS: Final = 100_000


def metadata(path: Path) -> dict[str, Any]:
    """The key-value pairs of the head; arrays (vocabularies) are left out. Raises ConfigError for a damaged file."""
    try:
        with path.open("rb") as file:
            return _Head(file, path.stat().st_size).read()
    except (OSError, struct.error, ValueError, OverflowError) as error:
        raise ConfigError(f"{path}: cannot be read as GGUF: {error}") from error


class _Head:
    """The head of one file. Raises struct.error for what cannot be right."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._end = min(size, MAX_HEAD)
        self._at = 0
        self._items = 0

    def read(self) -> dict[str, Any]:
        """All pairs but arrays."""
        if self._take(4) != b"GGUF":
            raise struct.error("not a GGUF file")
        version, _, pairs = struct.unpack("<IQQ", self._take(20))
        if version not in (2, 3) or pairs > _MAX_PAIRS:
            raise struct.error(f"version {version} with {pairs} entries")
        out: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string()
            value = self._value(self._number("I"))
            if value is not None:
                out[key] = value
        return out

    def _take(self, size: int) -> bytes:
        self._pass(size)
        data = self._file.read(size)
        if len(data) != size:
            raise struct.error("the file ends in its head")
        return data

    def _skip(self, size: int) -> None:
        self._pass(size)
        self._file.seek(size, 1)

    def _pass(self, size: int) -> None:
        """Counts bytes before they are touched: a length of 2^63 is no place to seek to."""
        self._at += size
        if self._at > self._end:
            raise struct.error(f"the head goes on beyond byte {self._end} (the file's end, or MAX_HEAD)")

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _string(self) -> str:
        return self._take(self._number("Q")).decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind in _SIZES:
            return self._number(_SIZES[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise struct.error(f"value type {kind} is unknown")
        self._array(self._number("I"), self._number("Q"))
        return None

    def _array(self, inner: int, count: int) -> None:
        if inner in _SIZES:
            self._skip(struct.calcsize(f"<{_SIZES[inner]}") * count)
        elif inner == _STRING:
            self._items += count
            if self._items > MAX_ITEMS:
                raise struct.error(f"arrays of more than {MAX_ITEMS} strings (MAX_ITEMS)")
            for _ in range(count):
                self._skip(self._number("Q"))
        else:
            raise struct.error(f"an array of type {inner}")
