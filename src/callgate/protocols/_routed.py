"""`routed`: first the tool, then its arguments, then an answer from the results; for small models and for many tools.

One law: the model is only asked what it is good at. What words decide (which tool, which numbers) is decided by words,
and what the model then writes is held to a schema that admits nothing else.

Theory of operation, one turn:
1. The request is cut into the parts that need different tools; the first part whose tool was not yet called is this
   turn's.
2. A tool is chosen, or none: small models by the words (`_choosers.rank`), others by a constrained choice of names,
   with more than ten tools of their group first; or by likelihood. How, and how sure, is reported as `Chosen`.
3. Its arguments are one request under its own schema; for a small model narrowed to what the request offers (`_slots`).
4. With all results there, or with no tool, the model answers. A small model's answer from results must hold their
   figures and no others; if it does not, the results themselves are told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from callgate.protocols import _choosers as choosers
from callgate.protocols import _ground as ground
from callgate.protocols._object import ENDED, ObjectReader
from callgate.protocols._prompts import conversation, describe, system_text
from callgate.protocols._rows import MANY_TOOLS, ROWS, is_small
from callgate.protocols._schemas import engine_of, names_schema, token_limit
from callgate.protocols._slots import narrow, ungrounded
from callgate.protocols._steps import Chosen, Query, Score, Scores, Turn
from callgate.protocols._words import TEXTS, WORKED
from callgate.types import Delta, Message, Reply, Request, TextDelta, ToolCall, ToolSpec

if TYPE_CHECKING:
    from callgate.protocols import Asking

NONE_BELOW = 0.235
"""A fit below this means that no tool is needed (fitted on BFCL's development third)."""
PART_NEEDS = 0.5
"""A part of a request must fit its tool so well to count as a need of its own."""
ASK_BELOW = 0.6
"""A write that fits worse than this is asked about first."""
NO_TOOL = "none"
SHORTLIST = 20
"""Names that a model chooses among at once."""
ANSWER_TOKENS = 160
MAX_SHOWN = 700
"""Characters of a result that a small model answers from."""


def routed(asking: Asking, single: Callable[[Asking], Turn], chooser: str = "auto") -> Turn:
    """One turn; `single` is the turn of a protocol that asks once."""
    if asking.row.name == "routed" and is_small(asking.info):
        return (yield from _small(asking))
    tool = yield from _choose(asking, chooser)
    constrained = replace(asking, row=ROWS["constrained"], tools=(tool,) if tool else ())
    return (yield from single(constrained))


# --- small models -------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Need:
    """A part of the request, and the tool that it needs."""

    text: str
    tool: ToolSpec
    fit: float


def _small(asking: Asking) -> Turn:
    request, since = _since_request(asking.history)
    called = [call.name for message in since for call in message.calls]
    needs = plan(request, asking.tools, _last_tool(asking))
    need = next((n for i, n in enumerate(needs) if n.tool.name not in called), None)
    forced = next((t for t in asking.tools if t.name == asking.tool_choice), None)
    if forced is not None and not called:
        need = Need(request, forced, 1.0)
    if need is None and called:
        reply = yield from _ask(_from_results(asking, request, since))
        return replace(reply, finish="stop") if reply.finish == "length" else reply  # what is said was checked
    if need is None:
        yield Chosen("lexical", (), 1 - choosers.rank(request, asking.tools).fit if asking.tools else None)
        return (yield from _ask(_plain(asking)))
    yield Chosen("lexical", (need.tool.name,), round(need.fit, 3))
    if need.tool.effect == "write" and need.fit < ASK_BELOW:
        return (yield from _ask(_say(asking, "sure", name=need.tool.name)))
    reply = yield from _ask(_arguments(asking, need))
    if need.tool.grounded and reply.calls:
        missing = ungrounded(need.tool, reply.calls[0].arguments, need.text)
        if missing:
            return (yield from _ask(_say(asking, "which", name=", ".join(missing))))
    return reply


def _ask(query: Query) -> Turn:
    reply = yield query
    assert isinstance(reply, Reply)
    return reply


def plan(request: str, tools: Sequence[ToolSpec], before: ToolSpec | None = None) -> list[Need]:
    """Rule 1: the tools that the request needs, in order, each with the part of the request that it is for."""
    if not tools:
        return []
    if before is not None and _follows_up(request):
        return [Need(request, before, 0.5)]
    parts: list[Need] = []
    for text in _parts(request):
        ranked = choosers.rank(text, tools)
        if ranked.fit >= PART_NEEDS and ranked.tools[0].name not in [n.tool.name for n in parts]:
            parts.append(Need(text, ranked.tools[0], ranked.fit))
    if len(parts) > 1:
        return parts
    whole = choosers.rank(request, tools)
    return [Need(request, whole.tools[0], whole.fit)] if whole.fit >= NONE_BELOW else []


_CUTS = re.compile(r"[.?!;。？！；]\s*|\s*,?\s+(?:and also|and then|and|then|also)\s+|，?(?:然后|并且|另外|还有)")


def _parts(request: str) -> list[str]:
    return [part.strip() for part in _CUTS.split(request) if part and len(part.strip()) > 3]


_FOLLOW_UP = re.compile(r"^\s*(?:and|what about|how about|also|那么?|还有)\b", re.IGNORECASE)


def _follows_up(request: str) -> bool:
    return bool(_FOLLOW_UP.match(request)) and len(request.split()) <= 7


def _last_tool(asking: Asking) -> ToolSpec | None:
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


def _arguments(asking: Asking, need: Need) -> Query:
    """Rule 3."""
    engine = engine_of(asking.info)
    schema = narrow(need.tool, need.text, engine)
    messages = [Message("system", TEXTS["arguments"][asking.language].strip())]
    for user, answer in WORKED[asking.language]:
        messages += [Message("user", user), Message("assistant", answer)]
    messages.append(Message("user", _form(asking, need, schema)))
    options = {"max_tokens": token_limit(schema), **asking.options, "temperature": 0.0}
    request = Request(tuple(messages), schema={**schema, **engine.compact}, options=options, extra=engine.copying)
    return Query(request, lambda: ArgumentsReader(need.tool.name), "arguments", visible=not need.tool.grounded)


def _form(asking: Asking, need: Need, schema: dict[str, Any]) -> str:
    """The tool and those of its parameters that are asked for, then the request: what is copied stands last."""
    tool = need.tool
    properties = tool.parameters.get("properties") or {}
    lines = [f"{tool.name}: {' '.join(tool.description.split())[:200]}"]
    for name in schema["properties"]:
        about = properties.get(name)
        said = about.get("description", "") if isinstance(about, Mapping) else ""
        lines.append(f"{name}: {' '.join(str(said).split())[:160]}")
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


def _plain(asking: Asking) -> Query:
    """No tool: the model talks."""
    prompt = asking.prompt(ROWS["answer"])
    system = system_text(prompt, (), asking.instructions or TEXTS["brief"][asking.language])
    options = {"stop": ["\n\n"], **asking.options}  # one paragraph: what comes after it rambles
    return Query(Request(conversation(prompt, asking.history, system), options=options))


def _from_results(asking: Asking, request: str, since: Sequence[Message]) -> Query:
    """Rule 4: the results, and the request to answer from them."""
    say = TEXTS["given"][asking.language]
    calls = {call.id: call for message in since for call in message.calls}
    told: list[tuple[ToolCall | None, str]] = [(calls.get(m.call_id or ""), m.text) for m in since if m.role == "tool"]
    lines = []
    for call, text in told:
        arguments = ", ".join(f"{k}={v}" for k, v in call.arguments.items()) if call else ""
        lines.append(say.format(name=call.name if call else "tool", arguments=arguments, text=text[:MAX_SHOWN]))
    user = "\n".join([request, *lines, TEXTS["from_results"][asking.language]])
    messages = (Message("system", asking.instructions), Message("user", user))
    options = {"max_tokens": ANSWER_TOKENS, **asking.options}
    return Query(
        Request(messages if asking.instructions else messages[1:], options=options, schema=None),
        lambda: CheckedAnswer(request, told),
    )


class CheckedAnswer:
    """A machine for a small model's answer from results: held until its end, then checked against them.

    The model's words stand if every result is in them and nothing else: no number and no telling word that is neither
    in the results nor in the request. Otherwise the results are told as they are.
    """

    def __init__(self, request: str, results: Sequence[tuple[ToolCall | None, str]]) -> None:
        self.problems: list[str] = []
        self._request = request
        self._results = results
        self._text: list[str] = []

    def feed(self, text: str) -> list[Delta]:
        """Nothing yet: what is not checked is not shown."""
        self._text.append(text)
        return []

    def finish(self) -> list[Delta]:
        """The model's answer, or the results."""
        text = "".join(self._text).strip()
        if text and holds(text, self._request, [result for _, result in self._results]):
            return [TextDelta(text)]
        self.problems.append("the model's answer did not hold the results' figures; the results are told instead")
        return [TextDelta("\n".join(tell(call, result) for call, result in self._results))]


def holds(answer: str, request: str, results: Sequence[str]) -> bool:
    """Whether an answer keeps to the results: it has a value of each of them, and says nothing of its own."""
    known = " ".join((request, *results))
    numbers = {v for n in ground.numbers(known) for v in n.values}
    if any(n.value not in numbers for n in ground.numbers(answer)):
        return False
    if ground.content(answer) - ground.content(known) - _PLAIN_WORDS:
        return False
    lowered = answer.lower()
    asked = ground.content(request)
    return all(any(v.lower() in lowered for v in _wanted_values(result, asked)) for result in results)


_PLAIN_WORDS = ground.word_set("result answer equal current now local found valu therefor so total yes")
"""Words that an answer may add to what the results say."""


def _wanted_values(result: str, asked: set[str]) -> list[str]:
    """The values of a result of which an answer needs one: of the fields that the request names, else any short one."""
    try:
        value = json.loads(result)
    except ValueError:
        return [result.strip()]
    flat = list(_leaves(value, ""))
    named = [text for name, text in flat if ground.content(name) & asked]
    return named or [text for _, text in flat if len(text) <= 80] or [result]


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, name)
    elif value is not None:
        yield name, json.dumps(value) if isinstance(value, bool) else str(value)


