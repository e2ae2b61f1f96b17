"""The release kit: changelog, licences, bill of materials."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import house

RELEASE: dict[str, Any] = runpy.run_path(str(house.ROOT / "scripts" / "release.py"))


def test_a_step_that_fails_fails_the_release(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise RELEASE["Failed"]("no index; NOT AUDITED")

    assert RELEASE["run"]({"one": lambda: "fine", "two": broken, "three": lambda: "fine"}) == ["two"]
    assert "two: FAILED: no index; NOT AUDITED" in capsys.readouterr().out


def test_the_changelog_is_assembled_from_the_fragments(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"],
        cwd=house.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    fragments = [p for p in (house.ROOT / "changelog.d").glob("*.md") if not p.name.startswith("_")]
    assert "## 9.9.9" in done.stdout
    for path in fragments:
        assert path.read_text("utf-8").split("\n")[0][:40] in done.stdout, path.name


def test_every_requirement_has_a_licence_that_is_allowed_and_stands_in_the_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RELEASE["licences"].__globals__, "DIST", tmp_path)
    assert "all allowed" in RELEASE["licences"]()
    RELEASE["sbom"]("9.9.9")
    bill = json.loads((tmp_path / "sbom.json").read_text("utf-8"))
    names = {part["name"].lower() for part in bill["components"]}
    assert {"aiohttp", "click", "pydantic"} <= names
    assert set(json.loads((tmp_path / "licences.json").read_text("utf-8"))) == {
        d.name for d in RELEASE["requirements"]()
    }
