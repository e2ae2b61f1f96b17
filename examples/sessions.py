"""Conversations that the ledger keeps, and messages that the program keeps itself.

python examples/sessions.py
"""

from __future__ import annotations

import asyncio

from callgate import Agent, Replay
from callgate.messages import dump_messages, load_messages


async def main() -> None:
    async with Agent(Replay(["Hello Ann.", "You are Ann.", "Branched."])) as agent:
        await agent.run("I am Ann.", session="chat")
        result = await agent.run("Who am I?", session="chat")
        print(result.run_id, [message.text for message in await agent.history("chat")])
        branch = await agent.run("And now?", session="other", history=await agent.history("chat"))
        print(branch.run_id, len(branch.messages))
        text = dump_messages(result.messages)
        print(text)
        assert load_messages(text) == result.messages


asyncio.run(main())
