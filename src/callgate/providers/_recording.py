"""Raw streams in files: a failure in production becomes a test.

Law: what is played is what came, byte for byte and cut by cut, save the secrets, which never reach the file.
(tests/test_providers_replay.py::test_the_command_plays_a_recording_the_same_for_every_cut)

A recording is JSON lines: a head (wire, model, the body that was sent), then each piece with its time as `text` (or
`base64`, where a cut went through a character), then how it ended.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from callgate import masking
from callgate.errors import ConfigError

_COUNT = itertools.count(1)


@dataclass(slots=True, frozen=True)
class Recording:
    """A recorded stream."""

    wire: str
    model: str
    request: Mapping[str, Any]
    pieces: tuple[bytes, ...]
    times: tuple[float, ...] = field(default=(), compare=False)
    """Seconds since the request went out, one a piece."""
    end: str = "eof"
    """"eof", "left" (the reader had enough), or what broke it."""

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """The recording in a file; a file of bare bytes (`curl -N … > FILE`) is one piece of the wire it looks like."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        head = _json(data.partition(b"\n")[0])
        if not isinstance(head, dict) or head.get("callgate") != "recording":
            return cls(_wire_of(data), "", {}, (data,), (0.0,))
        pieces, times, end = [], [], "cut"
        for line in data.split(b"\n")[1:]:
            entry = _json(line)
            if not isinstance(entry, dict):
                continue  # the recorder was killed while it wrote
            if "end" in entry:
                end = str(entry["end"])
            elif "text" in entry or "base64" in entry:
                pieces.append(entry["text"].encode() if "text" in entry else base64.b64decode(entry["base64"]))
                times.append(float(entry.get("at", 0)))
        return cls(str(head["wire"]), str(head["model"]), head.get("request") or {}, tuple(pieces), tuple(times), end)


class Recorder:
    """Writes one stream to a file as it comes."""

    def __init__(self, file: IO[str], *, wire: str, model: str, body: Mapping[str, Any], secret: str = "") -> None:
        self._file = file
        self._secret = secret.encode()
        self._began = time.monotonic()
        self._end = "left"
        head = {
            "callgate": "recording",
            "version": 1,
            "wire": wire,
            "model": model,
            "request": masking.DEFAULT.value(dict(body)),
        }
        self._write(head)

    @classmethod
    def start(
        cls, place: Path | None, *, wire: str, model: str, body: Mapping[str, Any], secret: str = ""
    ) -> Recorder | None:
        """A recorder into the file `place`, or into a new file of the folder `place`; None without a place."""
        if place is None:
            return None
        path = place / f"{time.strftime('%Y%m%dT%H%M%S')}-{next(_COUNT):04}.jsonl" if place.is_dir() else place
        try:
            file = path.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise ConfigError(f"record: {path}: {error.strerror}") from error
        return cls(file, wire=wire, model=model, body=body, secret=secret)

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def piece(self, piece: bytes) -> None:
        """The next piece; the end of the stream is the empty one."""
        if not piece:
            self._end = "eof"
            return
        if self._secret:
            piece = piece.replace(self._secret, b"*" * len(self._secret))
        at = round(time.monotonic() - self._began, 4)
        try:
            self._write({"at": at, "text": piece.decode("utf-8")})
        except UnicodeDecodeError:
            self._write({"at": at, "base64": base64.b64encode(piece).decode("ascii")})

    def broke(self, words: str) -> None:
        """The stream broke."""
        self._end = words

    def close(self) -> None:
        """The last line, and the file is whole."""
        self._write({"at": round(time.monotonic() - self._began, 4), "end": self._end})
        self._file.close()


_MARKS = ((b"message_start", "anthropic"), (b'"response.', "responses"), (b'"choices"', "openai"))
"""What the beginning of a stream of each API holds."""


def _wire_of(data: bytes) -> str:
    """The API that bare bytes look like."""
    head = data[:4096]
    return next((wire for mark, wire in _MARKS if mark in head), "ollama" if data.lstrip()[:1] == b"{" else "openai")


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
