"""Files beside a prompt."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from callgate.apps import attach
from callgate.apps.cli import cli
from callgate.errors import ConfigError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize(
    ("name", "data", "kind", "held"),
    [
        ("a.png", PNG, "image_url", "data:image/png;base64,"),
        ("a.JPG", PNG, "image_url", "data:image/jpeg;base64,"),
        ("a.wav", b"RIFF", "input_audio", '"wav"'),
        ("a.mp3", b"ID3", "input_audio", '"mp3"'),
        ("a.pdf", b"%PDF-1.7", "file", "data:application/pdf;base64,"),
        ("说明.md", "你好 🙂".encode(), "text", "你好 🙂"),
        ("a.svg", b"<svg/>", "text", "<svg/>"),
        ("Makefile", b"all:\n", "text", "Makefile:\\nall:"),
    ],
)
def test_a_file_is_sent_as_what_it_is(tmp_path: Path, name: str, data: bytes, kind: str, held: str) -> None:
    (tmp_path / name).write_bytes(data)
    parts = attach.prompt("What is it?", [str(tmp_path / name)])
    assert isinstance(parts, list)
    assert [part["type"] for part in parts] == [kind, "text"]
    assert held in json.dumps(parts[0], ensure_ascii=False)
    assert parts[1]["text"] == "What is it?"


def test_without_files_the_prompt_is_a_text() -> None:
    assert attach.prompt("Hi", []) == "Hi"


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [("none.png", None, "No such file"), ("a.bin", b"\xff\xfe\x00", "nor UTF-8 text"), (".", None, "directory")],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_asked(
    tmp_path: Path, name: str, data: bytes | None, says: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    done = CliRunner().invoke(cli, ["ask", "-m", "http://127.0.0.1:9/v1#m", "-a", str(tmp_path / name), "x"])
    assert isinstance(done.exception, ConfigError)
    assert says in str(done.exception)


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate(attach.MAX_FILE + 1)
    with pytest.raises(ConfigError, match="more than 20 MB"):
        attach.prompt("x", [str(tmp_path / "a.png")])
