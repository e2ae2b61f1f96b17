"""`routed`: first the tool, then its arguments, then an answer from the results; for small models and for many tools.

Law: the model is only asked what it is good at. What words decide (which tool, which numbers) is decided by words,
and what the model then writes is held to a schema that admits nothing else.
(tests/test_protocols_turn.py::test_a_tool_without_arguments_is_called_without_asking_the_model)

Theory of operation, one turn:
1. The request is cut into the calls that it needs; the first one that was not yet made is this turn's. A call that
   was refused was not made: it is asked for again, with the reason.
2. A tool is chosen, or none: small models by the words (`choosers.rank`), others by a constrained choice of names,
   with more than ten tools of their group first. How, and how sure, is reported as `Chosen`.
3. Its arguments are one request under its own schema; for a small model narrowed to what the request offers
   (`slots.narrow`). Where nothing is left to fill in, the arguments are `{}` and the model is not asked.
4. With all results there, or with no tool, the model answers. A small model's answer from results must hold their
   figures and no others; if it does not, the results themselves are the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from callgate.grounding import answers, choosers, routing, slots
from callgate.protocols._engines import engine_of
from callgate.protocols._object import ENDED, ObjectReader
from callgate.protocols._prompts import conversation, system_text
from callgate.protocols._rows import MANY_TOOLS, ROWS, is_small
from callgate.protocols._schemas import arguments_schema, held_to, names_schema, token_limit
from callgate.protocols.intentions import named
from callgate.protocols.steps import Chosen, Query, Turn
from callgate.protocols.texts import TEXTS, WORKED
from callgate.types import Delta, Message, Reply, Request, TextDelta, ToolCall, ToolSpec

if TYPE_CHECKING:
    from callgate.protocols._single import TurnSpec

ASK_BELOW = 0.6
"""A write that fits worse than this is asked about first."""
NO_TOOL = "none"
SHORTLIST = 20
"""Names that a model chooses among at once."""
ANSWER_TOKENS = 160


def routed(asking: TurnSpec, single: Callable[[TurnSpec], Turn]) -> Turn:
    """One turn; `single` asks for the arguments of a tool that is chosen, under `constrained`."""
    if is_small(asking.info):
        return (yield from _small(asking))
    tool = yield from _choose(asking)
    constrained = replace(asking, row=ROWS["constrained"], tools=(tool,) if tool else ())
    return (yield from single(constrained))


# --- small models -------------------------------------------------------------------------------------------------


def _small(asking: TurnSpec) -> Turn:
    request, since = _since_request(asking.history)
    calls = [call for message in since for call in message.calls]
    taken = [call.name for call in calls if call.id not in asking.refused]
    need = _next(asking, request, taken)
    if need is None and taken:
        reply = yield from _ask(_from_results(asking, request, since))
        return replace(reply, finish="stop") if reply.finish == "length" else reply  # its text was checked
    if need is None:
        yield Chosen("lexical", (), 1 - choosers.rank(request, asking.tools).fit if asking.tools else None)
        return (yield from _ask(_plain(asking)))
    yield Chosen("lexical", (need.tool.name,), round(need.fit, 3))
    if need.tool.effect == "write" and need.fit < ASK_BELOW:
        return (yield from _question(_say(asking, "sure", name=need.tool.name)))
    return (yield from _call(asking, need, _refusals(asking, since, need.tool)))


def _next(asking: TurnSpec, request: str, taken: Sequence[str]) -> routing.Need | None:
    """Rule 1: what is called next."""
    forced = next((t for t in asking.tools if t.name == asking.tool_choice), None)
    if forced is not None and not taken:
        return routing.Need(request, forced, 1.0)
    need = routing.next_need(routing.plan(request, asking.tools, _last_tool(asking)), taken)
    if asking.tool_choice != "required" or taken:
        return need
    # A call is demanded: the best of the tools then, however badly it fits, and without a question.
    return (
        routing.Need(request, choosers.rank(request, asking.tools).tools[0], 1.0)
        if need is None
        else replace(need, fit=1.0)
    )


def _refusals(asking: TurnSpec, since: Sequence[Message], tool: ToolSpec) -> list[tuple[ToolCall, str]]:
    """The calls of this tool that were refused, each with the reason."""
    reasons = {m.call_id: m.text for m in since if m.role == "tool"}
    calls = [c for m in since for c in m.calls if c.name == tool.name and c.id in asking.refused]
    return [(call, reasons.get(call.id, "")) for call in calls]


def _call(asking: TurnSpec, need: routing.Need, refused: list[tuple[ToolCall, str]]) -> Turn:
    """Rule 3."""
    tool = need.tool
    schema = slots.narrow(tool, arguments_schema(tool, engine_of(asking.info)), need.text)
    if not schema["properties"] and not tool.parameters.get("required") and not refused:
        # Nothing is to be filled in: a model would only write the blanks of an empty object, up to its limit.
        return Reply(calls=[ToolCall("call_1", tool.name, {}, 0)], finish="tool_calls")
    reply = yield from _ask(_arguments(asking, need, schema, refused))
    missing = slots.ungrounded(tool, reply.calls[0].arguments, need.text) if tool.grounded and reply.calls else []
    if missing:
        return (yield from _question(_say(asking, "which", name=", ".join(missing))))
    return reply


def _ask(query: Query) -> Turn:
    reply = yield query
    assert isinstance(reply, Reply)
    return reply


def _question(query: Query) -> Turn:
    """A question of our own: it is whole, wherever the model was cut off."""
    reply = yield from _ask(query)
    return replace(reply, finish="stop")


def _last_tool(asking: TurnSpec) -> ToolSpec | None:
    """The tool called last before the last request."""
    end = _last_user(asking.history)
    names = [call.name for message in asking.history[:end] for call in message.calls]
    return next((t for t in asking.tools if names and t.name == names[-1]), None)


def _last_user(history: Sequence[Message]) -> int:
    return next((i for i in range(len(history) - 1, -1, -1) if history[i].role == "user"), 0)


def _since_request(history: Sequence[Message]) -> tuple[str, list[Message]]:
    """The last request, and what was called for it."""
    if not history:
        return "", []
    at = _last_user(history)
    return history[at].text, list(history[at + 1 :])


def _arguments(
    asking: TurnSpec, need: routing.Need, schema: dict[str, Any], refused: Sequence[tuple[ToolCall, str]]
) -> Query:
    engine = engine_of(asking.info)
    messages = [Message("system", TEXTS["arguments"][asking.language].strip())]
    for user, answer in WORKED[asking.language]:
        messages += [Message("user", user), Message("assistant", answer)]
    messages.append(Message("user", _form(asking, need, schema)))
    for call, why in refused[-1:]:  # one is enough to do it better; all of them would fill a small context
        messages.append(Message("assistant", json.dumps(call.arguments, ensure_ascii=False, default=dict)))
        messages.append(Message("user", why[: answers.MAX_SHOWN]))
    options = {"max_tokens": token_limit(schema), **asking.options, "temperature": 0.0}
    request = Request(tuple(messages), schema=schema, options=options, extra=held_to(schema, engine))
    return Query(request, lambda: ArgumentsReader(need.tool.name), "arguments", visible=not need.tool.grounded)


def _form(asking: TurnSpec, need: routing.Need, schema: dict[str, Any]) -> str:
    """The tool and those of its parameters that are asked for, then the request: what is copied stands last."""
    tool = need.tool
    properties = tool.parameters.get("properties") or {}
    lines = [f"{tool.name}: {' '.join(tool.description.split())[:200]}"]
    for name in schema["properties"]:
        about = properties.get(name)
        text = about.get("description", "") if isinstance(about, Mapping) else ""
        lines.append(f"{name}: {' '.join(str(text).split())[:160]}")
    for example in tool.examples[:2]:
        lines.append(f"{TEXTS['request'][asking.language]}{example.get('request', '')}")
        lines.append(json.dumps(example.get("arguments") or {}, ensure_ascii=False, default=dict))
    return "\n".join(lines) + f"\n{TEXTS['request'][asking.language]}{need.text}"


class ArgumentsReader:
    """A machine for a reply that is the arguments of a known tool: reads it as the call it stands for."""

    def __init__(self, name: str) -> None:
        self._object = ObjectReader()
        self.problems = self._object.problems
        self._ahead: list[Delta] = self._object.feed(f'{{"tool": {json.dumps(name)}, "args": ')
        self._any = False

    def feed(self, text: str) -> list[Delta]:
        """Deltas of the call."""
        if not text.strip() and not self._any:
            return []
        ahead = [] if self._any else self._ahead
        self._any = True
        return ahead + self._object.feed(text)

    def finish(self) -> list[Delta]:
        """The call, if its arguments are whole."""
        deltas = self._object.finish() if self._any else []
        if any(isinstance(delta, ToolCall) for delta in deltas) and ENDED in self.problems:
            self.problems.remove(ENDED)  # the form around the arguments is ours and has no end in the text
        return deltas


# --- answers of a small model -------------------------------------------------------------------------------------


def _plain(asking: TurnSpec) -> Query:
    """No tool: the model talks."""
    prompt = asking.prompt(ROWS["answer"])
    system = system_text(prompt, (), asking.instructions or TEXTS["brief"][asking.language])
    options = {"stop": ["\n\n"], **asking.options}  # one paragraph: what comes after it rambles
    return Query(Request(conversation(prompt, asking.history, system), options=options))


def _from_results(asking: TurnSpec, request: str, since: Sequence[Message]) -> Query:
    """Rule 4: the results, and the request to answer from them."""
    say = TEXTS["given"][asking.language]
    calls = {call.id: call for message in since for call in message.calls}
    results = [m for m in since if m.role == "tool" and m.call_id not in asking.refused]
    outcomes: list[tuple[ToolCall | None, str]] = [(calls.get(m.call_id or ""), m.text) for m in results]
    lines = []
    for call, text in outcomes:
        arguments = ", ".join(f"{k}={v}" for k, v in call.arguments.items()) if call else ""
        shown = text[: answers.MAX_SHOWN]
        lines.append(say.format(name=call.name if call else "tool", arguments=arguments, text=shown))
    user = "\n".join([request, *lines, TEXTS["from_results"][asking.language]])
    messages = (Message("system", asking.instructions), Message("user", user))
    options = {"max_tokens": ANSWER_TOKENS, **asking.options}
    return Query(
        Request(messages if asking.instructions else messages[1:], options=options, schema=None),
        lambda: answers.CheckedAnswer(request, outcomes),
    )


def _say(asking: TurnSpec, key: str, **fields: str) -> Query:
    """A question to the person in our own words; the model's part is one token, and not read."""
    text = TEXTS[key][asking.language].format(**fields)
    options = {**asking.options, "max_tokens": 1}
    return Query(Request(asking.history[-1:] or (Message("user", text),), options=options), lambda: _FixedText(text))


