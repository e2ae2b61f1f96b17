"""`separate`: what a text shows, and which calls stand in it, at every length it grows through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import CallgateError
from callgate.separation import separate

TAGS = [
    ("<tool_call>", "</tool_call>"),
    ("[[", "]]"),
    ("```", "```"),
    ("<<", "<"),
    ("aab", "aba"),
    ("ab", "b"),
    ("¤", "¤¤"),
]


@pytest.mark.parametrize(
    ("text", "shown", "in_progress", "finished"),
    [
        ("", "", None, []),
        ("Hello", "Hello", None, []),
        ("Hello <tool", "Hello ", None, []),
        ("Hello <tool>", "Hello <tool>", None, []),
        ("Hello <<tool_cal", "Hello <", None, []),
        ("Hello <tool_call>", "Hello ", "", []),
        ("A <tool_call>{}", "A ", "{}", []),
        ("A <tool_call>{}</tool", "A ", "{}", []),
        ("A <tool_call>{}</toot", "A ", "{}</toot", []),
        ("A <tool_call>\n{}\n</tool_call>\n", "A \n", None, ["\n{}\n"]),
        ("A<tool_call>1</tool_call> B <tool_call>2</tool_call>C<tool_call>3", "A B C", "3", ["1", "2"]),
        ("<tool_call></tool_call>", "", None, [""]),
        ("</tool_call> is text<", "</tool_call> is text", None, []),
        ("<tool_call>a<tool_call>b</tool_call>", "", None, ["a<tool_call>b"]),
        ("今天<tool_call>天气</tool_call>好<", "今天好", None, ["天气"]),
    ],
)
def test_shown_in_progress_and_finished(text: str, shown: str, in_progress: str | None, finished: list[str]) -> None:
    """The three parts, to the character."""
    assert separate(text, start_tag="<tool_call>", end_tag="</tool_call>") == (shown, in_progress, finished)
    assert separate(text) == (shown, in_progress, finished)


def test_a_closing_tag_in_a_json_string_closes_the_call() -> None:
    """Tags are all it knows; the reader of `Dialect.tagged` knows strings."""
    assert separate('<c>{"a": "</c>"}</c>', "<c>", "</c>") == ('"}</c>', None, ['{"a": "'])


def test_one_tag_for_both_ends_takes_turns() -> None:
    """A fence opens and closes."""
    assert separate("a```b```c```d", "```", "```") == ("ac", "d", ["b"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A <tool", ("A <tool", None, [])),
        ("A <tool_call>{}</too", ("A ", "{}</too", [])),
        ("A <tool_call>{}</tool_call> <", ("A  <", None, ["{}"])),
    ],
)
def test_a_text_that_is_over_keeps_nothing_back(text: str, expected: tuple[str, str | None, list[str]]) -> None:
    """`final`: what only looked like a tag is text."""
    assert separate(text, final=True) == expected


@pytest.mark.parametrize(("start", "end"), [("", "x"), ("x", ""), ("", "")])
def test_empty_tags_are_refused(start: str, end: str) -> None:
    """An empty tag would be everywhere; the message says which argument is wrong."""
    with pytest.raises(CallgateError, match="start_tag and end_tag must not be empty"):
        separate("text", start, end)


def noisy(tags: tuple[str, str]) -> st.SearchStrategy[str]:
    """Texts made of tags, pieces of tags and other characters."""
    pieces = [tag[:length] for tag in tags for length in range(1, len(tag) + 1)]
    return st.lists(st.sampled_from([*pieces, *tags * 3, "x", " ", "é", "气"]), max_size=12).map("".join)


grown = st.sampled_from(TAGS).flatmap(lambda tags: st.tuples(st.just(tags), noisy(tags)))


@given(grown)
def test_as_the_text_grows_nothing_is_taken_back(case: tuple[tuple[str, str], str]) -> None:
    """Character by character: shown only grows, a call only grows until it is finished, finished calls stay."""
    tags, text = case
    shown, in_progress, finished = "", None, []
    for length in range(len(text) + 1):
        now = separate(text[:length], *tags)
        assert now[0].startswith(shown)
        assert now[2][: len(finished)] == finished
        if in_progress is not None:
            call = now[2][len(finished)] if len(now[2]) > len(finished) else now[1]
            assert call is not None
            assert call.startswith(in_progress)
        shown, in_progress, finished = now


@given(grown)
def test_nothing_is_lost_and_no_more_is_kept_back_than_needed(case: tuple[tuple[str, str], str]) -> None:
    """With the tags put back the parts are the text again; what is kept back may become the tag, and no more is."""
    tags, text = case
    start, end = tags
    shown, in_progress, finished = separate(text, *tags)
    whole = separate(text, *tags, final=True)
    assert whole[2] == finished
    marks = len(finished) * (len(start) + len(end)) + (len(start) if in_progress is not None else 0)
    assert sum(map(len, [whole[0], whole[1] or "", *finished])) + marks == len(text)
    if in_progress is None:
        held, tag = whole[0].removeprefix(shown), start
    else:
        assert whole[1] is not None
        held, tag = whole[1].removeprefix(in_progress), end
    assert tag.startswith(held)
    assert len(held) < len(tag)
    rest = (whole[0] if in_progress is None else whole[1] or "")[-len(tag) + 1 :] if len(tag) > 1 else ""
    longest = max((n for n in range(len(rest) + 1) if tag.startswith(rest[len(rest) - n :])), default=0)
    assert len(held) <= longest


@given(grown)
def test_it_agrees_with_a_reader_that_looks_at_each_character(case: tuple[tuple[str, str], str]) -> None:
    """A plain loop over the characters finds the same calls in the same text."""
    (start, end), text = case
    shown, call, finished = "", None, []
    at = 0
    while at < len(text):
        tag = start if call is None else end
        if text.startswith(tag, at):
            at += len(tag)
            if call is None:
                call = ""
            else:
                finished.append(call)
                call = None
            continue
        if call is None:
            shown += text[at]
        else:
            call += text[at]
        at += 1
    assert separate(text, start, end, final=True) == (shown, call, finished)
