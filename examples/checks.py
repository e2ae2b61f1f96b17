"""Checks of prompts and answers, and a transform of results.

python examples/checks.py
"""

from __future__ import annotations

from dataclasses import replace

from callgate import Agent, Replay, ToolCall, ToolResult, tool
from callgate.checks import AskAgain, Change, Decision, Refuse


@tool(effect="read")
def customer(number: int) -> str:
    """A customer's address."""
    return "Ann, 12 High Street, card 4000-1234"


def check_prompt(text: str) -> Decision:
    return Refuse("no passwords, please") if "password" in text else Change(text.strip())


async def check_answer(text: str) -> Decision:
    return None if text.endswith(".") else AskAgain("write a whole sentence")


def without_cards(call: ToolCall, result: ToolResult) -> ToolResult:
    return replace(result, content=result.content.split(", card")[0], value=None)


script = [{"calls": [{"name": "customer", "arguments": {"number": 7}}]}, "High Street", "She lives in High Street."]
agent = Agent(
    Replay(script), tools=[customer], check_prompt=check_prompt, check_answer=check_answer, on_result=without_cards
)
result = agent.run_sync("  Where does customer 7 live?")
print(result.calls[0].result.content, "|", result.text, "|", result.requests, "requests")
print(agent.run_sync("My password is x").reason)
