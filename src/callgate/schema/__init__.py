"""JSON Schema: from a signature to a schema, from a model's text to arguments that fit it.

One law: never a silent guess. Valid input is never touched; whatever is touched is named; what cannot be read
faithfully is refused (rules A1 to A7 of ARCHITECTURE.md).
"""

from __future__ import annotations

from callgate.schema._compile import CompiledSchema, compile_schema
from callgate.schema._describe import Description, describe, name_of, plain_function
from callgate.schema._look import ALL_TYPES, allowed_types, is_recursive, property_schema
from callgate.schema._mend import Mended, Outcome, mend
from callgate.schema._strict import strict_form
from callgate.schema._tidy import tidy

__all__ = [
    "ALL_TYPES",
    "CompiledSchema",
    "Description",
    "Mended",
    "Outcome",
    "allowed_types",
    "compile_schema",
    "describe",
    "is_recursive",
    "mend",
    "name_of",
    "plain_function",
    "property_schema",
    "strict_form",
    "tidy",
]
