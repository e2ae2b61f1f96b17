"""Read a model's raw output, from a file or stdin, and print the reply as JSON.

Law: what is printed does not depend on how the input arrives, and a line that cannot be read is never a traceback.
    (tests/test_parse_cli.py::test_cuts_do_not_matter)
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import click

from callgate.apps import dialectfile
from callgate.apps.cli._replies import print_events, print_reply
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from io import BufferedReader

BLOCK = 1 << 16
"""Bytes read at once: far more than a pipe hands over, far less than a recording holds."""


@click.command()
@click.argument("file", default="-")
@click.option("--dialect", metavar="NAME|auto", help="How calls are written. Default: auto; with --wire, none.")
@dialectfile.own
@click.option(
    "--wire",
    type=click.Choice(["openai", "ollama", "anthropic", "responses"]),
    help="The input is the body of this API's answer.",
)
@click.option("--tools", metavar="FILE", help="The tools the model was given: a JSON list, or FILE.py[:NAME].")
@click.option("--model", metavar="NAME", help="Choose the dialect by the model's name.")
@click.option("--template", metavar="FILE", help="Choose the dialect by the text of the model's chat template.")
@click.option("--prompt-tail", metavar="TEXT", default="", help="The end of the prompt, such as '<think>\\n'.")
@click.option("--chunks", metavar="N", type=click.IntRange(min=1), help="Characters (with --wire bytes) at a time.")
@click.option("--events", is_flag=True, help="Print each delta as it becomes certain, one JSON object a line.")
def command(
    file: str,
    *,
    dialect: str | None,
    dialect_file: str | None,
    tags: tuple[str, str] | None,
    wire: str | None,
    tools: str | None,
    model: str | None,
    template: str | None,
    prompt_tail: str,
    chunks: int | None,
    events: bool,
) -> None:
    """Read a model's raw output from FILE (default: stdin) and print the reply as JSON.

    \b
    callgate parse --dialect hermes answer.txt
    callgate parse --tags "[[call]]" "[[/call]]" answer.txt
    callgate parse --wire ollama --dialect auto --events recording.ndjson
    """
    from callgate.apps.toolfile import described
    from callgate.reply import Reader

    own = dialectfile.dialect_of(tags, dialect_file)
    if own is not None and (dialect or model or template):
        raise ConfigError("--tags and --dialect-file name the dialect: leave --dialect, --model and --template out")
    reader = Reader(
        own or _named(dialect, model, template, usual=None if wire else "auto"),
        wire=wire,
        tools=described(tools) if tools else (),
        prompt_tail=prompt_tail.replace("\\n", "\n"),
    )
    for piece in _pieces(file, binary=wire is not None, size=chunks):
        print_events(reader.feed(piece), events)
    print_events(reader.finish(), events)
    if not events:
        print_reply(reader.reply)


def _named(dialect: str | None, model: str | None, template: str | None, *, usual: str | None) -> str | None:
    """The dialect that the options name. `usual`: without any of them."""
    known = model or template
    if dialect not in (None, "auto") or not known:
        return dialect or usual
    return _detected(model, template)


def _detected(model: str | None, template: str | None) -> str:
    from callgate.apps.toolfile import read_text
    from callgate.dialects import detect

    text = read_text(template, "--template") if template else None
    return detect(chat_template=text, model_name=model) or "auto"


def _pieces(file: str, *, binary: bool, size: int | None) -> Iterator[str | bytes]:
    """The input as it comes, or cut into pieces of `size`."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    done = 0
    for block in _blocks(file):
        try:
            piece: str | bytes = block if binary else decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            place = done + error.start - len(decoder.getstate()[0])
            raise ConfigError(f"{_name(file)}: not UTF-8 text (byte {place}); for an API's body give --wire") from error
        done += len(block)
        if size is None:
            yield piece
        else:
            yield from (piece[start : start + size] for start in range(0, len(piece), size))


def _blocks(file: str) -> Iterator[bytes]:
    """The bytes of the file or stdin as they come, and b"" at the end."""
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as stream:
            while block := cast("BufferedReader", stream).read1(BLOCK):
                yield block
    except OSError as error:
        raise ConfigError(f"{_name(file)}: {error.strerror}") from error
    yield b""


def _name(file: str) -> str:
    return "stdin" if file == "-" else file
