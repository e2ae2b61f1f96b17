"""Parcels: a look-up in a small SQLite file of invented demo data, `parcels.sqlite`, made from `parcels.sql`.

Law: the file is opened for reading only, and every answer carries its label.
    (tests/test_demo_tools.py::test_a_parcel_is_found_by_any_writing_of_its_number_and_labelled)
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

from pydantic import Field

from callgate.errors import NotFound
from callgate.tools import tool

FILE = Path(__file__).with_name("parcels.sqlite")
SOURCE = Path(__file__).with_name("parcels.sql")


@tool(
    effect="read",
    timeout=5,
    examples=[
        {"request": "Has parcel P-2040 arrived?", "arguments": {"number": "P-2040"}},
        {"request": "Where is my parcel P-7311?", "arguments": {"number": "P-7311"}},
    ],
)
def find_parcel(number: Annotated[str, Field(max_length=8)]) -> dict[str, str]:
    """Where a parcel is (demo data).

    Args:
        number: The parcel's number, such as "P-1001".
    """
    wanted = number.strip().upper().removeprefix("#")
    if wanted.isdigit():
        wanted = f"P-{wanted}"
    with closing(sqlite3.connect(f"{FILE.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        database.row_factory = sqlite3.Row
        row = database.execute("SELECT * FROM parcels WHERE number = ?", (wanted,)).fetchone()
        if row is None:
            known = ", ".join(number for (number,) in database.execute("SELECT number FROM parcels ORDER BY number"))
            raise NotFound(f"no parcel {number!r} in the demo data; there are {known}")
        (label,) = database.execute("SELECT label FROM about").fetchone()
    return {**dict(row), "source": label}


def build(target: Path = FILE) -> None:
    """Writes the SQLite file anew from its source."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target)) as database:
        database.executescript(SOURCE.read_text("utf-8"))
        database.execute("VACUUM")
