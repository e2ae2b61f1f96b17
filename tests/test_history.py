"""A history cannot hold an unanswered or unreadable call, wherever it comes from and however it is cut."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from callgate.errors import ConfigError
from callgate.history import History, tokens
from callgate.types import Message, ToolCall, ToolResult
from run_checks import valid


def turn(n: int, *, size: int = 10) -> History:
    call = ToolCall(f"c{n}", "look", {"n": n})
    result = ToolResult(f"c{n}", "ok", "x" * size)
    return History().turn(Message("assistant", f"turn {n}", calls=(call,)), [(result, result.content)])


def joined(*parts: History | Message) -> History:
    messages: list[Message] = []
    for part in parts:
        messages += [part] if isinstance(part, Message) else part.messages
    return History(tuple(messages))


def test_a_turn_enters_only_whole() -> None:
    call = ToolCall("c1", "look", {})
    ok = ToolResult("c1", "ok", "seen")
    for wrong in ([], [(ToolResult("c2", "ok", ""), "")], [(ok, "seen"), (ok, "seen")]):
        with pytest.raises(ValueError, match="exactly one result"):
            History().turn(Message("assistant", calls=(call,)), wrong)
    with pytest.raises(ValueError, match="together"):
        History().say(Message("assistant", calls=(call,)))
    with pytest.raises(ValueError, match="together"):
        History().say(Message("tool", "x", call_id="c1"))
    made = History().turn(Message("assistant", calls=(call,)), [(ok, "seen, and a word to the model")])
    assert [m.role for m in made.messages] == ["assistant", "tool"]
    assert made.messages[1].content == "seen, and a word to the model"


def test_parts_of_a_result_go_to_the_model_beside_its_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    made = History().turn(
        Message("assistant", calls=(ToolCall("c1", "see", {}),)),
        [(ToolResult("c1", "ok", "a cat", parts=(image,)), "a cat")],
    )
    assert made.messages[1].content == ({"type": "text", "text": "a cat"}, image)
    assert tokens(made.messages[1]) > 100


def openai(id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "function": {"name": name, "arguments": arguments}}],
    }


def test_adopting_keeps_a_sound_history_as_it_is() -> None:
    sound = joined(Message("system", "s"), Message("user", "u"), turn(1), turn(2), Message("assistant", "done"))
    assert History.adopt(sound.messages) == sound


def test_openai_messages_are_adopted() -> None:
    made = History.adopt(
        [
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            openai("c1", "look", '{"n": 1}'),
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
            {"role": "assistant", "content": "done", "reasoning_content": "hm"},
        ]
    )
    assert [m.role for m in made.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert made.messages[2].calls[0].arguments == {"n": 1}
    assert (made.messages[4].reasoning, made.notes) == ("hm", ())


def test_ollama_messages_without_ids_are_paired_by_name() -> None:
    calls = [{"function": {"name": n, "arguments": {}}} for n in ("a", "b")]
    made = History.adopt(
        [
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "tool_name": "b", "content": "B"},
            {"role": "tool", "tool_name": "a", "content": "A"},
        ]
    )
    valid(list(made.messages))
    assert [(m.name, m.content) for m in made.messages if m.role == "tool"] == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize("arguments", ['{"p":1}{"p":2}', "{", "[1]", "7", 7, [1], "{'a': 1}", '{"a": NaN', "[" * 5000])
def test_unreadable_arguments_become_text_in_the_result(arguments: Any) -> None:
    made = History.adopt([openai("c1", "look", arguments), {"role": "tool", "tool_call_id": "c1", "content": "seen"}])
    valid(list(made.messages))
    assert made.messages[0].calls[0].arguments == {}
    assert str(arguments)[:300] in made.messages[1].text
    assert made.messages[1].text.endswith("seen")
    assert made.notes


def test_any_mess_becomes_a_history_that_a_provider_accepts() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        mess: list[Any] = []
        for _ in range(chance.randrange(12)):
            ids = [chance.choice(["c1", "c2", None, "c3"]) for _ in range(chance.randrange(4))]
            calls = [
                {
                    "id": i,
                    "function": {"name": chance.choice(["a", "b", ""]), "arguments": chance.choice(["{}", "{", {}])},
                }
                for i in ids
            ]
            mess.append(
                chance.choice(
                    [
                        {"role": "user", "content": "u"},
                        {"role": "assistant", "content": "t", "tool_calls": calls},
                        {"role": "tool", "tool_call_id": chance.choice(["c1", "c2", "c9"]), "content": "r"},
                        {"role": "tool", "tool_name": chance.choice(["a", "b"]), "content": "r"},
                        Message("tool", "r", call_id="c2"),
                        Message("assistant", "m", calls=(ToolCall("c1", "a", {}), ToolCall("c1", "b", {}))),
                    ]
                )
            )
        made = History.adopt(mess)
        valid(list(made.messages))
        assert History.adopt(made.messages).messages == made.messages, "adopting twice is adopting once"


@pytest.mark.parametrize("wrong", [3, "text", {"role": "wizard"}, {}, None])
def test_what_is_no_message_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="history"):
        History.adopt([wrong])


def test_whole_turns_leave_oldest_first_and_the_rest_stays_valid() -> None:
    history = joined(
        Message("system", "keep"), Message("user", "old"), turn(1, size=400), turn(2, size=400),
        Message("assistant", "old answer"), Message("user", "new"), turn(3, size=400), turn(4, size=400),
    )  # fmt: skip
    whole = sum(tokens(m) for m in history.messages)
    same, dropped = history.fit(whole)
    assert (same, dropped) == (history, ())
    left = []
    for budget in range(whole, 0, -5):
        kept, dropped = history.fit(budget)
        valid(list(kept.messages))
        assert len(kept.messages) + len(dropped) == len(history.messages)
        assert [m for m in history.messages if m in kept.messages] == list(kept.messages)
        roles = [m.role for m in kept.messages if m.role != "system"]
        assert roles[0] == "user"
        assert {"keep", "new", "turn 4"} <= {m.content for m in kept.messages}
        left.append(sum(tokens(m) for m in kept.messages))
    assert left == sorted(left, reverse=True)


def test_pinned_messages_stay() -> None:
    pinned = Message("user", "my name is Ada", extra={"pinned": True})
    history = joined(Message("user", "hello"), pinned, turn(1, size=4000), Message("user", "new"))
    kept, _ = history.fit(50)
    assert [m.content for m in kept.messages] == ["my name is Ada", "new"]


def test_every_history_is_json() -> None:
    from callgate.run._values import dump_message, load_message

    history = joined(
        Message("user", ({"type": "text", "text": "x"},)), turn(1), Message("assistant", "a", reasoning="r"),
        Message("user", "p", extra={"pinned": True}),
    )  # fmt: skip
    again = tuple(load_message(json.loads(json.dumps(dump_message(m)))) for m in history.messages)
    assert again == history.messages
    assert again[-1].extra == {"pinned": True}
