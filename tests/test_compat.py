"""The trial of other Pythons says what it could not try."""

from __future__ import annotations

import runpy
import sys
from typing import Any

import pytest

import house

COMPAT: dict[str, Any] = runpy.run_path(str(house.ROOT / "scripts" / "compat.py"))


def test_a_python_that_is_missing_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPAT["main"].__globals__, "PYTHONS", ("3.99",))
    monkeypatch.setitem(COMPAT["main"].__globals__, "attempt", lambda name, python, *, lowest: True)
    COMPAT["main"]()
    assert "Python 3.99 is not installed here: not tried" in capsys.readouterr().out


def test_the_python_that_runs_this_is_found() -> None:
    assert COMPAT["find"]("{}.{}".format(*sys.version_info[:2])) is not None


def test_every_file_of_the_trial_is_there() -> None:
    assert [name for name in COMPAT["TESTS"] if not (house.ROOT / "tests" / name).exists()] == []
