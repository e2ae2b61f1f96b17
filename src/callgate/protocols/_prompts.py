"""The generated part of the system message, and a conversation as a protocol writes it down.

Law: the same tools give the same text to the byte, and what changes least comes first, so that a server's prompt
cache holds.
(tests/test_protocols_prompts.py::test_what_does_not_change_comes_first)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from callgate.protocols.texts import RULES, TEXTS, Language
from callgate.types import Message, Part, Schema, ToolCall, ToolSpec

if TYPE_CHECKING:
    from callgate.protocols._rows import Row
    from callgate.protocols._write import Write

MAX_EXAMPLES = 2
"""Worked examples of one tool; all of them would crowd out the tools themselves."""
SIMPLE = frozenset({"string", "integer", "number", "boolean"})


@dataclass(slots=True, frozen=True)
class Prompt:
    """What a protocol needs to write for a model."""

    row: Row
    write: Write
    language: Language = "en"
    output: Schema | None = None
    parallel: bool = True
    demand: str = ""
    """"required", or the one tool that must be called; empty: the model decides."""

    def say(self, key: str, **fields: str) -> str:
        """A text in the prompt's language."""
        return TEXTS[key][self.language].format(**fields)


def system_text(prompt: Prompt, tools: Sequence[ToolSpec], instructions: str) -> str:
    """The whole system message: the application's instructions, the form of a call, the tools, worked examples."""
    parts = [instructions.strip()]
    if tools and prompt.row.prompt:
        parts += [_form(prompt) + RULES[prompt.language], prompt.say("tools") + list_tools(prompt, tools)]
        parts += [_examples(prompt, tools)]
    if prompt.output is not None and not (prompt.row.constraint and tools):
        parts.append(prompt.say("output", schema=_json(prompt.output)))
    # Last, since it holds for one turn only. Where the server has the tools, it has the demand as well.
    if tools and prompt.demand and prompt.row.prompt:
        parts.append(prompt.say("must") if prompt.demand == "required" else prompt.say("must_call", name=prompt.demand))
    return "\n\n".join(p.strip("\n") for p in parts if p)


def _form(prompt: Prompt) -> str:
    key = str(prompt.row.prompt)
    several = ""
    if prompt.parallel:
        several = prompt.say("several_object" if key == "object" else "several")
    answer = '"…"' if prompt.output is None else _json(prompt.output)
    sample = ToolCall("call_1", "NAME", {"ARGUMENT": "VALUE"})
    return prompt.say(key, several=several, answer=answer, form=prompt.write([sample]) if key == "markup" else "")


def list_tools(prompt: Prompt, tools: Sequence[ToolSpec]) -> str:
    """The tools, one below the other: signatures; models' own markup was trained on JSON instead."""
    if prompt.row.prompt == "markup":
        return "\n".join(_json(openai_tool(tool)) for tool in tools)
    return "\n".join(describe(tool, prompt.language) for tool in tools)


def openai_tool(tool: ToolSpec) -> dict[str, Any]:
    """A tool in the form of the OpenAI API, which most models were trained on."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def describe(tool: ToolSpec, language: Language = "en") -> str:
    """One tool as a signature and a line a parameter; schemas that no signature can say are shown as JSON."""
    properties: Mapping[str, object] = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required") or ()
    names = [name if name in required else f"{name}?" for name in properties]
    lines = [f"- {tool.name}({', '.join(names)}): {' '.join(tool.description.split())}".rstrip(": ")]
    for name, schema in properties.items():
        about: Schema = schema if isinstance(schema, Mapping) else {}
        words = [_type_words(about, tool.parameters)]
        if name in required:
            words.append(TEXTS["required"][language])
        if "default" in about:
            words.append(f"{TEXTS['default'][language]} {_json(about['default'])}")
        text = " ".join(str(about.get("description", "")).split())
        lines.append(f"    {name} ({', '.join(words)}){': ' + text if text else ''}")
    return "\n".join(lines)


def _type_words(schema: Schema, root: Schema) -> str:
    if isinstance(schema.get("enum"), list):
        return "|".join(_json(v) for v in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, str) and kind in SIMPLE:
        return kind
    if isinstance(kind, list) and all(k in SIMPLE or k == "null" for k in kind):
        return " or ".join(kind)
    if kind == "array" and (words := _item_words(schema.get("items"))):
        return words
    return _schema_words(schema, root)


def _schema_words(schema: Schema, root: Schema) -> str:
    """A type that no word names, as JSON, with the definitions that it refers to."""
    kept = {k: v for k, v in schema.items() if k not in ("description", "default", "title")}
    if "$ref" in _json(kept) and root.get("$defs"):
        kept["$defs"] = root["$defs"]
    return _json(kept) if kept else "any"


def _item_words(items: object) -> str:
    """A list of simple items in words; empty for any other, which only its schema can say."""
    if not isinstance(items, Mapping) or items.get("type") not in ("string", "integer", "number"):
        return ""
    return "|".join(_json(v) for v in items["enum"]) + " list" if "enum" in items else f"array of {items['type']}"


def _examples(prompt: Prompt, tools: Sequence[ToolSpec]) -> str:
    lines = []
    for tool in tools:
        for example in tool.examples[:MAX_EXAMPLES]:
            call = ToolCall("call_1", tool.name, dict(example.get("arguments") or {}))
            lines.append(f"{prompt.say('user')}{example.get('request', '')}\n{prompt.say('you')}{prompt.write([call])}")
    return prompt.say("examples") + "\n".join(lines) if lines else ""


# --- a conversation, written down ---------------------------------------------------------------------------------


def conversation(prompt: Prompt, history: Sequence[Message], system: str) -> tuple[Message, ...]:
    """The messages of a request: the system message first, calls and results as the row writes them."""
    messages: list[Message] = [Message("system", system)] if system else []
    add_written(prompt, history, messages)
    return tuple(messages)


def add_written(prompt: Prompt, history: Sequence[Message], messages: list[Message], *, joined: bool = False) -> bool:
    """Adds a conversation, as the row writes it, to the messages of a request. `joined`, and what is returned: whether
    the last message is one that holds results, which further results join."""
    for message in history:
        if message.role == "tool" and prompt.row.results == "user":
            _add_result(prompt, message, messages, joined=joined)
            joined = True
        else:
            messages.append(_written(prompt, message))
            joined = False
    return joined


def _written(prompt: Prompt, message: Message) -> Message:
    if message.role == "system" or prompt.row.results == "tool":
        return message
    if message.calls:
        text = "\n".join(t for t in (message.text, prompt.write(message.calls)) if t)
        return replace(message, content=text, calls=(), reasoning="")
    if prompt.row.reading == "object" and message.role == "assistant":
        return replace(message, content=_json({"answer": message.text}), reasoning="")
    return replace(message, reasoning="") if message.reasoning else message


def _add_result(prompt: Prompt, message: Message, messages: list[Message], *, joined: bool) -> None:
    """Results go back as the user's words; neighbours share one message: many templates want roles to alternate."""
    text = prompt.say("result", name=message.name or "tool", text=message.text)
    others: tuple[Part, ...] = ()
    if not isinstance(message.content, str):
        others = tuple(part for part in message.content if part.get("type") != "text")
    if not joined:
        messages.append(Message("user", ({"type": "text", "text": text}, *others) if others else text))
        return
    last = messages[-1]
    if isinstance(last.content, str) and not others:
        messages[-1] = replace(last, content=f"{last.content}\n\n{text}")
    else:
        before = ({"type": "text", "text": last.content},) if isinstance(last.content, str) else last.content
        messages[-1] = replace(last, content=(*before, {"type": "text", "text": text}, *others))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
