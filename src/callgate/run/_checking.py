"""What the application's checks mean for a run: of its prompt here, of its answers on the model's side.

Law: a decision is recorded before anything follows from it, so a resumed run never asks for it twice.
(tests/test_agent_checks.py::test_a_resumed_run_keeps_what_was_decided)
"""

from __future__ import annotations

from dataclasses import replace

from callgate.checks import AskAgain, Change, Decision, Refuse
from callgate.history import History
from callgate.run._state import AskModel, EndRun, Move, RunState
from callgate.run.inputs import CheckText
from callgate.types import Message


def asked_about_prompt(state: RunState) -> bool:
    """Has the prompt looked at, if that is wanted and was not done."""
    prompt = next((m.text for m in reversed(state.history.messages) if m.role == "user"), None)
    if "prompt" not in state.config.checks or state.checked or state.requests or prompt is None:
        return False
    state.phase = "model"
    state.command(CheckText("prompt", prompt))
    return True


def prompt_decided(state: RunState, decision: Decision) -> Move:
    """What follows from the check of the prompt."""
    state.checked = True
    state.decided("prompt", decision)
    match decision:
        case Refuse(reason) | AskAgain(reason):
            return EndRun("refused", reason)
        case Change(text):
            state.history = with_prompt(state.history, text)
        case None:
            pass
    return AskModel()


def with_prompt(history: History, text: str) -> History:
    """The history with another text in its last user message; images and other parts stay."""
    return replace(history, messages=changed_prompt(history.messages, text))


def changed_prompt(messages: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """The same for messages alone."""
    at = next((n for n in reversed(range(len(messages))) if messages[n].role == "user"), None)
    if at is None:
        return messages
    old = messages[at].content
    others = () if isinstance(old, str) else tuple(part for part in old if part.get("type") != "text")
    content = ({"type": "text", "text": text}, *others) if others else text
    return (*messages[:at], replace(messages[at], content=content), *messages[at + 1 :])
