"""JSON of records, fast.

One law: the value is what `json.loads` gives, exact integers included. pydantic's parser reads records in a third of
the time; the few texts that it refuses (half a surrogate pair, deep nesting) go to the standard library's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def parser() -> Callable[[str], Any]:
    """The parser; ValueError (or RecursionError) for what is no JSON. Loaded on first use: 20 ms."""
    from pydantic_core import from_json

    def parse(text: str) -> Any:
        try:
            return from_json(text, cache_strings="keys")
        except ValueError:
            return json.loads(text)

    return parse
