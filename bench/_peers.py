"""What callgate is measured against: what people write by hand, and libraries from PyPI, installed when missing.

One law: a peer does the same work on the same chunks as callgate beside it, in the form that is best for the peer.

Left out, with the reason: vLLM and SGLang (their parsers come only with gigabytes of CUDA), llama.cpp's parser (not
exposed by its Python wheels), openai-harmony and mistral-common (they read token ids, and fetch their vocabularies).
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any


def library(module: str, package: str) -> Any:
    """The module of a package from PyPI, installed into this environment if it is missing; None if it cannot be had."""
    try:
        return importlib.import_module(module)
    except ImportError:
        uv = shutil.which("uv", path=f"{sys.prefix}/bin") or shutil.which("uv")
        pip = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
        print(f"installing {package} …", file=sys.stderr)
        if subprocess.run([*pip, "-q", package], check=False).returncode:
            print(f"{package} cannot be had here; its rows are left out", file=sys.stderr)
            return None
        importlib.invalidate_caches()
        return importlib.import_module(module)


class Empty:
    """The floor: one method call a chunk that does nothing but give back an empty list."""

    def feed(self, text: str) -> list[Any]:
        """Nothing."""
        return []

    def finish(self) -> list[Any]:
        """Nothing."""
        return []


def rescan(text: str, start_tag: str, end_tag: str) -> tuple[str, str | None, list[str]]:
    """The plain rescan: the whole text is searched again for its tags, as people write it by hand.

    It takes the shortest way to the three parts that `separate` gives.
    """
    shown, finished, rest = "", [], text
    while start_tag in rest:
        before, rest = rest.split(start_tag, 1)
        shown += before
        if end_tag not in rest:
            for length in range(len(end_tag) - 1, 0, -1):
                if rest.endswith(end_tag[:length]):
                    return shown, rest[:-length], finished
            return shown, rest, finished
        call, rest = rest.split(end_tag, 1)
        finished.append(call)
    for length in range(len(start_tag) - 1, 0, -1):
        if rest.endswith(start_tag[:length]):
            return shown + rest[:-length], None, finished
    return shown + rest, None, finished


def rescan_reader(chunks: Iterable[str], start_tag: str, end_tag: str) -> Any:
    """Plain rescan of a text that grows chunk by chunk."""
    text, parts = "", None
    for chunk in chunks:
        text += chunk
        parts = rescan(text, start_tag, end_tag)
    return parts


def full_rescan_reader(chunks: Iterable[str], start_tag: str, end_tag: str, partial: Callable[[bytes], Any]) -> Any:
    """Full rescan: what a reader gives after each chunk, that is the finished calls parsed and the open one in part."""
    text, parts = "", None
    for chunk in chunks:
        text += chunk
        shown, in_progress, finished = rescan(text, start_tag, end_tag)
        calls = [json.loads(call) for call in finished]
        parts = shown, calls, partial(in_progress.encode()) if in_progress else None
    return parts


class Separator:
    """The best that people write by hand for one dialect: incremental, right for every cut, and nothing else.

    Text before, between and after `start` … `end` comes out as ("text", …), the calls in pieces as ("call", …). No
    JSON, no names, no broken calls, no mentions, no limits, no reasoning.
    """

    def __init__(self, start: str, end: str) -> None:
        self._start, self._end = start, end
        self._inside = False
        self._marker, self._first = start, start[0]
        self._held = ""

    def feed(self, text: str) -> list[tuple[str, str]]:
        """The pieces that are now certain."""
        if not self._held and self._first not in text:  # nearly every chunk
            return [("call" if self._inside else "text", text)]
        out: list[tuple[str, str]] = []
        text = self._held + text
        self._held = ""
        while text:
            before, marker, rest = text.partition(self._marker)
            kind = "call" if self._inside else "text"
            if not marker:
                kept = self._begun(text)
                self._held = text[len(text) - kept :]
                before = text[: len(text) - kept]
                rest = ""
            if before:
                out.append((kind, before))
            if marker:
                self._inside = not self._inside
                self._marker = self._end if self._inside else self._start
                self._first = self._marker[0]
            text = rest
        return out

    def _begun(self, text: str) -> int:
        """How many characters at the end of the text may begin the marker."""
        for length in range(min(len(self._marker) - 1, len(text)), 0, -1):
            if text.endswith(self._marker[:length]):
                return length
        return 0

    def finish(self) -> list[tuple[str, str]]:
        """What was held."""
        return [("call" if self._inside else "text", self._held)] if self._held else []
