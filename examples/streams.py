"""Streams without an event loop: events, text, and only the text of the answer.

python examples/streams.py
"""

from __future__ import annotations

from callgate import Agent, Replay, tool
from callgate.events import CallFinished, CallStarted


@tool(effect="read")
def look(at: str) -> str:
    """Looks at something."""
    return f"saw {at}"


def agent() -> Agent:
    call = {"content": "Let me see. ", "calls": [{"name": "look", "arguments": {"at": "x"}}], "chunks": 4}
    return Agent(Replay([call, {"content": "It is there.", "chunks": 4}]), tools=[look])


for event in agent().stream_sync("Where is it?"):
    if isinstance(event, (CallStarted, CallFinished)):
        print(event)
print("|".join(agent().stream_sync("Where is it?").text_stream()))
stream = agent().stream_sync("Where is it?")
print("|".join(stream.text_stream(final_only=True)), "-", stream.result.reason)
