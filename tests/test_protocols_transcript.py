"""A run's transcript: each request is what it would be if it were written anew."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from callgate import protocols
from callgate.history import History, tokens
from callgate.protocols import ROWS, Query, Transcript, turn
from callgate.types import Message, ModelInfo, Request, ToolCall, ToolResult, ToolSpec

TOOLS = [
    ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}}, "read"),
    ToolSpec("put", "Puts.", {"type": "object", "properties": {"at": {"type": "string"}}}),
]
NAMES = [*(name for name in ROWS if name not in ("routed", "answer")), "hermes", "qwen_xml", "harmony", "kimi_k2"]
INFO = ModelInfo("m", "p", context_length=100_000)
words = st.text("ab 天🙂\n", max_size=8)
turns = st.lists(
    st.one_of(
        words.map(lambda text: [Message("user", text)]),
        words.map(lambda text: [Message("assistant", text, "thought")]),
        st.lists(st.tuples(st.sampled_from(["look", "put"]), words), min_size=1, max_size=3),
    ),
    max_size=8,
)


def history_of(steps: list[list[object]]) -> list[tuple[Message, ...]]:
    """The conversation after each step."""
    history, out = History().say(Message("user", "go")), []
    for number, step in enumerate(steps):
        if step and isinstance(step[0], Message):
            history = history.say(*[m for m in step if isinstance(m, Message)])
        else:
            pairs: list[tuple[str, str]] = [(str(s[0]), str(s[1])) for s in step if isinstance(s, tuple)]
            calls = tuple(ToolCall(f"c{number}_{i}", name, {"at": text}) for i, (name, text) in enumerate(pairs))
            results = [(ToolResult(c.id, "ok", "done"), f"done {c.arguments['at']}") for c in calls]
            history = history.turn(Message("assistant", "so", calls=calls), results)
        out.append(history.messages)
    return out


def request(name: str, history: tuple[Message, ...], instructions: str, transcript: Transcript | None) -> Request:
    step = next(
        turn(
            name, history=history, tools=TOOLS, instructions=instructions, info=INFO, dialect="hermes",
            transcript=transcript,
        )
    )  # fmt: skip
    assert isinstance(step, Query)
    return step.request


@given(
    turns,
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(0, 7), st.sampled_from(["", "Be brief."])),
        min_size=1,
        max_size=8,
    ),
)
def test_a_transcript_gives_what_writing_it_all_anew_gives(
    steps: list[list[object]], asked: list[tuple[str, int, str]]
) -> None:
    """Whatever is asked after what: conversations that grow, shrink or are others, any protocol, any instructions."""
    histories, transcript = history_of(steps), protocols.Transcript()
    if not histories:
        return
    in_order = [(asked[0][0], at, asked[0][2]) for at in range(len(histories))]
    for name, at, instructions in [*in_order, *asked]:
        history = histories[at % len(histories)]
        alone = request(name, history, instructions, None)
        assert request(name, history, instructions, transcript) == alone
        assert transcript.tokens(alone.messages) == sum(map(tokens, alone.messages))


def test_a_conversation_that_grew_is_written_only_where_it_is_new() -> None:
    histories, transcript = history_of([[("look", "a")], [("put", "b")], [("look", "c")]]), Transcript()
    sent = [request("hermes", history, "", transcript).messages for history in histories]
    for before, after in itertools.pairwise(sent):
        assert all(old is new for old, new in zip(before, after, strict=False))
