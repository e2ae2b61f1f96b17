"""One agent, and runs that have something otherwise: model, options, limits, tools, rules, the first tool.

python examples/overrides.py
"""

from __future__ import annotations

from callgate import Agent, Replay, tool
from callgate.limits import Limits
from callgate.types import Deny, ToolCall


@tool(effect="read")
def look(at: str) -> str:
    """Looks at something."""
    return f"saw {at}"


@tool(effect="read")
def clock() -> str:
    """The time."""
    return "12:00"


def at_night(call: ToolCall, spec: object, context: object) -> Deny:
    return Deny("night", f"no {call.name} at night")


def looking(*places: str) -> dict[str, object]:
    return {"calls": [{"name": "look", "arguments": {"at": place}} for place in places]}


agent = Agent(Replay(["An answer."]), tools=[look, clock], options={"temperature": 0})
other = Replay([looking(*"abcd"), "I saw some."])
result = agent.run_sync(
    "Look around.", model=other, tools=["look"], tool_choice="required", limits=Limits(max_calls_per_turn=2)
)
print([record.result.status for record in result.calls])  # the first two reads run, the model is told of the others
print([request.tool_choice for request in other.requests])

strict = agent.run_sync("?", model=Replay([looking("x"), "Then not."]), policy=[at_night])
print(strict.calls[0].result.content)
print(agent.run_sync("?").text)

several = Agent(["http://127.0.0.1:9/v1#gone", Replay(["The second one answers."])])
print(several.run_sync("?").text)
