"""JSON Schema: from a signature to a schema, from a model's text to arguments that fit it.

Whatever is changed is named, and what cannot be read faithfully is refused (rules A1 to A7 of ARCHITECTURE.md).

Law: valid input is never touched.
(tests/test_schema_laws.py::test_valid_input_comes_back_identical)
Law: what is accepted is valid, and is never a silent guess.
(tests/test_schema_laws.py::test_what_is_accepted_is_valid_and_mending_it_again_changes_nothing)
"""

from __future__ import annotations

from callgate.schema._strict import strict_form
from callgate.schema._tidy import tidy
from callgate.schema.compiled import CompiledSchema, compile_schema
from callgate.schema.introspect import ALL_TYPES, allowed_types, follow, is_recursive, property_schema, type_of
from callgate.schema.mending import Mended, Outcome, mend
from callgate.schema.signatures import Description, annotations_of, describe, name_of, plain_function

__all__ = [
    "ALL_TYPES",
    "CompiledSchema",
    "Description",
    "Mended",
    "Outcome",
    "allowed_types",
    "annotations_of",
    "compile_schema",
    "describe",
    "follow",
    "is_recursive",
    "mend",
    "name_of",
    "plain_function",
    "property_schema",
    "strict_form",
    "tidy",
    "type_of",
]
