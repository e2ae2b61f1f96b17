"""Writes docs/commands.md from the commands themselves: `python scripts/document.py`.

One law: a page about commands says what the commands say; tests/test_docs.py fails when it is out of date.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from callgate.apps.cli import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"

HEAD = """\
# The command line

Every command has `--help`; this page says the same (it is made from them by `scripts/document.py`). A mistake of yours
is one line on stderr that says what to do, and the exit status is not 0: 1 for a failure, 2 for a wrong option, 3 for a
run that waits for a person, 130 after Ctrl-C.

In a terminal `ask`, `chat` and `demo` show the run live: the text and the arguments of calls as they are generated,
and the states *generating*, *calling NAME*, *got result* and *answered* with their times. Without a terminal they
print one plain line for every state, and `callgate ask` keeps stdout for the answer alone. With `--json` every event
is printed as one line of JSON: `type` is its name, and the other fields are those of `callgate.events`, so that
`load_event(json.loads(line))` gives the event back. `NO_COLOR` is respected.
"""


def page() -> str:
    """The whole page."""
    context = click.Context(cli, info_name="callgate")
    parts = [HEAD]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts.extend(_about(command, ["callgate", name]))
    return "\n".join(parts)


def _about(command: click.Command, path: list[str]) -> Iterator[str]:
    context = click.Context(command, info_name=path[-1])
    usage = " ".join([*path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "")
    yield f"## `{' '.join(path)}`\n"
    yield f"    {usage}\n"
    yield _paragraphs(text) + "\n"
    rows = [_option(parameter) for parameter in command.params if isinstance(parameter, click.Option)]
    if rows:
        yield "| option | what it does |\n|---|---|\n" + "\n".join(rows) + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _about(inner, [*path, name])


def _paragraphs(text: str) -> str:
    """The help as Markdown: what click must not wrap is an example."""
    done = []
    for block in text.split("\n\n"):
        if block.startswith("\b"):
            done.append("\n".join("    " + line for line in block.splitlines()[1:]))
        else:
            done.append(" ".join(block.split()))
    return "\n\n".join(done)


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = ""
    if not option.is_flag:
        choices = "\\|".join(option.type.choices) if isinstance(option.type, click.Choice) else None
        value = f" {choices or option.metavar or option.type.name.upper()}"
    default = f" Default: {option.default}." if option.show_default and option.default is not None else ""
    return f"| {names}{value} | {(option.help or '').replace('|', chr(92) + '|')}{default} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
