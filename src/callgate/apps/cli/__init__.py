"""The command line.

Law: every file of this folder whose name has no underscore is one command of the same name (`ask.py` holds
`command`, a click command or group), and nothing of it is imported before it is needed.
    (tests/test_cli.py::test_help_lists_every_command_with_its_first_line)

To add a command: one file with a `command`; its first docstring line is its help.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

import click

from callgate import __version__
from callgate.apps import output

HERE = Path(__file__).parent


class Commands(click.Group):
    """Finds commands by file name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without importing anything."""
        return sorted(path.stem.replace("_", "-") for path in HERE.glob("*.py") if not path.stem.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; imported only now."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"{__name__}.{cmd_name.replace('-', '_')}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list under --help: each file's first docstring line, read without importing it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in self.list_commands(ctx)])


def _summary(name: str) -> str:
    tree = ast.parse((HERE / f"{name.replace('-', '_')}.py").read_text("utf-8"))
    return (ast.get_docstring(tree) or "").split("\n", 1)[0]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", package_name="callgate", message="callgate %(version)s")
def cli() -> None:
    """callgate: reliable tool calls from any language model."""


def main() -> None:
    """The entry point: every error of ours is one clear line and a status that is not 0: 2 for a wrong command line,
    130 after Ctrl-C, else 1."""
    output.install()
    sys.exit(_status())


def _status() -> int:
    from callgate.errors import CallgateError

    try:
        status = cli.main(prog_name="callgate", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        output.page(error.format_message(), err=True)
        return error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "callgate"
        output.fail(f"{error.format_message().rstrip('.')}; see {path} --help")
        return error.exit_code
    except click.ClickException as error:
        output.fail(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except CallgateError as error:
        output.fail(str(error))
        return 1
    return status if isinstance(status, int) else 0
