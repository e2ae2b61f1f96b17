"""A conversation that goes on in another process: `--continue` and `--from`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from callgate.apps.cli import cli
from callgate.errors import CallgateError
from command import TOOLS, answering, calling, environment, run, serving

if sys.platform == "win32":
    pytest.skip("pseudo-terminals", allow_module_level=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A new user's home with a file of tools."""
    (tmp_path / "mine.py").write_text(TOOLS, "utf-8")
    return tmp_path


def said(asked: Any) -> list[tuple[str, str]]:
    """Role and text of a request's messages."""
    return [(message["role"], message["content"]) for message in asked.json["messages"]]


def test_continue_goes_on_with_the_latest_run_of_the_same_principal(home: Path) -> None:
    with serving(answering("Hello Ann."), answering("Bob's."), answering("You are Ann.")) as server:
        model = ("-m", f"{server.url}#m")
        assert run(home, "ask", *model, "I am Ann").stdout == "Hello Ann.\n"
        assert run(home, "ask", *model, "--principal", "bob", "I am Bob").returncode == 0
        went_on = run(home, "ask", *model, "-c", "Who am I?")
        assert went_on.stdout == "You are Ann.\n", went_on.stderr
    assert said(server.asked[2]) == [("user", "I am Ann"), ("assistant", "Hello Ann."), ("user", "Who am I?")]


def test_from_goes_on_with_the_run_that_is_named(home: Path) -> None:
    with serving(answering("One."), answering("Two."), answering("Three.")) as server:
        model = ("-m", f"{server.url}#m")
        for prompt in ("First", "Second"):
            run(home, "ask", *model, prompt)
        first = run(home, "runs", "list").stdout.splitlines()[-1].split()[0]
        chat = run(home, "chat", *model, "--from", first, given="And?\n")
        assert "going on after: First" in chat.stderr
    assert said(server.asked[2]) == [("user", "First"), ("assistant", "One."), ("user", "And?")]


def test_what_cannot_be_gone_on_with_is_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)

    def invoked(*words: str) -> Result:
        return CliRunner().invoke(cli, words, env=environment(home))  # in this process: four starts take long

    with serving(calling("pay", amount=7)) as server:
        model = ("-m", f"{server.url}#m", "-t", "mine.py")
        nothing = invoked("ask", *model, "-c", "x")
        assert "there is no ledger yet" in str(nothing.exception)
        assert invoked("ask", *model, "Pay 7").exit_code == 3
        waits = invoked("ask", *model, "-c", "x")
        assert "the ledger has no conversation that has ended" in str(waits.exception)
        (line,) = invoked("runs", "list").stdout.splitlines()
        named = invoked("ask", *model, "--from", line.split()[0], "x")
        assert "it has not ended; `callgate runs resume" in str(named.exception)
        both = invoked("ask", *model, "--from", "a", "-c", "x")
        assert "--continue and --from: one or the other" in str(both.exception)
        for told in (nothing, waits, named, both):
            assert isinstance(told.exception, CallgateError)
            assert "\n" not in str(told.exception)
        assert len(server.asked) == 1
