"""Ask a model and record the raw stream of its answer in a file, byte for byte.

Law: secrets do not reach the file. (tests/test_providers_replay.py::test_no_secret_reaches_the_file)
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from callgate.apps.cli._options import options_of
from callgate.apps.output import answer, say
from callgate.errors import ConfigError


@click.command()
@click.argument("model")
@click.argument("prompt")
@click.option("--output", required=True, metavar="FILE", type=click.Path(dir_okay=False), help="The recording.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--tools", metavar="FILE", help="The tools to offer: a JSON list, or FILE.py[:NAME].")
@click.option("-o", "--option", "options", multiple=True, metavar="KEY=VALUE", help="Sampling: -o temperature=0.")
@click.option("--key", help="The server's key; else its environment variable.")
@click.option("--whole", is_flag=True, help="Ask for an answer that is not streamed.")
def command(
    model: str, prompt: str, *, output: str, tools: str | None, options: tuple[str, ...], key: str | None, **flags: bool
) -> None:
    """Ask MODEL for an answer to PROMPT and record its raw stream; `callgate replay` plays it.

    \b
    callgate record ollama:qwen3 "What is the weather in Paris?" --tools tools.json --output weather.jsonl
    """
    from callgate.apps.toolfile import described
    from callgate.types import Message, Request

    sampling = options_of(options)
    if Path(output).exists() and not flags["force"]:
        raise ConfigError(f"--output {output}: there is such a file already; --force overwrites it")
    request = Request(
        (Message("user", prompt),),
        tools=described(tools) if tools else (),
        options=sampling,
        stream=not flags["whole"],
    )
    finish = asyncio.run(_record(model, {} if key is None else {"key": key}, request, output))
    say(f"recorded in {output}: {finish}", err=True)


async def _record(model: str, options: dict[str, Any], request: Any, output: str) -> str:
    from callgate import providers
    from callgate.reply import TurnReader
    from callgate.types import TextDelta

    provider = providers.open(model, record=output, **options)
    turn = TurnReader()
    try:
        async with provider.stream(request) as stream:
            async for deltas in stream:
                for delta in turn.feed(deltas):
                    if isinstance(delta, TextDelta):
                        answer(delta.text, end="")
    finally:
        await provider.aclose()
    answer("")
    reply = turn.reply
    return f"{reply.finish}, {len(reply.calls)} calls" + (f", {reply.error}" if reply.error else "")
