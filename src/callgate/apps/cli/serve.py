"""The gateway: serve clean tool calls to any client, in front of any server.

Law: the first line on stdout is where it is reached, once it is; everything else goes to stderr.
(tests/test_gateway_server.py::test_the_first_line_is_the_address_and_it_answers_there)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from callgate.apps.cli._options import options_of
from callgate.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = [
    click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST",
                  help="The address to listen on; another than this machine's own needs a key."),
    click.option("--port", default=8088, show_default=True, type=click.IntRange(0, 65535), metavar="N",
                  help="0: any free port."),
    click.option("--unix-socket", metavar="PATH", help="Listen on a Unix socket instead."),
    click.option("--certificate", metavar="FILE", help="TLS with this certificate chain (PEM)."),
    click.option("--certificate-key", metavar="FILE", help="Its private key, if that is another file."),
    click.option("--proxy", "proxies", multiple=True, metavar="ADDRESS",
                  help="A reverse proxy, or a network of them, whose X-Forwarded-* headers are believed."),
    click.option("--grace", default=10.0, show_default=True, type=float, metavar="SECONDS",
                  help="What running requests have when the server is told to end."),
    click.option("--key", "keys", multiple=True, metavar="KEY", envvar="CALLGATE_SERVE_KEY",
                  help="A key that clients must send. Better: the variable CALLGATE_SERVE_KEY, or --keys."),
    click.option("--keys", "keys_file", metavar="FILE",
                  help="A TOML file of keys with what each allows; read again on SIGHUP."),
    click.option("--allow-host", "hosts", multiple=True, metavar="NAME",
                  help="A further name by which the server is called."),
    click.option("--origin", "origins", multiple=True, metavar="ORIGIN",
                  help="Web pages of this origin may use it (CORS)."),
    click.option("--max-body", default="32MB", show_default=True, metavar="SIZE", help="Of one request."),
    click.option("--max-connections", default=4096, show_default=True, type=click.IntRange(min=1), metavar="N",
                  help="At once; more are refused with 503."),
    click.option("--max-streams", default=1000, show_default=True, type=click.IntRange(min=1), metavar="N",
                  help="Requests of one key at once."),
    click.option("--header-timeout", default=15.0, show_default=True, type=float, metavar="SECONDS",
                  help="What the head of a request may take."),
    click.option("--body-timeout", default=60.0, show_default=True, type=float, metavar="SECONDS",
                  help="How long a client may be silent in the middle of its request."),
    click.option("--slow-client", default=60.0, show_default=True, type=float, metavar="SECONDS",
                  help="A client that takes nothing of its answer for so long is cut off."),
    click.option("--heartbeat", default=10.0, show_default=True, type=float, metavar="SECONDS",
                  help="Silence after which a client is sent a sign of life."),
    click.option("--stalled", default=600.0, show_default=True, type=float, metavar="SECONDS",
                  help="Silence of a backend after which it is given up."),
    click.option("--protocol", default="auto", show_default=True, metavar="NAME",
                  help="How models are asked for calls: auto, native, json, … or a dialect."),
    click.option("--calls", type=click.Choice(["whole", "live"]), default="whole", show_default=True,
                  help="whole: a call is held until it is checked; live: its arguments go on as they are written, and "
                       "one that does not fit can only be reported."),
    click.option("--retries", default=2, show_default=True, type=click.IntRange(min=0), metavar="N",
                  help="How often calls that do not fit are asked for again."),
    click.option("--observe", is_flag=True, help="Change nothing and only report."),
    click.option("-o", "--option", multiple=True, metavar="KEY=VALUE",
                  help="For requests that do not name it themselves: -o num_ctx=16384 -o temperature=0.2"),
    click.option("--access-log", metavar="FILE", help='One line of JSON a request, without contents; "-": on stderr.'),
    click.option("-t", "--tools", multiple=True, metavar="FILE.py[:NAME]", help="Agent mode, with these tools: /runs."),
    click.option("-s", "--instructions", default="", metavar="TEXT", help="Agent mode: the system message."),
    click.option("--ledger", metavar="WHERE",
                  help='Where runs and exchanges are recorded: "sqlite:PATH", "postgresql://…". Default: in memory.'),
]  # fmt: skip


def options(function: F) -> F:
    """Adds the options of `Settings`."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command()
@click.argument("backends", nargs=-1, metavar="[BACKEND]…")
@options
def command(backends: tuple[str, ...], option: tuple[str, ...], max_body: str, **values: Any) -> None:
    """Serve the OpenAI, Anthropic and Ollama APIs with clean tool calls, in front of any server.

    \b
    callgate serve
    callgate serve ollama
    callgate serve http://localhost:8000/v1 --tools mytools.py --ledger sqlite:runs.db

    BACKEND is "local", "ollama", "ollama:NAME", "openai:NAME" or an address such as http://host:8000/v1; of several,
    the first that has the model is asked. Agents are served at /runs with --tools or --ledger.
    """
    from callgate.apps.cli._ledgers import size
    from callgate.apps.gateway.settings import Settings

    settings = Settings(
        backends=backends or ("local",),
        options=options_of(option),
        max_body=size(max_body, "--max-body"),
        **values,
    )
    try:
        from callgate.apps.gateway import app, server
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise ConfigError('the gateway needs the extra "gateway": pip install "callgate[gateway]"') from error
    server.serve(app.make_app(settings))
