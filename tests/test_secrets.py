"""A declared secret is in nothing that a run shows, records or tells the model."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, SecretStr

from callgate import Agent, Replay, Tool
from callgate import ledger as ledgers
from callgate.providers import secrets_of
from callgate.providers.openai import open as open_model
from callgate.tools import Secret

WORD = "correct horse"


def login(user: str, word: Annotated[str, Secret]) -> str:
    """Logs in."""
    assert word == WORD
    return f"welcome {user}, your word is {word}"


class Login(BaseModel):
    user: str
    word: Annotated[str, Secret]
    pin: Annotated[int, Secret] = 0


def test_a_declared_secret_is_in_the_schema() -> None:
    def enter(login: Login, other: SecretStr, maybe: Annotated[str | None, Secret] = None) -> str:
        return "in"

    schema = Tool.from_function(enter).spec.parameters
    text = json.dumps(schema)
    assert text.count('"writeOnly": true') == 4
    assert text.count('"format": "password"') == 2
    flat = Tool.from_function(login).spec.parameters["properties"]
    assert flat["word"] == {"type": "string", "format": "password", "writeOnly": True}
    assert flat["user"] == {"type": "string"}


async def _run(where: str, tmp_path: Path) -> tuple[Any, Any, list[Any]]:
    ledger = ledgers.open("memory" if where == "memory" else f"sqlite:{tmp_path}/runs.db")
    call = {"name": "login", "arguments": {"user": "bob", "word": WORD}}
    model = Replay([{"content": f"I use {WORD}.", "calls": [call]}, f"Done with {WORD}."])
    result = await Agent(model, tools=[login], ledger=ledger).run("log in")
    return result, model, await ledger.read(result.run_id)


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_a_declared_secret_is_masked_in_the_ledger_and_for_the_model(where: str, tmp_path: Path) -> None:
    result, model, entries = await _run(where, tmp_path)
    assert result.reason == "answered"
    told = [message.text for request in model.requests for message in request.messages if message.role == "tool"]
    assert told == ["welcome bob, your word is [masked]"]
    assert WORD not in json.dumps([dict(entry.data) for entry in entries])
    assert result.calls[0].call.arguments["word"] == WORD, "the caller has the truth"


@pytest.mark.anyio
async def test_the_error_of_a_lookup_is_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    def pay(word: Annotated[str, Secret]) -> None:
        raise ConnectionError("lost")

    def lookup(key: str, arguments: dict[str, Any]) -> None:
        raise RuntimeError(f"no bank: postgresql://bob:s3cr3t@db and {arguments['word']}")

    tool = Tool.from_function(pay, effect="write", lookup=lookup)
    model = Replay([{"calls": [{"name": "pay", "arguments": {"word": WORD}}]}, "done"])
    with caplog.at_level(logging.WARNING):
        await Agent(model, tools=[tool]).run("pay")
    assert "lookup failed: RuntimeError: no bank: postgresql://bob:[masked]@db and [masked]" in caplog.text


def test_the_key_of_a_server_is_a_declared_secret_and_a_word_is_none() -> None:
    named = open_model(
        "m",
        base_url="http://127.0.0.1:1/v1",
        key="abc12345xyz",
        headers={"X-Api-Key": "k-1234567", "X-Team": "team-1234"},
    )
    assert set(secrets_of(named)) == {"abc12345xyz", "k-1234567"}
    assert secrets_of(open_model("m", base_url="http://127.0.0.1:1/v1", key="ollama")) == ()
    assert secrets_of(Replay([])) == ()
