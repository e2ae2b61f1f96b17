"""The blocks of a message in the order in which a server sent them, kept so that they can go back unchanged.

Law: a message that goes back holds every block that its server wants back, unchanged and in the order it came in.
(tests/test_formats_anthropic.py::test_thinking_goes_back_signed_and_in_its_place)

Our messages hold text, reasoning and calls apart. A layout remembers what that loses: signed and encrypted reasoning,
blocks of the server's own tools, blocks that we do not know. Text and calls stand in it as references only, so that the
message itself stays the one place of their contents (masking, mending and renaming go on to work).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from callgate.types import CAME, Message

TEXT = "chars"
"""The key of an entry that stands for so many characters of the message's content."""
CALL = "call"
"""The key of an entry that stands for the call of this id."""

Entry = Mapping[str, object]


def layout_of(message: Message, key: str) -> list[Entry]:
    """The layout that came with a message, or with its first call; empty: there is none."""
    for extra in (message.extra, *(call.extra for call in message.calls)):
        came = extra.get(CAME)
        if isinstance(came, Mapping) and isinstance(found := came.get(key), list):
            return [entry for entry in found if isinstance(entry, Mapping)]
    return []


def kept(key: str, layout: Sequence[Entry]) -> dict[str, object]:
    """The layout as what must go back with its message; nothing if text, then calls are all there is."""
    plain = all(entry.keys() in ({TEXT}, {CALL}) for entry in layout) and not any(TEXT in e for e in layout[1:])
    return {} if plain else {key: list(layout)}


def placed(
    message: Message,
    layout: Sequence[Entry],
    *,
    text: Callable[[str, Entry], object],
    call: Callable[[int, Entry], object],
    none: Entry,
) -> Iterator[object]:
    """The blocks of a message by its layout: `text` and `call` write the entries that are references.

    A message that was changed since keeps every block: text that does not fit the layout stands where its first text
    stood, and calls that the layout does not know follow at the end. `none` is the entry for those.
    """
    content = message.text
    numbers = {c.id: n for n, c in enumerate(message.calls)}
    lengths = [n for entry in layout if isinstance(n := entry.get(TEXT), int)]
    fits = sum(lengths) == len(content)
    at, written = 0, False
    if not lengths and content:
        layout = [*_before_calls(layout, content)]
    for entry in layout:
        size = entry.get(TEXT)
        if isinstance(size, int):
            piece = content[at : at + size] if fits else "" if written else content
            at, written = at + size, True
            if piece:
                yield text(piece, entry)
        elif (call_id := entry.get(CALL)) is not None:
            if isinstance(call_id, str) and (number := numbers.pop(call_id, None)) is not None:
                yield call(number, entry)
        else:
            yield dict(entry)
    for number in numbers.values():
        yield call(number, none)


def _before_calls(layout: Sequence[Entry], content: str) -> Iterator[Entry]:
    """The layout with a place for text that it does not know: before the first call."""
    first = next((n for n, entry in enumerate(layout) if CALL in entry), len(layout))
    yield from layout[:first]
    yield {TEXT: len(content)}
    yield from layout[first:]
