"""Does every constrained reply of the embedded model end by itself, and fit its schema?

    python bench/bounds.py --requests 100  # of BFCL, each greedily and with dice: 200 calls, some minutes
    python bench/bounds.py                 # 20 requests

One law: the model is held to a call, as `tool_choice` says, and nothing is asked twice: a reply that the token limit
cut off is counted, with what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import jsonschema_rs

from callgate import protocols, providers
from callgate.evals import bfcl
from callgate.evals._cases import Case
from callgate.providers import Provider
from callgate.reply import TurnReader
from callgate.types import ModelInfo, Reply

GROUPS = ("simple_python", "multiple")
HOW = ({"temperature": 0.0}, {"temperature": 1.0, "seed": 7})


async def main(requests: int) -> None:
    """Asks, counts and prints."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callgate" / "bfcl"
    provider = providers.open("local")
    info = await provider.info()
    counts: Counter[str] = Counter()
    longest, began = 0, time.monotonic()
    for group in GROUPS:
        for case in bfcl.sample(bfcl.load(group, folder), requests // len(GROUPS), seed=7):
            for options in HOW:
                reply = await ask(provider, info, case, options)
                longest = max(longest, (reply.usage or {}).get("output", 0))
                counts[verdict(case, reply)] += 1
                if counts.total() % 20 == 0:
                    print(f"{counts.total()}: {dict(counts)}", flush=True)
                if verdict(case, reply) == "cut off":
                    print(f"{case.id}: {reply.usage} {reply.incomplete}", flush=True)
    await provider.aclose()
    print(f"{counts.total()} calls: {dict(counts)}; at most {longest} tokens, {time.monotonic() - began:.0f} s")


async def ask(provider: Provider, info: ModelInfo, case: Case, options: dict[str, float]) -> Reply:
    """One request under `constrained`, held to the first tool."""
    turn = protocols.turn(
        "constrained",
        history=case.messages,
        tools=case.tools,
        info=info,
        options=options,
        tool_choice=case.tools[0].name,
        parallel=False,
    )
    query = next(turn)
    assert isinstance(query, protocols.Query)
    reader = TurnReader(query.machine() if query.machine else None)
    async with provider.stream(query.request) as deltas:
        async for some in deltas:
            reader.feed(some)
    return reader.reply


def verdict(case: Case, reply: Reply) -> str:
    """How it ended."""
    if reply.finish == "length":
        return "cut off"
    if len(reply.calls) != 1 or reply.calls[0].name != case.tools[0].name:
        return "no call"
    valid = jsonschema_rs.validator_for(dict(case.tools[0].parameters)).is_valid(reply.calls[0].arguments)
    return "valid" if valid else "invalid"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20)
    asyncio.run(main(parser.parse_args().requests))
