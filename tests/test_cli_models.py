"""`callgate models` tells what a run would get: the two ask the same servers and are compared."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from callgate import Agent, config, providers, tool
from callgate.apps.cli import cli
from callgate.events import RunStarted
from loopback import Asked, loopback, refusal
from test_providers_rows import SERVERS

pytestmark = pytest.mark.anyio

SHOWN = {
    "tools": {
        "capabilities": ["completion", "tools"],
        "model_info": {"general.architecture": "q", "q.context_length": 9999},
    },
    "none": {"capabilities": ["completion"], "parameters": "num_ctx   4096"},
    "tiny": {"capabilities": ["completion"], "model_info": {"general.parameter_count": 134_515_008}},
}


@tool(effect="read")
def clock() -> str:
    """The time."""
    return "noon"


def openai(name: str) -> Any:
    models, props = SERVERS[name]

    def answer(asked: Asked) -> Any:
        if asked.path == "/v1/models":
            return refusal("200 OK", models)
        return refusal("200 OK", props) if asked.path == "/props" and props is not None else refusal("404 X", {})

    return answer


def ollama(asked: Asked) -> Any:
    if asked.path == "/api/tags":
        return refusal("200 OK", {"models": [{"model": name} for name in SHOWN]})
    if asked.path == "/api/show":
        return refusal("200 OK", SHOWN[asked.json["model"]])
    return refusal("200 OK", {"models": []}) if asked.path == "/api/ps" else refusal("404 X", {})


async def told(server: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    def run() -> list[dict[str, Any]]:
        done = CliRunner().invoke(cli, ["models", server, "--json"], env=environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    return await asyncio.to_thread(run)


async def got(use: str, settings: config.Config) -> str:
    """The protocol of a run, as it begins."""
    provider = providers.open(use)
    agent = Agent(provider, tools=[clock], ledger="memory", **settings.agent_options())
    try:
        async with agent.stream("What time is it?") as events:
            async for event in events:
                if isinstance(event, RunStarted):
                    return event.protocol
    finally:
        await provider.aclose()
    raise AssertionError("the run did not start")


SETTINGS = [{}, {"protocol": "json"}, {"protocol": "hermes", "options": {"num_ctx": 2048}}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", [*SERVERS, "ollama"])
async def test_what_is_told_is_what_a_run_gets(
    name: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {f"CALLGATE_{key.upper()}": v if isinstance(v, str) else json.dumps(v) for key, v in settings.items()}
    async with loopback(ollama if name == "ollama" else openai(name)) as server:
        address = "ollama" if name == "ollama" else server.url
        environment |= {"OLLAMA_HOST": f"127.0.0.1:{server.port}", "HOME": str(tmp_path)}
        rows = await told(address, environment)
        monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.port}")
        assert rows
        for row in rows:
            settings_of_run = config.load(settings, environ={"HOME": str(tmp_path)})
            assert row["protocol"] == await got(row["use"], settings_of_run)


async def test_the_context_is_the_one_that_requests_ask_for(tmp_path: Path) -> None:
    async with loopback(ollama) as server:
        environment = {"OLLAMA_HOST": f"127.0.0.1:{server.port}", "HOME": str(tmp_path)}
        rows = await told("ollama", environment)
        asked = await told("ollama", {**environment, "CALLGATE_OPTIONS": '{"num_ctx": 2048}'})
    assert {row["model"]: row["context_length"] for row in rows} == {"tools": 9999, "none": 4096, "tiny": None}
    assert {row["context_length"] for row in asked} == {2048}