def tell(call: ToolCall | None, result: str) -> str:
    """A result in plain words: fields as "name value", lists a line an item, an expression with its value."""
    given = [str(v) for v in call.arguments.values()] if call else []
    try:
        value = json.loads(result)
    except ValueError:
        value = result
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if str(v) not in given}
    shown = _told(value)
    if len(shown) > MAX_SHOWN:
        shown = shown[:MAX_SHOWN].rsplit(" ", 1)[0] + " …"
    if not given or "\n" in shown:
        return shown
    joined = ", ".join(given)
    return f"{joined} = {shown}" if ground.expression(joined) and ground.numbers(shown) else f"{joined}: {shown}"


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k.replace('_', ' ')} {_told(v)}" for k, v in value.items() if v not in (None, "", [], {}))
    if isinstance(value, list):
        return "\n".join(f"- {_told(v)}" for v in value) if value else "nothing"
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _say(asking: Asking, key: str, **fields: str) -> Query:
    """A question to the person in our own words; the model's part is one token, and not read."""
    text = TEXTS[key][asking.language].format(**fields)
    options = {**asking.options, "max_tokens": 1}
    return Query(Request(asking.history[-1:] or (Message("user", text),), options=options), lambda: _Said(text))


class _Said:
    """A machine that says one text, whatever comes."""

    def __init__(self, text: str) -> None:
        self.problems: list[str] = []
        self._text = text

    def feed(self, text: str) -> list[Delta]:
        return []

    def finish(self) -> list[Delta]:
        return [TextDelta(self._text)]