class _FixedText:
    """A machine for a reply whose text is fixed before it comes."""

    def __init__(self, text: str) -> None:
        self.problems: list[str] = []
        self._text = text

    def feed(self, text: str) -> list[Delta]:
        return []

    def finish(self) -> list[Delta]:
        return [TextDelta(self._text)]


# --- other models: the model chooses ------------------------------------------------------------------------------


def _choose(asking: TurnSpec) -> Any:
    """Rule 2, as steps; returns the tool, or None."""
    if not asking.tools:
        return None
    if asking.tool_choice not in ("auto", "none", "required"):
        return next((t for t in asking.tools if t.name == asking.tool_choice), None)
    request, _ = _since_request(asking.history)
    tools = yield from _of_one_group(asking, choosers.rank(request, asking.tools).tools)
    names = {t.name: " ".join(t.description.split())[:160] for t in tools[:SHORTLIST]}
    name = yield from _by_name(asking, names, "names")
    chosen = next((t for t in tools if t.name == name), None)
    return tools[0] if chosen is None and asking.tool_choice == "required" else chosen


def _of_one_group(asking: TurnSpec, tools: Sequence[ToolSpec]) -> Any:
    """Many tools are narrowed to one group first: a choice among a few names is one that models make well."""
    groups = list(dict.fromkeys(t.group for t in asking.tools if t.group))
    if len(tools) <= MANY_TOOLS or len(groups) < 2:
        return tools
    group = yield from _by_name(asking, {g: _members(g, asking.tools) for g in groups}, "groups")
    return [t for t in tools if t.group in (group, None)] if group else tools


