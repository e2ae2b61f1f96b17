"""Play a recorded stream again, cut as it came or into pieces of any size, and print what it says.

Law: the same recording gives the same reply for every cut.
    (tests/test_providers_replay.py::test_the_command_plays_a_recording_the_same_for_every_cut)
"""

from __future__ import annotations

import time
from typing import Any

import click

from callgate.apps import output
from callgate.apps.cli._replies import print_events, print_reply


@click.command()
@click.argument("file")
@click.option("--chunks", metavar="N", type=click.IntRange(min=1), help="Bytes at a time. Default: as they came.")
@click.option("--dialect", metavar="NAME|auto", help="Read calls out of the text, too. Default: no.")
@click.option(
    "--wire",
    type=click.Choice(["openai", "ollama", "anthropic", "responses"]),
    help="Whose API it is, for a file of bare bytes.",
)
@click.option("--speed", metavar="X", type=click.FloatRange(min=0), help="Times the recorded pace; 1: as it was.")
@click.option("--events", is_flag=True, help="Print each delta as it comes, one JSON object a line.")
def command(
    file: str, *, chunks: int | None, dialect: str | None, wire: str | None, speed: float | None, events: bool
) -> None:
    """Play the recording FILE (of `callgate record`, or the bare bytes of a stream) and print the reply as JSON."""
    from callgate.providers import Recording
    from callgate.reply import Reader

    recording = Recording.load(file)
    reader = Reader(dialect, wire=wire or recording.wire, tools=_tools(recording.request))
    body = b"".join(recording.pieces)
    pieces = recording.pieces if chunks is None else [body[n : n + chunks] for n in range(0, len(body), chunks)]
    began = time.monotonic()
    for number, piece in enumerate(pieces):
        if speed and chunks is None:
            time.sleep(max(0.0, recording.times[number] / speed - (time.monotonic() - began)))
        print_events(reader.feed(piece), events)
    print_events(reader.finish(), events)
    if not events:
        print_reply(reader.reply)
    if recording.end not in ("eof", "left"):
        output.say(f"the recording ended: {recording.end}", err=True)


def _tools(request: Any) -> list[object]:
    tools = request.get("tools")
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
