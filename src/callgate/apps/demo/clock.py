"""The time in a zone.

Law: the zone data are the machine's own; a place that they do not know is not found, never guessed.
    (tests/test_demo_tools.py::test_an_unknown_place_is_not_guessed)
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from callgate.errors import NotFound
from callgate.tools import tool

_CITIES = {  # large cities that share another city's zone
    "barcelona": "Europe/Madrid",
    "beijing": "Asia/Shanghai",
    "boston": "America/New_York",
    "delhi": "Asia/Kolkata",
    "milan": "Europe/Rome",
    "mumbai": "Asia/Kolkata",
    "munich": "Europe/Berlin",
    "new_delhi": "Asia/Kolkata",
    "osaka": "Asia/Tokyo",
    "rio_de_janeiro": "America/Sao_Paulo",
    "san_francisco": "America/Los_Angeles",
    "seattle": "America/Los_Angeles",
    "washington": "America/New_York",
}


@tool(
    effect="read",
    timeout=5,
    examples=[
        {"request": "How late is it in Paris?", "arguments": {"place": "Paris"}},
        {"request": "What day is it in New York?", "arguments": {"place": "New York"}},
    ],
)
def time_in(place: Annotated[str, Field(max_length=40)]) -> dict[str, str]:
    """The date and time of day in a city or time zone, now.

    Args:
        place: A city such as "Tokyo" or "New York", or a zone such as "Europe/Paris" or "UTC".
    """
    zone = zone_of(place)
    now = datetime.now(ZoneInfo(zone))
    return {"zone": zone, "time": now.strftime("%H:%M"), "date": now.strftime("%A, %d %B %Y"), "offset": f"{now:%z}"}


def zone_of(place: str) -> str:
    """The zone's name for a zone or for a city that has one. Raises NotFound."""
    if not _zones():
        raise NotFound("this machine has no time-zone data: pip install tzdata")
    wanted = place.strip().split(",")[0].strip().replace(" ", "_").casefold()
    found = _zones().get(wanted)
    if found is None:
        raise NotFound(f"no time zone or zone city is called {place!r}; try a larger city, or a name like Europe/Paris")
    return found


@cache
def _zones() -> dict[str, str]:
    zones = {name.casefold(): name for name in available_timezones()}
    # "America/Argentina/Buenos_Aires" is also found as "buenos_aires"; the shortest name wins
    for name in sorted(zones.values(), key=lambda name: (name.startswith("Etc/"), len(name), name)):
        zones.setdefault(name.rsplit("/", 1)[-1].casefold(), name)
    for city, name in _CITIES.items():
        if name.casefold() in zones:
            zones.setdefault(city, name)
    return zones