def _members(group: str, tools: Sequence[ToolSpec]) -> str:
    return ", ".join(t.name for t in tools if t.group == group)


def _by_name(asking: TurnSpec, names: dict[str, str], chooser: str) -> Any:
    """A constrained choice among names, and none."""
    shown = [f"- {name}: {about}" for name, about in names.items()]
    none = [] if asking.tool_choice == "required" else [NO_TOOL]
    shown += [f"- {name}: {TEXTS['none'][asking.language]}" for name in none]
    system = TEXTS["choose"][asking.language] + "\n".join(shown)
    prompt = asking.prompt(ROWS["answer"])
    schema = names_schema([*names, *none])
    options = {**asking.options, "max_tokens": token_limit(schema), "temperature": 0.0}
    engine = engine_of(asking.info)
    if engine.wrapped:
        schema = {
            "type": "object",
            "properties": {"reply": schema},
            "required": ["reply"],
            "additionalProperties": False,
        }
    messages = conversation(prompt, asking.history, system)
    request = Request(messages, schema=schema, options=options, extra=held_to(schema, engine))
    reply = yield Query(request, purpose="choose", visible=False)
    assert isinstance(reply, Reply)
    found = [name for name in names if re.search(named(name), reply.content)]
    name = max(found, key=len) if found else None
    yield Chosen(chooser, (name,) if name else (), None)
    return name
