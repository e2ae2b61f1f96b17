"""Writes what is made from the code: docs/commands.md and the table of rooms in
ARCHITECTURE.md. Run `python scripts/document.py` after a change to any of them.

One law: a page about the code says what the code says; tests/test_docs.py fails when it is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from callgate.apps.cli import cli

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ROOT / "docs" / "commands.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"

HEAD = """\
# The command line

Every command has `--help`; this page says the same (it is made from them by `scripts/document.py`). Usage
errors print one line to stderr that says what to do, and the exit status is not 0: 1 for a failure, 2 for a wrong
option, 3 for a run that waits for approval, 130 after Ctrl-C.

In a terminal `ask`, `chat` and `demo` show the run live: the text and the arguments of calls as they are generated,
and the states *generating*, *calling NAME*, *got result* and *answered* with their times. Without a terminal they
print one plain line for every state, and `callgate ask` keeps stdout for the answer alone. With `--json` every event
is printed as one line of JSON: `type` is its name, and the other fields are those of `callgate.events`, so that
`load_event(json.loads(line))` gives the event back. `NO_COLOR` is respected.

What a model, tool, server or file wrote is never sent to a terminal as it is: control, bidirectional, invisible and
zero-width characters are shown as escapes (`\\x1b`, `\\u202e`), in `--json` as `\\uXXXX`; the joiners U+200C and U+200D
are left out. In a pipe, JSON and the answer are exact. Waiting calls have short numbers that never change within a run;
the model's own id is accepted too. A run id may be shortened as long as only one run begins so.
"""


def pages() -> dict[Path, str]:
    """Every page that is made from the code, as it should be."""
    house = ARCHITECTURE.read_text("utf-8")
    made = re.sub(r"(<!-- rooms -->\n).*?(<!-- /rooms -->)", lambda m: m[1] + rooms() + m[2], house, flags=re.DOTALL)
    return {COMMANDS: commands(), ARCHITECTURE: made}


def rooms() -> str:
    """The rooms by floor, with what each is and its law, from the import contract and the modules' own words."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    rows = ["| layer | package | what it is | its invariant |", "|---|---|---|---|"]
    for floor, layer in enumerate(reversed(contracts[0]["layers"]), 1):
        for name in sorted(room.strip(" ()").removeprefix("callgate.") for room in layer.split("|")):
            place = ROOT / "src" / "callgate" / name
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            if file.exists():
                words = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
                rows.append(f"| {floor} | `{name}` | {_cell(words)} |")
    return "\n".join(rows) + "\n"


def _cell(words: str) -> str:
    """What a room is, and its law, each in its first sentence."""
    first, *rest = words.split("\n\n")
    law = next((part for part in rest if re.match(r"(One law|Law)\b", part)), "").partition(":")[2]
    law = re.sub(r"\s*\(tests/\S+\)", "", law)
    parts = [" ".join(part.split()).replace("|", "\\|") for part in (first, law)]
    return " | ".join(re.split(r"(?<=[.])\s(?=[A-Z])", part)[0] for part in parts)


def commands() -> str:
    """The page of the command line."""
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
    for place, text in pages().items():
        place.write_text(text, "utf-8")
