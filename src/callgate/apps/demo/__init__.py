"""The demo's tools: small, real, offline. They are what `callgate ask` and `callgate chat` offer when you bring none.

Law: a demo tool does what it says with no network and no invented answer; demo data is labelled as such.
    (tests/test_demo_tools.py::test_a_parcel_is_found_by_any_writing_of_its_number_and_labelled)

To add a demo tool: one file with one function under `@tool`, and its name in `TOOLS`.
"""

from __future__ import annotations

from callgate.apps.demo.arithmetic import calculate
from callgate.apps.demo.clock import time_in
from callgate.apps.demo.documentation import search_docs
from callgate.apps.demo.parcels import find_parcel

TOOLS = (calculate, time_in, find_parcel, search_docs)
