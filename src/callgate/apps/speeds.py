"""How large and how fast a model in this process is: told on first use, and kept for `callgate models`.

Law: what is told was measured on this machine, once for each file, and a cache that cannot be written costs nothing.
    (tests/test_speeds.py::test_size_and_speed_are_told_on_first_use_and_then_known)
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from callgate import weights

if TYPE_CHECKING:
    from callgate.providers import Provider


def first_use(provider: Provider) -> str:
    """A line about the model that has just answered, if it is a file that was never measured here; else ""."""
    path, speed = getattr(provider, "path", None), getattr(provider, "speed", None)
    if not isinstance(path, Path) or speed is None:
        return ""
    size, known = path.stat().st_size, _known()
    if _key(path, size) in known:
        return ""
    _keep({**known, _key(path, size): [round(speed.reading, 1), round(speed.writing, 1)]})
    return f"first use of {provider.model}: {size / 1e6:,.0f} MB, {_words(speed.reading, speed.writing)}"


def known_speed(path: Path) -> str:
    """What was measured for this file, in words; "" if nothing was."""
    match _known().get(_key(path, path.stat().st_size)):
        case [int() | float() as reading, int() | float() as writing]:
            return _words(reading, writing)
    return ""


def _words(reading: float, writing: float) -> str:
    return f"reads {reading:,.0f} and writes {writing:,.0f} tokens a second on this machine"


def _key(path: Path, size: int) -> str:
    return f"{path} {size}"  # another file under the same name has another size


def _place() -> Path:
    return weights.cached().parents[1] / "speeds.json"


def _known() -> Mapping[str, object]:
    try:
        found: object = json.loads(_place().read_text("utf-8"))
    except (OSError, ValueError):  # not there yet, or damaged: then it is measured again
        return {}
    return found if isinstance(found, dict) else {}


def _keep(speeds: Mapping[str, object]) -> None:
    """Whole or not at all: another process may read at this moment."""
    place = _place()
    with contextlib.suppress(OSError):  # a cache that cannot be written: the line comes again next time
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=place.parent, delete=False) as file:
            json.dump(speeds, file)
        os.replace(file.name, place)
