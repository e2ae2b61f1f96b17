"""Declared secrets: exact values, and the forms in which they travel.

Law: that of the package (callgate/masking/__init__.py).
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

from callgate.memo import Memo

LEAST: Final = 4
"""Characters of the shortest declared secret: a shorter one would mask half of every text."""

_LOWER: Final = re.compile(r"%[0-9A-F]{2}")
_BASE64_LEAST: Final = 8
"""Characters in base64 that are taken for a part of a secret."""


class Secret:
    """Marks a parameter whose values are secrets: `password: Annotated[str, Secret]`.

    Its JSON Schema says so (`"format": "password"`, `"writeOnly": true`), and its exact values are masked wherever they
    appear: in results and errors on their way to the model, in the ledger, exports and logs.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core: object, handler: Any) -> dict[str, object]:
        schema: dict[str, object] = dict(handler(core))
        if schema.get("type") == "string":  # JSON Schema knows the format for strings only
            schema["format"] = "password"
        return schema | {"writeOnly": True}


def forms(secret: str) -> Iterator[str]:
    """The secret as it is, in JSON (three times, for JSON in JSON), in Python, HTML, an address and base64."""
    yield secret
    for ascii_only in (True, False):
        nested = secret
        for _ in range(3):
            nested = json.dumps(nested, ensure_ascii=ascii_only)[1:-1]
            yield nested
    yield from (repr(secret)[1:-1], ascii(secret)[1:-1])  # how exceptions show their arguments
    yield html.escape(secret)
    data = secret.encode("utf-8", "replace")
    yield repr(data)[2:-1]
    for address in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield address
        yield _LOWER.sub(lambda octet: octet[0].lower(), address)
    if len(data) >= 6:  # shorter ones encode to texts that stand anywhere
        yield from _in_base64(data)


def _in_base64(data: bytes) -> Iterator[str]:
    """The data alone, and inside of longer data (`user:password` of a header), where it begins at any of three bits."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode("ascii").rstrip("=")
        for before in range(3):
            whole = encode(bytes(before) + data).decode("ascii").rstrip("=")
            first = -(-8 * before // 6)  # characters that have a bit of what stands before or behind are no sign
            last = 8 * (before + len(data)) // 6
            if last - first >= _BASE64_LEAST:
                yield whole[first:last]
                yield whole[first:]


def pattern(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """One pattern for all forms of all secrets, the longest first; None without any."""
    found = {form for secret in secrets for form in forms(secret)}
    if not found:
        return None
    return re.compile("|".join(re.escape(form) for form in sorted(found, key=lambda form: (-len(form), form))))


def declared(schema: Mapping[str, object], value: object, *, depth: int = 12) -> Iterator[str]:
    """The values in these arguments that their schema declares secret (`format: password`, `writeOnly: true`)."""
    if _declares(schema):  # hardly any tool does, and this is asked for every call
        yield from _declared(schema, value, schema, depth)


def _has_marks(part: object) -> bool:
    """Whether anything in a schema declares a secret, wherever it stands."""
    if isinstance(part, Mapping):
        return _is_mark(part) or any(map(_has_marks, part.values()))
    return isinstance(part, (list, tuple)) and any(map(_has_marks, part))


_declares = Memo(_has_marks)


def _is_mark(schema: Mapping[str, object]) -> bool:
    return schema.get("format") == "password" or schema.get("writeOnly") is True


def _declared(schema: object, value: object, root: Mapping[str, object], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth == 0:
        return
    target = schema.get("$ref")
    if isinstance(target, str):
        yield from _declared(_resolve(root, target), value, root, depth - 1)
    if _is_mark(schema):
        yield from _texts(value, depth)
        return
    for key in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(key)
        for part in parts if isinstance(parts, (list, tuple)) else ():
            yield from _declared(part, value, root, depth - 1)
    if isinstance(value, Mapping):
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        for name, inner in value.items():
            yield from _declared(known.get(name, schema.get("additionalProperties")), inner, root, depth - 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _declared(schema.get("items"), inner, root, depth - 1)


def _resolve(root: Mapping[str, object], target: str) -> object:
    node: object = root
    for step in target.removeprefix("#/").split("/"):
        node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    return node


def _texts(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
    elif depth > 0 and isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner, depth - 1)
    elif depth > 0 and isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, depth - 1)