# --- other models: the model chooses ------------------------------------------------------------------------------


def _choose(asking: Asking, chooser: str) -> Any:
    """Rule 2, as steps; returns the tool, or None."""
    request, since = _since_request(asking.history)
    if not asking.tools:
        return None
    ranked = choosers.rank(request, asking.tools)
    if asking.tool_choice not in ("auto", "none", "required"):
        return next((t for t in asking.tools if t.name == asking.tool_choice), None)
    if chooser == "lexical":
        tool = ranked.tools[0] if ranked.fit >= NONE_BELOW and not since else None
        yield Chosen("lexical", (tool.name,) if tool else (), round(ranked.fit, 3))
        return tool
    if chooser == "likelihood" and "logprobs" in asking.info.capabilities and not since:
        return (yield from _by_likelihood(request, ranked))
    tools: Sequence[ToolSpec] = ranked.tools
    groups = list(dict.fromkeys(t.group for t in asking.tools if t.group))
    if len(tools) > MANY_TOOLS and len(groups) > 1:
        group = yield from _by_name(asking, {g: _members(g, asking.tools) for g in groups}, "groups")
        tools = [t for t in tools if t.group == group or t.group is None] if group else tools
    names = {t.name: " ".join(t.description.split())[:160] for t in tools[:SHORTLIST]}
    name = yield from _by_name(asking, names, "names")
    return next((t for t in tools if t.name == name), None)


