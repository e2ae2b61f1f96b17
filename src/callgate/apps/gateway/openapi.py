"""The OpenAPI document of the gateway's own API, made from the table that its routes are made of.

Law: what the server takes and answers is what its document says.
(tests/test_gateway_openapi.py::test_the_server_does_what_its_document_says)

https://spec.openapis.org/oas/v3.1.0. The APIs of models (`/v1/…`, `/api/…`) are those of their makers and not in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from callgate import __version__
from callgate.apps.gateway.asked import adapter
from callgate.apps.gateway.operations import EVENTS, JSON, PLAIN, Operation

Object: TypeAlias = dict[str, Any]
PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
OF_KEYS = (401, 403, 429)
"""What every path answers that needs a key: none or a wrong one, one that may not, one that has used up its rate."""
MODES: Mapping[str, Literal["validation", "serialization"]] = {"body": "validation", "answer": "serialization"}
TEXTS: Mapping[str, Object] = {
    PLAIN: {"type": "string"},
    # Of one event (HTML, 9.2.6). The data is JSON: an entry as `callgate runs show --json` prints it, or a preview.
    EVENTS: {
        "type": "object",
        "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
        "required": ["event", "data"],
    },
}
ABOUT: Mapping[str, str] = {
    "id": "The id of a run.",
    "call": "The id of a call in its run.",
}


@dataclass(frozen=True)
class ErrorDetails:
    """What was wrong."""

    message: str
    type: str
    code: str | None
    param: str | None


@dataclass(frozen=True)
class Error:
    """A request that was not carried out. An answer to a question that was answered before has `decided` in `error`."""

    error: ErrorDetails


def document(operations: Sequence[Operation], *, keys: bool) -> Object:
    """The document; `keys`: whether a key is needed."""
    schemas, components = _schemas(operations)
    paths: Object = {}
    for one in operations:
        paths.setdefault(PARAMETER.sub(r"{\1}", one.path), {})[one.method.lower()] = _operation(one, schemas, keys)
    found: Object = {
        "openapi": "3.1.0",
        "info": {"title": "callgate", "version": __version__, "description": "Runs of agents, followed and steered."},
        "paths": paths,
        "components": {"schemas": components},
    }
    if keys:
        found["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return found


def _schemas(operations: Sequence[Operation]) -> tuple[dict[tuple[str, Any], Object], Object]:
    """(place, class) -> its schema, and the named schemas that these refer to."""
    wanted = {("body", one.body) for one in operations if one.body is not None}
    wanted |= {("answer", one.answer) for one in operations if one.answer is not None} | {("answer", Error)}
    inputs: list[tuple[tuple[str, Any], Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        ((place, kind), MODES[place], adapter(kind)) for place, kind in sorted(wanted, key=str)
    ]
    found, named = TypeAdapter.json_schemas(
        inputs, ref_template="#/components/schemas/{model}", schema_generator=_Generator
    )
    return {key: dict(schema) for (key, _), schema in found.items()}, dict(named.get("$defs", {}))


class _Generator(GenerateJsonSchema):
    """Without warnings for defaults that JSON has no form for: an answer's fields are always there."""

    ignored_warning_kinds: ClassVar[set[Any]] = {"skipped-choice", "non-serializable-default"}  # type: ignore[misc]


def _operation(one: Operation, schemas: Mapping[tuple[str, Any], Object], keys: bool) -> Object:
    errors = {*one.errors, *(OF_KEYS if keys and not one.free else ()), *((413,) if one.body is not None else ())}
    responses: Object = {str(one.status): _answer(one, schemas)}
    if one.empty:
        responses["204"] = {"description": "There is nothing more."}
    for status in sorted(errors):
        content = {JSON: {"schema": schemas["answer", Error]}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    found: Object = {"operationId": one.name, "summary": one.about, "responses": responses}
    if parameters := [*_in_path(one.path), *_in_query(one.query), *_in_head(one.media)]:
        found["parameters"] = parameters
    if one.body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas["body", one.body]}}}
    if keys and not one.free:
        found["security"] = [{"key": []}, {"header": []}]
    return found


def _answer(one: Operation, schemas: Mapping[tuple[str, Any], Object]) -> Object:
    schema = schemas["answer", one.answer] if one.answer is not None else TEXTS[one.media]
    return {"description": HTTPStatus(one.status).phrase, "content": {one.media: {"schema": schema}}}


def _in_path(path: str) -> list[Object]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": ABOUT[name]}
        for name in PARAMETER.findall(path)
    ]


def _in_query(query: Any) -> list[Object]:
    if query is None:
        return []
    schema = adapter(query).json_schema(mode="validation")
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _without_null(part),
        }
        for name, part in schema["properties"].items()
    ]


def _without_null(schema: Object) -> Object:
    """A query has no way to write null: the parameter is left out instead."""
    found = {name: part for name, part in schema.items() if not (name == "default" and part is None)}
    given = [part for part in found.get("anyOf", ()) if part != {"type": "null"}]
    return {**{name: part for name, part in found.items() if name != "anyOf"}, **given[0]} if given else found


def _in_head(media: str) -> list[Object]:
    if media != EVENTS:
        return []
    about = "The id of the last record that came; what follows it is sent."
    schema = {"type": "string", "pattern": "^[0-9]{1,15}(-[0-9a-f]{8}-[0-9]{1,15})?$"}
    return [{"name": "Last-Event-ID", "in": "header", "required": False, "schema": schema, "description": about}]
