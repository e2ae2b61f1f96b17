"""What a server offers beside tools, as tools: its resources and its prompts, listed and read.

Law: they are offered only where the application asks for them, and never in the place of a tool of the server.
(tests/test_mcp_offers.py::test_a_tool_of_the_server_keeps_its_name)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from callgate.mcp._definitions import MAX_DESCRIPTION, MAX_PAGES, MAX_TOOLS, Caller, Rules, Shown, function_of, outgoing
from callgate.mcp._results import part_of, text_of
from callgate.tools import Tool

Part = Literal["resources", "prompts"]
Work = Callable[[object, dict[str, object]], Awaitable[object]]


@dataclass(slots=True, frozen=True)
class Offer:
    """A tool that the server does not have itself."""

    name: str
    part: Part
    description: str
    schema: dict[str, object]
    work: Work
    """(the SDK's client, arguments) → the value."""

    @property
    def shown(self) -> Shown:
        """The server cannot change it."""
        return Shown(f"callgate/{self.name}", "callgate", reads=True)


async def _list_resources(client: Any, _: dict[str, Any]) -> object:
    found = await _pages(client.list_resources, "resources")
    try:
        templates = await _pages(client.list_resource_templates, "resource_templates")
    except Exception as error:
        if getattr(error, "code", None) != METHOD_NOT_FOUND:
            raise
        templates = []  # many servers have none and do not know the question
    result: dict[str, object] = {"resources": [_row(r, "uri", "name", "description", "mime_type") for r in found]}
    if templates:
        result["templates"] = [_row(t, "uri_template", "name", "description", "mime_type") for t in templates]
    return result


async def _read_resource(client: Any, arguments: dict[str, object]) -> object:
    result = await client.read_resource(arguments["uri"])
    texts, parts = [], []
    for content in result.contents:
        kind = str(content.mime_type or "")
        blob = getattr(content, "blob", None)
        if blob is None:
            texts.append(content.text)
        elif (part := part_of(kind.partition("/")[0], kind, blob)) is not None:
            parts.append(part)
        else:
            texts.append(f"[{content.uri}: {kind or 'bytes'}, {len(blob) * 3 // 4} bytes]")
    text = "\n".join(texts)
    return [*([text] if text else []), *parts] if parts else text


async def _list_prompts(client: Any, _: dict[str, object]) -> object:
    rows = []
    for prompt in await _pages(client.list_prompts, "prompts"):
        needed = [_row(a, "name", "description", "required") for a in prompt.arguments or ()]
        rows.append({**_row(prompt, "name", "description"), **({"arguments": needed} if needed else {})})
    return rows


async def _get_prompt(client: Any, arguments: dict[str, object]) -> object:
    result = await client.get_prompt(arguments["name"], arguments.get("arguments") or {})
    return [{"role": message.role, "content": text_of(message.content)} for message in result.messages]


async def _pages(ask: Callable[..., Awaitable[Any]], name: str) -> list[Any]:
    found: list[object] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask(cursor=cursor)
        found += getattr(page, name)
        cursor = page.next_cursor
        if not cursor or len(found) > MAX_TOOLS:
            break
    return found[:MAX_TOOLS]


def _row(item: object, *names: str) -> dict[str, object]:
    """These fields of an item, as far as it has them; a text is cut like a description."""
    found = {name: getattr(item, name) for name in names}
    return {
        name: value[:MAX_DESCRIPTION] if isinstance(value, str) else value
        for name, value in found.items()
        if value not in (None, "")
    }


def _object(required: tuple[str, ...], **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(required)}


METHOD_NOT_FOUND: Final = -32601
_TEXT: Final = {"type": "string"}
OFFERS: Final = (
    Offer("list_resources", "resources", "Lists the resources of the server.", _object(()), _list_resources),
    Offer(
        "read_resource",
        "resources",
        "Reads one resource of the server by its URI.",
        _object(("uri",), uri=_TEXT),
        _read_resource,
    ),
    Offer("list_prompts", "prompts", "Lists the server's prompts and their arguments.", _object(()), _list_prompts),
    Offer(
        "get_prompt",
        "prompts",
        "Fills in one prompt of the server and gives its messages.",
        _object(("name",), name=_TEXT, arguments={"type": "object", "additionalProperties": _TEXT}),
        _get_prompt,
    ),
)
WORK: Final = {offer.shown.name: offer.work for offer in OFFERS}


def offers_of(capabilities: object, rules: Rules, taken: frozenset[str], call: Caller) -> tuple[list[Tool], list[str]]:
    """The tools for what the application asked for and the server has, and what cannot be offered."""
    tools: list[Tool] = []
    wanted = {"resources": rules.resources, "prompts": rules.prompts}
    missing = [part for part in wanted if wanted[part] and getattr(capabilities, part, None) is None]
    problems = [f"the server has no {part}" for part in missing]
    for offer in OFFERS:
        if not wanted[offer.part] or offer.part in missing:
            continue
        if rules.prefix + offer.name in taken:
            problems.append(f"{offer.name!r} for its {offer.part}: left out; the server has a tool of this name")
            continue
        tools.append(_tool(offer, rules, call))
    return tools, problems


def _tool(offer: Offer, rules: Rules, call: Caller) -> Tool:
    return Tool.from_schema(
        rules.prefix + offer.name,
        offer.description,
        offer.schema,
        function_of(offer.shown, call),
        effect="read",
        timeout=rules.timeout,
        untrusted=rules.untrusted,
        outgoing=outgoing(offer.name, rules),
    )