def _members(group: str, tools: Sequence[ToolSpec]) -> str:
    return ", ".join(t.name for t in tools if t.group == group)


def _by_name(asking: Asking, names: dict[str, str], chooser: str) -> Any:
    """A constrained choice among names, and none."""
    shown = [f"- {name}: {about}" for name, about in names.items()]
    shown.append(f"- {NO_TOOL}: {TEXTS['none'][asking.language]}")
    system = TEXTS["choose"][asking.language] + "\n".join(shown)
    prompt = asking.prompt(ROWS["answer"])
    schema = names_schema([*names, NO_TOOL])
    options = {**asking.options, "max_tokens": token_limit(schema), "temperature": 0.0}
    engine = engine_of(asking.info)
    if engine.wrapped:
        schema = {
            "type": "object",
            "properties": {"reply": schema},
            "required": ["reply"],
            "additionalProperties": False,
        }
    request = Request(conversation(prompt, asking.history, system), schema=schema, options=options)
    reply = yield Query(request, purpose="choose", visible=False)
    assert isinstance(reply, Reply)
    found = [name for name in names if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", reply.content)]
    name = max(found, key=len) if found else None
    yield Chosen(chooser, (name,) if name else (), None)
    return name


def _by_likelihood(request: str, ranked: choosers.Ranked) -> Any:
    """The tool whose own words make the request the likeliest."""
    tools = ranked.tools[:SHORTLIST]
    prompts = tuple((Message("user", _why(t)),) for t in tools)
    scores = yield Score(prompts, (request,))
    assert isinstance(scores, Scores)
    values = [row[0] for row in scores.values]
    order = sorted(range(len(tools)), key=lambda i: -values[i])
    margin = values[order[0]] - values[order[1]] if len(order) > 1 else 1.0
    tool = tools[order[0]] if ranked.fit >= NONE_BELOW else None
    yield Chosen("likelihood", (tool.name,) if tool else (), round(min(1.0, margin), 3))
    return tool


def _why(tool: ToolSpec) -> str:
    examples = "".join(f"\n{e.get('request', '')}" for e in tool.examples)
    return f"{describe(tool)}\nRequests that need {tool.name}, one a line:{examples}"
