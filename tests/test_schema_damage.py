"""Objects written wrongly, in every way that models have: read as meant, or refused."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import mend

sys.path.append(str(Path(__file__).parent.parent / "bench"))

import _damage

ANY: dict[str, Any] = {"type": "object"}


@pytest.mark.parametrize("seed", range(8))
def test_what_is_read_is_what_was_meant(seed: int) -> None:
    chance = random.Random(seed)
    read = 0
    for _ in range(400):
        meant, text = _damage.case(chance)
        got = mend(text, ANY)
        if got.outcome == "ok":
            read += 1
            assert json.dumps(got.value, sort_keys=True) == json.dumps(meant, sort_keys=True), text
    assert read > 360, "nine of ten can be read"


@pytest.mark.parametrize("seed", range(4))
def test_a_prefix_of_an_object_written_wrongly_is_never_read(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(15):
        meant, _ = _damage.case(chance)
        text = _damage.written(meant, _damage.style(chance), chance)
        for end in range(1, len(text)):
            got = mend(text[:end], ANY)
            assert got.outcome != "ok", text[:end]
