"""Ask a model and record the raw stream of its answer in a file, byte for byte.

One law: secrets do not reach the file.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

from callgate.errors import ConfigError


@click.command()
@click.argument("model")
@click.argument("prompt")
@click.option("-o", "--output", required=True, metavar="FILE", type=click.Path(dir_okay=False), help="The recording.")
@click.option("--tools", metavar="FILE", help="The tools to offer: a JSON list, or FILE.py[:NAME].")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="Sampling: --option temperature=0.")
@click.option("--key", help="The server's key; else its environment variable.")
@click.option("--whole", is_flag=True, help="Ask for an answer that is not streamed.")
def command(
    model: str, prompt: str, *, output: str, tools: str | None, options: tuple[str, ...], key: str | None, whole: bool
) -> None:
    """Ask MODEL for an answer to PROMPT and record its raw stream; `callgate replay` plays it.

    \b
    callgate record ollama:qwen3 "What is the weather in Paris?" --tools tools.json -o weather.jsonl
    """
    from callgate.apps.toolfile import described
    from callgate.types import Message, Request

    request = Request(
        (Message("user", prompt),),
        tools=described(tools) if tools else (),
        options=dict(_option(text) for text in options),
        stream=not whole,
    )
    finish = asyncio.run(_record(model, {} if key is None else {"key": key}, request, output))
    click.echo(f"recorded in {output}: {finish}", err=True)


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--option {text}: write KEY=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


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
                        click.echo(delta.text, nl=False)
                sys.stdout.flush()
    finally:
        await provider.aclose()
    click.echo()
    reply = turn.reply
    return f"{reply.finish}, {len(reply.calls)} calls" + (f", {reply.error}" if reply.error else "")
