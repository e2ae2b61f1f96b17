"""A run as events: what a user interface sees while the model writes. Leaving the block would cancel the run.

python examples/watch.py
"""

from __future__ import annotations

import asyncio

from callgate import Agent, Replay, tool
from callgate.events import CallFinished, CallStarted, RunFinished
from callgate.types import CallDelta, TextDelta


@tool(effect="read")
async def get_weather(city: str) -> dict[str, object]:
    """Current weather in a city."""
    await asyncio.sleep(0.01)
    return {"city": city, "sky": "rain", "celsius": 9}


async def main() -> None:
    """Shows every event as it comes."""
    call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    model = Replay([{"calls": [call], "chunks": 4}, {"content": "Take an umbrella.", "chunks": 5}])
    async with Agent(model, tools=[get_weather]).stream("What should I wear in Paris?") as events:
        async for event in events:
            match event:
                case CallDelta(arguments=fragment):
                    print("arguments so far:", fragment)
                case CallStarted(name=name):
                    print("calling", name)
                case CallFinished(result=result):
                    print("got result", result.content)
                case TextDelta(text=text):
                    print("text:", text)
                case RunFinished(reason=reason):
                    print(reason)
    assert events.result.text == "Take an umbrella."


asyncio.run(main())
