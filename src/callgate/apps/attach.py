"""Files that go with a prompt, as content parts in the OpenAI form.

Law: a file is sent as what it is, whole, or refused before anything is asked.
    (tests/test_attach.py::test_a_file_is_sent_as_what_it_is)
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterable
from pathlib import Path

from callgate.errors import ConfigError
from callgate.types import Part

MAX_FILE = 20_000_000
"""Bytes of one file: what the hosted APIs take of an image at most."""
_SOUNDS = {"audio/mpeg": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


def prompt(text: str, files: Iterable[str]) -> str | list[Part]:
    """The prompt: the text alone, or parts with the files before it."""
    parts = [_part(Path(file)) for file in files]
    if not parts:
        return text
    return [*parts, {"type": "text", "text": text}]


def _part(path: Path) -> Part:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigError(f"--attach {path}: {error.strerror}") from error
    if len(data) > MAX_FILE:
        raise ConfigError(f"--attach {path}: more than {MAX_FILE // 1_000_000} MB (MAX_FILE)")
    kind = mimetypes.guess_type(path.name)[0] or ""
    if kind.startswith("image/") and kind != "image/svg+xml":  # SVG is text, and no model takes it as an image
        return {"type": "image_url", "image_url": {"url": _url(kind, data)}}
    if kind in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": _base64(data), "format": _SOUNDS[kind]}}
    if kind == "application/pdf":
        return {"type": "file", "file": {"filename": path.name, "file_data": _url(kind, data)}}
    try:
        return {"type": "text", "text": f"{path.name}:\n{data.decode('utf-8-sig')}\n"}
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"--attach {path}: neither an image, a sound (mp3, wav), a PDF nor UTF-8 text (byte {error.start})"
        ) from None


def _url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{_base64(data)}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
