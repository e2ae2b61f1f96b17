"""The stateless form: a text that has grown, taken apart again at two tags.

Law: as the text grows, nothing that was given is taken back. `shown` only grows, a call in progress only grows
until it is the finished call to the character, and finished calls stay as they are.
(tests/test_separate.py::test_as_the_text_grows_nothing_is_taken_back)

This knows tags and nothing else: a closing tag inside a JSON string closes the call. `Dialect.tagged(start, end)` makes
a reader that knows JSON strings, costs the same for every chunk, and gives the arguments as they are written; use
`separate` where a look at the whole text is all there is.
"""

from __future__ import annotations

from callgate.errors import ConfigError


def separate(
    text: str, start_tag: str = "<tool_call>", end_tag: str = "</tool_call>", *, final: bool = False
) -> tuple[str, str | None, list[str]]:
    """What may be shown of `text`, the call in progress, and the finished calls.

    - shown: everything outside the calls, joined, byte for byte; an end that may still become a start tag is kept back.
    - in progress: what follows a start tag that has no end tag yet, "" right after it; an end that may still become the
      end tag is kept back. None where no call is open.
    - finished: what stands between the tags, in order, byte for byte.

    The tags may be any two texts, also the same one twice. `final`: the text is over, so nothing is kept back.
    """
    if not start_tag or not end_tag:
        raise ConfigError("separate: start_tag and end_tag must not be empty")
    shown: list[str] = []
    finished: list[str] = []
    position = 0
    while (start := text.find(start_tag, position)) >= 0:
        shown.append(text[position:start])
        start += len(start_tag)
        end = text.find(end_tag, start)
        if end < 0:
            return "".join(shown), text[start : None if final else _sure(text, end_tag, start)], finished
        finished.append(text[start:end])
        position = end + len(end_tag)
    shown.append(text[position : None if final else _sure(text, start_tag, position)])
    return "".join(shown), None, finished


def _sure(text: str, tag: str, start: int) -> int:
    """Where the longest end of `text` begins that may still become `tag`; its length if there is none."""
    first = tag[0]
    at = text.find(first, max(start, len(text) - len(tag) + 1))
    while at >= 0:
        if tag.startswith(text[at:]):
            return at
        at = text.find(first, at + 1)
    return len(text)
