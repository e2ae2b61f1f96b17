"""What is told of a model in this process: how far it has read, its size, its speed."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callgate import events as e
from callgate.apps import speeds, tui
from callgate.providers.llamacpp import Speed

MEASURED = Speed(240.4, 38.2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "callgate" / "speeds.json"


def model(tmp_path: Path, speed: Speed | None = MEASURED) -> Any:
    """A provider with a file, as far as it is looked at here."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x" * 93_000)
    return SimpleNamespace(path=path, speed=speed, model="Small")


def test_size_and_speed_are_told_on_first_use_and_then_known(cache: Path, tmp_path: Path) -> None:
    provider = model(tmp_path)
    assert speeds.known_speed(provider.path) == ""
    told = speeds.first_use(provider)
    assert told == "first use of Small: 0 MB, reads 240 and writes 38 tokens a second on this machine"
    assert speeds.first_use(provider) == ""
    assert speeds.known_speed(provider.path) == "reads 240 and writes 38 tokens a second on this machine"
    provider.path.write_bytes(b"another")
    assert speeds.first_use(provider) != ""
    assert sorted(path.name for path in cache.parent.iterdir()) == ["speeds.json"]


def test_what_has_no_file_or_no_speed_is_not_told(cache: Path, tmp_path: Path) -> None:
    assert speeds.first_use(model(tmp_path, speed=None)) == ""
    assert speeds.first_use(SimpleNamespace(model="far away")) == ""  # type: ignore[arg-type]
    assert not cache.exists()


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"a": 1}', "\x00"])
def test_a_damaged_cache_is_measured_again(cache: Path, tmp_path: Path, damage: str) -> None:
    cache.parent.mkdir()
    cache.write_text(damage, "utf-8")
    assert speeds.first_use(model(tmp_path)) != ""
    assert speeds.first_use(model(tmp_path)) == ""


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert speeds.first_use(model(tmp_path)) == speeds.first_use(model(tmp_path)) != ""


def test_the_live_line_says_how_far_the_prompt_is_read_until_the_first_token() -> None:
    out = io.StringIO()
    view = tui.Terminal(out, color=False, size=lambda: (60, 20))
    view.show(e.TurnStarted(1, "routed"), 0.0)
    view.tick(1.0, "reading, 512 of 1,024 tokens")
    assert out.getvalue().endswith("reading, 512 of 1,024 tokens · 1.0 s")
    view.tick(2.0)
    assert out.getvalue().endswith("generating · 2.0 s")
    view.show(e.CallStarted("c1", "add"), 2.0)
    view.tick(3.0, "reading, 512 of 1,024 tokens")  # it is over: what is shown is the call
    assert out.getvalue().endswith("calling add · 1.0 s")
