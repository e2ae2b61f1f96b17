r"""Half characters in JSON: an escape such as `\ud83d` without its other half, and bytes that are no UTF-8.

A server that cuts a text in the middle of an emoji sends one (JavaScript's `JSON.stringify` writes it as an escape).
No parser of the SDK takes it, and an answer that cannot be read is an answer that never comes.

Law: what is sound stays as it is, to the byte; a half character becomes U+FFFD, and nothing else changes.
(tests/test_mcp_encoding.py::test_only_half_characters_change)
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Every escape, so that the second backslash of one is not taken for the first of another."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def sound_json(data: bytes) -> bytes:
    """A JSON text without half characters."""
    if b"\\ud" in data or b"\\uD" in data:
        data = _ESCAPE.sub(lambda found: b"\\ufffd" if found["half"] else found[0], data)
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace").encode()
    return data


def sound_text(text: str) -> str:
    """A text without half characters."""
    return _SURROGATES.sub("\ufffd", text)


def is_sound(text: str) -> bool:
    """Whether a text has a form in UTF-8."""
    return _SURROGATES.search(text) is None
