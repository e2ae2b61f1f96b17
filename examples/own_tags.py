"""A model that is asked for calls in tags of one's own, and read in them: whole, and as it arrives.

python examples/own_tags.py
"""

from __future__ import annotations

from callgate import Agent, Reader, Replay, tool
from callgate.dialects import Dialect


@tool(effect="read")
def look(at: str) -> str:
    """Looks at something."""
    return f"saw {at}"


TAGS = Dialect.tagged("[[call]]", "[[/call]]")
ANSWER = 'Let me see.\n[[call]]{"name": "look", "arguments": {"at": "the door"}}[[/call]]'

model = Replay([{"content": ANSWER, "chunks": 5}, "It is open."])
result = Agent(model, tools=[look], protocol=TAGS).run_sync("How is the door?")
print(model.requests[0].messages[0].text.splitlines()[-1])
print(result.calls[0].result.content, "-", result.text)

reader = Reader(TAGS, tools=[look])
for chunk in (ANSWER[:30], ANSWER[30:]):
    print(reader.feed(chunk))
print(reader.finish())
