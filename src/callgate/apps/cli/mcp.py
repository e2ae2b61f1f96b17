"""MCP: serve your tools to any MCP client, or see what a server offers.

Law: what a client calls here goes through the gate and into the ledger like any other call.
    (tests/test_mcp_serve.py::test_the_gate_refuses_as_it_would_refuse_a_model)
"""

from __future__ import annotations

import asyncio
from typing import Any

import click

from callgate.apps import output
from callgate.apps.cli._ledgers import ledger_option


@click.group()
def command() -> None:
    """Tools over the Model Context Protocol."""


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE.py[:NAME]…")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Over HTTP on 127.0.0.1, not on stdin/stdout.")
@click.option("--name", default="callgate", show_default=True, help="What the server calls itself.")
@click.option("--principal", metavar="ID", help="On whose behalf the tools are called.")
@click.option("--grant", multiple=True, metavar="PERMISSION", help="What the principal may do.")
@click.option("--approve", type=click.Choice(["yes", "no"]), default="no", show_default=True,
              help="Calls that need approval: give all the same answer.")  # fmt: skip
@ledger_option
def serve(files: tuple[str, ...], *, port: int | None, name: str, approve: str, where: str | None, **who: Any) -> None:
    """Serve the tools of a Python file; every call is checked and recorded."""
    from callgate import config, ledger
    from callgate.agent import Agent
    from callgate.apps import mcpserver
    from callgate.apps.toolfile import load
    from callgate.types import Principal

    settings = config.load({"ledger": where})
    of_models = ("protocol", "dialect", "options", "instructions", "summarize", "max_context")
    options = {key: value for key, value in settings.agent_options().items() if key not in of_models}
    agent = Agent(
        mcpserver.Client(),
        tools=load(files),
        ledger=ledger.open(settings.where, masking=settings.masking, hold_secrets=settings.hold_secrets),
        approve=(lambda _: True) if approve == "yes" else None,
        protocol="native",
        **options,
    )
    known = Principal(who["principal"] or "mcp", who["grant"]) if who["principal"] or who["grant"] else None
    made = mcpserver.server(agent, principal=known, name=name)
    if port is None:
        asyncio.run(mcpserver.serve_stdio(made))
    else:
        with mcpserver.listening(port) as taken:
            output.say(f"http://127.0.0.1:{port}/mcp: {len(agent.toolbox)} tools", err=True)
            mcpserver.serve_http(made, taken)


@command.command("list")
@click.argument("server", metavar="COMMAND|URL")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one tool a line.")
def list_(server: str, as_json: bool) -> None:
    """What an MCP server offers, with the effects that it declares, and what callgate left out of it."""
    from callgate.mcp import connect

    with connect(server, trust="hints") as found:  # nothing is run: its own words are what is asked for
        for tool in found.tools:
            spec = tool.spec
            row = {
                "name": spec.name,
                "effect": spec.effect,
                "description": spec.description,
                "parameters": spec.parameters,
            }
            first = spec.description.split("\n", 1)[0]
            if as_json:
                output.say_json(row)
            else:
                output.say(f"{spec.effect:5}  {output.name(spec.name)}  {output.one_line(first, 200)}")
        for problem in found.problems:
            output.fail(problem)
