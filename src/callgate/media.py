"""Images, sounds and files as values: in prompts, and as what a tool returns.

Law: each is a content part in the OpenAI form, and every format writes it in its own form or refuses it.
(tests/test_media.py::test_each_format_sends_it_in_its_own_form_or_refuses_it)
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Self

from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.types import Part

__all__ = ["File", "Image", "Media", "Sound"]

IMAGES = {
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"RIFF....WEBP",
}
"""How the bytes of an image begin."""
SOUNDS = {"wav": rb"RIFF....WAVE", "mp3": rb"ID3|\xff[\xf2\xf3\xfa\xfb]"}
"""How the bytes of a sound begin."""


def kind_in(data: bytes, kinds: dict[str, bytes]) -> str | None:
    """What the bytes are, by how they begin."""
    return next((kind for kind, magic in kinds.items() if re.match(magic, data, re.DOTALL)), None)


@dataclass(frozen=True)
class Media:
    """Bytes, or the address (https or data:) where they are."""

    data: bytes | str

    @classmethod
    def open(cls, path: str | PurePath) -> Self:
        """What stands in a file. Raises OSError if it cannot be read."""
        with open(path, "rb") as file:
            return cls(file.read())

    @property
    def part(self) -> Part:
        """The content part. Raises ConfigError for bytes that are no such thing."""
        raise NotImplementedError

    def _address(self, kind: str) -> str:
        if isinstance(self.data, str):
            return self.data
        return f"data:{kind};base64,{base64.b64encode(self.data).decode('ascii')}"


@dataclass(frozen=True)
class Image(Media):
    """A PNG, JPEG, GIF or WebP: `Image.open("cat.png")`, `Image(data)`, `Image("https://…")`."""

    @property
    def part(self) -> Part:
        """The content part."""
        kind = "" if isinstance(self.data, str) else kind_in(self.data, IMAGES)
        if kind is None:
            raise ConfigError("Image: a PNG, JPEG, GIF or WebP is needed, and these bytes are none of them")
        return {"type": "image_url", "image_url": {"url": self._address(kind)}}


@dataclass(frozen=True)
class Sound(Media):
    """A WAV or MP3, as bytes; no API takes an address."""

    @property
    def part(self) -> Part:
        """The content part."""
        kind = None if isinstance(self.data, str) else kind_in(self.data, SOUNDS)
        if kind is None or isinstance(self.data, str):
            raise ConfigError("Sound: the bytes of a WAV or MP3 are needed")
        encoded = base64.b64encode(self.data).decode("ascii")
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": kind}}


@dataclass(frozen=True)
class File(Media):
    """A document with its name, and its kind where that is not a PDF."""

    name: str = "document.pdf"
    kind: str = "application/pdf"

    @classmethod
    def open(cls, path: str | PurePath) -> Self:
        """What stands in a file, under its own name."""
        with open(path, "rb") as file:
            return cls(file.read(), PurePath(path).name)

    @property
    def part(self) -> Part:
        """The content part."""
        return {"type": "file", "file": {"filename": self.name, "file_data": self._address(self.kind)}}
