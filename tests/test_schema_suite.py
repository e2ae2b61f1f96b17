"""The official JSON Schema Test Suite, 2020-12: what it requires, `mend` decides, if nothing has to be converted.

The suite is not part of this repository. The source archive of the package `jsonschema` ships it:

    pip download jsonschema==4.23.0 --no-deps --no-binary :all: && tar xzf jsonschema-4.23.0.tar.gz
    JSON_SCHEMA_TEST_SUITE=jsonschema-4.23.0/json pytest tests/test_schema_suite.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from callgate import mend

SUITE = Path(os.environ.get("JSON_SCHEMA_TEST_SUITE") or "-") / "tests" / "draft2020-12"
REFERENCES = ("$ref", "$dynamicRef", "$id", "$anchor", "$dynamicAnchor", "$defs")
"""Schemas with these mean something else when they stand inside another one."""
OTHERS = frozenset({"vocabulary"})
"""Not ours: vocabularies are chosen by meta-schemas, which are other documents."""


def cases(file: Path) -> list[tuple[str, Any, Any, bool]]:
    """(name, schema, value, valid); what is no object is put into one, for arguments are objects."""
    found = []
    for group in json.loads(file.read_text("utf-8")):
        for test in group["tests"]:
            schema, value = group["schema"], test["data"]
            if not (isinstance(value, dict) and isinstance(schema, dict)):
                if any(word in json.dumps(schema) for word in REFERENCES):
                    continue
                schema, value = {"type": "object", "properties": {"x": schema}}, {"x": value}
            found.append((f"{group['description']}: {test['description']}", schema, value, test["valid"]))
    return found


@pytest.mark.skipif(not SUITE.is_dir(), reason="JSON_SCHEMA_TEST_SUITE does not name the suite; see above")
@pytest.mark.parametrize("file", sorted(SUITE.glob("*.json")), ids=lambda file: file.stem)
def test_it_decides_as_the_official_suite_requires(file: Path) -> None:
    """Save where a reference leaves the document: that is never followed, and noted."""
    if file.stem in OTHERS:
        pytest.skip("vocabularies are chosen by documents outside of the schema")
    wrong = []
    for name, schema, value, valid in cases(file):
        got = mend(value, schema)
        untouched = got.outcome == "ok" and not got.coerced and json.dumps(got.value) == json.dumps(value)
        outside = any("constrains nothing" in note for note in got.notes)
        if untouched != valid and not outside:
            wrong.append((name, valid, got))
    assert wrong == []
