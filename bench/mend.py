"""What checking a call costs: `python bench/mend.py [TABLE …]`.

valid     mend of valid arguments, beside json.loads and jsonschema-rs doing the least that could be done
decision  mend and the gate, beside the argument validation of pydantic-ai and LangChain on the same function
growth    arguments of 1 MB against 256 KB, valid, to be repaired, and to be coerced: what a character costs
damage    20,000 objects written wrongly: how many are read as meant, refused, or read as something else
tools     a thousand tools made and put into a toolbox
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Literal

import jsonschema_rs

from _damage import case
from _measure import Table, main, measure
from _peers import library
from callgate import Principal, Tool, Toolbox, compile_schema, mend
from callgate.policy import JudgeContext, judge, permission, rate, repetition
from callgate.types import ToolCall

Rows = list[dict[str, Any]]


def order(
    city: str,
    days: int = 3,
    unit: Literal["C", "F"] = "C",
    tags: list[str] | None = None,
    at: dict[str, float] | None = None,
) -> str:
    """Looks at the weather.

    Args:
        city: Where.
        days: How many days.
        unit: The unit.
        tags: What matters.
        at: The place.
    """
    return city


ROWS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "v": {"type": "number"}, "s": {"type": "string"}},
                "required": ["id"],
            },
        }
    },
}
TEXTS = {
    "one string": {"city": "Oslo"},
    "five fields": {"city": "Oslo", "days": 3, "unit": "C", "tags": ["a", "b"], "at": {"x": 1.5, "y": 2.5}},
    "a string of 4 KB": {"city": "x" * 4000},
    "a string of 1 MB": {"city": "x" * 1_000_000},
    "1 MB beyond Latin-1": {"city": "ü→" * 300_000},
    "100,000 strings": {"city": "x", "tags": ["abc"] * 100_000},
}


def table_valid() -> Table:
    """The floor is json.loads and a compiled jsonschema-rs validator: no repair, no check for duplicates or NaN."""
    table = Table("mend of valid arguments, beside json.loads + jsonschema-rs")
    schema = Tool.from_function(order, effect="read").spec.parameters
    cases = {name: (json.dumps(value, ensure_ascii=False), schema) for name, value in TEXTS.items()}
    rows = [{"id": i, "v": i / 3, "s": f"row {i}"} for i in range(20_000)]
    cases["20,000 objects"] = (json.dumps({"rows": rows}), ROWS)
    for name, (text, wanted) in cases.items():
        valid = jsonschema_rs.validator_for(wanted, offline=True).is_valid
        compiled = compile_schema(wanted)
        assert mend(text, compiled).outcome == "ok"
        both = {"mend": lambda t=text, c=compiled: mend(t, c), "floor": lambda t=text, v=valid: v(json.loads(t))}
        measured = measure(both)
        table.at_most(name, measured.ratio("mend", "floor"), 2, cost=f"{measured.micros('mend'):.3g} µs")
    return table


def table_decision() -> Table:
    """From the text of the arguments to the verdict; the peers only validate."""
    table = Table("a decision: mend and the gate, beside argument validation alone")
    tool = Tool.from_function(order, effect="read", permission="weather.read", rate="1000/s")
    text = json.dumps(TEXTS["five fields"])
    rules = [permission.Rule(), rate.Rule(), repetition.Rule()]
    context = JudgeContext(principal=Principal("u", {"weather.*"}))

    def decide() -> Any:
        mended = mend(text, tool.compiled)
        return judge(rules, ToolCall("c", tool.name, mended.value), tool.spec, context)

    works: dict[str, Callable[[], Any]] = {"callgate": decide, "mend alone": lambda: mend(text, tool.compiled)}
    peer = library("pydantic_ai", "pydantic-ai-slim")
    if peer is not None:
        validator = peer.Tool(order).function_schema.validator
        works["pydantic-ai"] = lambda: validator.validate_json(text)
    peer = library("langchain_core.tools", "langchain-core")
    if peer is not None:
        structured = peer.StructuredTool.from_function(order)
        works["LangChain"] = lambda: structured._parse_input(json.loads(text), None)
    measured = measure(works)
    table.fact("callgate, mend and gate", measured.micros("callgate"), unit="µs a call")
    table.fact("of it mend", measured.micros("mend alone"), unit="µs a call")
    for name in works.keys() - {"callgate", "mend alone"}:
        table.fact(f"{name}, validation", measured.micros(name), unit="µs a call")
    return table


def table_growth() -> Table:
    """Four times the text may cost four times the time, and a little more for the caches."""
    table = Table("growth: a character of 1 MB against one of 256 KB")

    def rows(count: int) -> str:
        row = '{"id": %d, "v": 2.5, "s": "a \\"quoted\\" word, and more text to read"}'
        return '{"rows": [' + ", ".join(row % i for i in range(count)) + "]}"

    changes: dict[str, Callable[[str], str]] = {
        "valid": lambda text: text,
        "single quotes": lambda text: text.replace('\\"', "“").replace('"', "'"),
        "inner quotes": lambda text: text.replace('\\"', '"'),
        "trailing commas": lambda text: text.replace("}", ",}"),
        "every id as text": lambda text: text.replace('"id": ', '"id": "').replace(', "v"', '", "v"'),
    }
    compiled = compile_schema(ROWS)
    for name, change in changes.items():
        small, large = change(rows(3_700)), change(rows(14_800))
        assert mend(large, compiled).outcome == "ok", mend(large, compiled).errors[:3]
        both = {"small": lambda t=small: mend(t, compiled), "large": lambda t=large: mend(t, compiled)}
        measured = measure(both, rounds=3)
        ratio = measured.ratio("large", "small") / (len(large) / len(small))
        cost = f"{measured.seconds('large') * 1e3:.0f} ms for {len(large) / 1e6:.2f} MB"
        table.at_most(name, ratio, 1.5, cost=cost)
    return table


def table_damage() -> Table:
    """A wrong reading runs a tool with arguments that nobody meant; a refusal costs a turn."""
    table = Table("20,000 objects written wrongly")
    peer = library("json_repair", "json-repair")
    chance = random.Random(1)
    cases = [case(chance) for _ in range(20_000)]
    compiled = compile_schema({"type": "object"})

    def ours(text: str) -> Any:
        mended = mend(text, compiled)
        return mended.value if mended.ok else None

    readers: dict[str, Callable[[str], Any]] = {"mend": ours}
    if peer is not None:
        readers["json_repair"] = peer.loads
    for name, reader in readers.items():
        right = wrong = 0
        for meant, text in cases:
            found = reader(text)
            same = json.dumps(found, sort_keys=True) == json.dumps(meant, sort_keys=True)
            right += same
            wrong += not same and found is not None
        table.fact(f"{name}: as meant", right / len(cases) * 100, unit="%")
        say = (
            table.at_most if name == "mend" else lambda what, reached, _, *, unit: table.fact(what, reached, unit=unit)
        )
        say(f"{name}: as something else", wrong / len(cases) * 100, 0.1, unit="%")
    return table


def table_tools() -> Table:
    """Tools from signatures and from schemas."""
    table = Table("a thousand tools")
    schema = Tool.from_function(order).spec.parameters
    calls: dict[str, Callable[[], object]] = {
        "from signatures": lambda: Toolbox([Tool.from_function(order, name=f"t{i}") for i in range(1000)]),
        "from schemas": lambda: Toolbox([Tool.from_schema(f"t{i}", "", schema) for i in range(1000)]),
    }
    measured = measure(calls, rounds=3)
    for name in calls:
        table.fact(name, measured.seconds(name) * 1e3, unit="ms")
    box = Toolbox([Tool.from_schema(f"t{i}", "", schema) for i in range(1000)])
    table.fact("finding one", measure({"get": lambda: box.get("t999")}).micros("get"), unit="µs")
    return table


if __name__ == "__main__":
    main(
        {
            "valid": table_valid,
            "decision": table_decision,
            "growth": table_growth,
            "damage": table_damage,
            "tools": table_tools,
        }
    )
