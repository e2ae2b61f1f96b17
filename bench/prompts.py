"""Twelve prompts to the embedded model with the demo's tools, and what came out, word for word.

    python bench/prompts.py            # a table in Markdown

One law: nothing is left out and nothing is asked twice.
"""

from __future__ import annotations

import asyncio
import json
import time

from callgate import Agent, RunResult
from callgate.apps.demo import TOOLS
from callgate.events import TurnFinished

PROMPTS = (
    "What is 17 * 23?",
    "Calculate (3 + 4) / 5.",
    "What is 15% of 80?",
    "What time is it in Tokyo?",
    "What's the time in New York right now?",
    "Where is parcel P-1003?",
    "Has parcel P-1002 been delivered?",
    "Where is parcel P-9999?",
    "Search the documentation for how to cancel a run.",
    "What do the docs say about dialects?",
    "What is the capital of France?",
    "I have 3 boxes with 12 eggs each. How many eggs is that?",
)


async def main() -> None:
    """Asks them one after the other with a fresh conversation each."""
    agent = Agent("local", tools=TOOLS)
    print("| prompt | calls and results | final answer | s |\n|---|---|---|---:|")
    calls = sound = answered = 0
    for prompt in PROMPTS:
        began = time.monotonic()
        odd: list[str] = []
        async with agent.stream(prompt) as events:
            async for event in events:
                if isinstance(event, TurnFinished):
                    odd.extend(event.finish.problems)
        result = events.result
        calls += len(result.calls)
        sound += sum(record.result.status not in {"invalid_arguments", "unknown_tool"} for record in result.calls)
        answered += result.reason == "answered"
        print(
            f"| {prompt} | {_calls(result)} | {_words(result.text, odd)} | {time.monotonic() - began:.1f} |", flush=True
        )
    await agent.aclose()
    print(f"\n{answered} of {len(PROMPTS)} answered; {sound} of {calls} calls valid.")


def _calls(result: RunResult) -> str:
    shown = [
        f"`{record.call.name}` `{json.dumps(record.call.arguments, ensure_ascii=False)}` → "
        f"{_cell(record.result.content, 90)}"
        for record in result.calls
    ]
    return "<br>".join(shown) or "none"


def _words(text: str, odd: list[str]) -> str:
    """The final answer, marked where the results were shown in its place."""
    return _cell(text, 160) + (
        " *(model's answer replaced by the result)*" if any("shown instead" in problem for problem in odd) else ""
    )


def _cell(text: str, limit: int) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


if __name__ == "__main__":
    asyncio.run(main())
