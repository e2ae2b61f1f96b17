"""JSON of records, fast.

Law: a record's value is what `json.loads` gives, exact integers included.
(tests/test_formats_ollama.py::test_the_short_way_is_the_long_way)

pydantic's parser reads records in a third of the time; the few texts that it refuses (half a surrogate pair, deep
nesting) go to the standard library's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any


@cache
def parser() -> Callable[[str], Any]:
    """The fast parser; ValueError for what it cannot read. Loaded on first use: 20 ms."""
    from pydantic_core import from_json

    return partial(from_json, cache_strings="keys")


def parse(text: str) -> Any:
    """The value of any JSON; ValueError or RecursionError for what is none."""
    try:
        return parser()(text)
    except ValueError:
        return json.loads(text)
