"""Your tools as models see them: list them, print their schemas, lint them.

Law: in a pipe, what is printed is what a model would get, byte for byte.
(tests/test_tools_lint.py::test_schema_prints_what_a_model_gets)
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from callgate.apps import output
from callgate.apps.wording import count

if TYPE_CHECKING:
    from callgate.tools import Tool, Toolbox


@click.group()
def command() -> None:
    """The tools in a Python file."""


def _load(place: str) -> Toolbox:
    from callgate.apps.toolfile import load

    return load([place], option="")


@command.command("list")
@click.argument("file", metavar="FILE.py[:NAME]")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one tool a line.")
def list_(file: str, as_json: bool) -> None:
    """Names, effects, parameters and rules."""
    for tool in _load(file):
        if as_json:
            output.say_json(_row(tool))
        else:
            output.page(_line(tool))


def _row(tool: Tool) -> dict[str, object]:
    spec = tool.spec
    known = {"name": spec.name, "effect": spec.effect, "kind": tool.kind, "description": spec.description}
    rules = {key: getattr(spec, key) for key in ("permission", "confirm", "rate", "timeout", "group", "retries")}
    return {**known, "parameters": list(spec.parameters.get("properties", ())), **{k: v for k, v in rules.items() if v}}


def _line(tool: Tool) -> str:
    spec = tool.spec
    required = spec.parameters.get("required", ())
    names = [name if name in required else f"[{name}]" for name in spec.parameters.get("properties", ())]
    rules = [f"needs {spec.permission}"] if spec.permission else []
    rules += ["needs approval"] if spec.confirm else []
    rules += [spec.rate] if spec.rate else []
    rules += [f"{spec.timeout:g} s"] if spec.timeout else []
    head = f"{spec.effect:5}  {spec.name}({', '.join(names)})" + (f"  [{', '.join(rules)}]" if rules else "")
    first = spec.description.split("\n", 1)[0]
    return f"{head}\n       {first}" if first else head


@command.command()
@click.argument("file", metavar="FILE.py[:NAME]")
@click.option("--strict", is_flag=True, help="OpenAI's strict form, where a schema has one.")
def schema(file: str, strict: bool) -> None:
    """The JSON that a model's API gets: OpenAI's form, which the others share."""
    from callgate.schema import strict_form

    rows = []
    for tool in _load(file):
        form = strict_form(tool.spec.parameters) if strict else None
        function = {"name": tool.name, "description": tool.spec.description, "parameters": form or tool.spec.parameters}
        rows.append({"type": "function", "function": {**function, "strict": True} if form else function})
    output.say_json(rows, indent=2)


@command.command()
@click.argument("file", metavar="FILE.py[:NAME]")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one finding a line.")
@click.option("--ignore", multiple=True, metavar="CHECK", help="Leave out one check, such as `groups`.")
@click.option("--errors-only", is_flag=True, help="Only errors make the exit status 1.")
def lint(file: str, as_json: bool, ignore: tuple[str, ...], errors_only: bool) -> None:
    """What would make models choose or call wrongly; exit status 1 if there is anything."""
    from callgate.errors import ConfigError
    from callgate.tools.linting import CHECKS
    from callgate.tools.linting import lint as findings_of

    for name in ignore:
        if name not in CHECKS:
            raise ConfigError(f"--ignore {name}: no such check; there are {', '.join(CHECKS)}")
    tools = _load(file)
    found = [finding for finding in findings_of(tools) if finding.check not in ignore]
    for finding in found:
        if as_json:
            output.say_json(asdict(finding))
        else:
            output.say(f"{finding.level}: {finding.tool}: {finding.message}  [{finding.check}]")
            output.say(f"    why:    {finding.reason}")
            output.say(f"    better: {finding.better}")
    if not as_json:
        output.say(f"{count(len(tools), 'tool')}, {count(len(found), 'finding')}")
    if any(finding.level == "error" or not errors_only for finding in found):
        sys.exit(1)
