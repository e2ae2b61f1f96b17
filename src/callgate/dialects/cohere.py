"""Cohere: Command R's `Action:` list, Command R7B's and Command A's tokens."""

from __future__ import annotations

from callgate.dialects._spec import Calls, Dialect, JsonItems, Region

DIALECTS = (
    Dialect(
        "cohere_action",
        "Command R7B, Command A, Command A Reasoning, North Code",
        calls=(Calls(JsonItems(), open=("<|START_ACTION|>",), close=("<|END_ACTION|>",)),),
        regions=(Region(("<|START_THINKING|>",), ("<|END_THINKING|>",)),),
        drop=(
            "<|START_RESPONSE|>",
            "<|END_RESPONSE|>",
            "<|START_TEXT|>",
            "<|END_TEXT|>",
            "<|END_OF_TURN_TOKEN|>",
        ),
    ),
    Dialect(
        "command_r_plus",
        "Command R / R+",
        calls=(
            Calls(
                JsonItems(skip=("directly-answer", "directly_answer"), several=False),
                open=("Action:",),
                line=True,
                fence=True,
            ),
        ),
        drop=("<|END_OF_TURN_TOKEN|>",),
    ),
)
