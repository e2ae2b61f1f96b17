"""The same chat loop on a `Reader`: it knows the dialect, JSON strings and the arguments while they are written.

It prints "response" while the model talks and "tool calling" while it writes a call, and keeps the arguments so far as
Python values. Compare `separate.py`: here a closing tag inside a string is part of the string, a chunk costs the same
however long the answer is, and a call that is cut off never counts. Runs offline:

    python examples/reader.py
"""

from collections.abc import Iterator

from callgate import Reader
from callgate.dialects import Dialect
from callgate.liveview import LiveArguments
from callgate.types import BadCall, CallDelta, Finish, ReasoningDelta, TextDelta, ToolCall

ANSWER = """<think>The user wants a note.</think>I will write it down. 好的。
<tool_call>
{"name": "write_note", "arguments": {"title": "标签", "text": "A call ends with </tool_call>, here it does not."}}
</tool_call>
Done. One more: <tool_call>
{"name": "write_note", "arguments": {"title": "cut o"""


def model(text: str = ANSWER) -> Iterator[str]:
    """Stands for a model: its answer in pieces of four characters, the last call cut off."""
    for start in range(0, len(text), 4):
        yield text[start : start + 4]


def chat(reader: Reader, chunks: Iterator[str]) -> None:
    """Prints each state once, text as it comes, and how the arguments of each call grow."""
    state = ""
    views: dict[int, LiveArguments] = {}

    def enter(now: str) -> None:
        nonlocal state
        if now != state:
            state = now
            print(f"\n[{state}] ", end="")

    def show(deltas: list[object]) -> None:
        for delta in deltas:
            match delta:
                case ReasoningDelta(text):
                    enter("thinking")
                    print(text, end="")
                case TextDelta(text):
                    enter("response")
                    print(text.replace("\n", " "), end="")
                case CallDelta(index, _, name, arguments):
                    enter("tool calling")
                    view = views.setdefault(index, LiveArguments())
                    view.feed(arguments)
                    if name:
                        print(f"{name} ", end="")
                    print(".", end="")
                case ToolCall(_, name, arguments):
                    print(f"\n  call: {name}({arguments})", end="")
                case BadCall(index, _, name, _, reason):
                    print(f"\n  no call: {name} is {reason}; it had {views[index].value}", end="")
                case Finish(reason):
                    print(f"\n[{reason}]")

    for chunk in chunks:
        show(list(reader.feed(chunk)))
    show(list(reader.finish()))


if __name__ == "__main__":
    print("hermes:", end="")
    chat(Reader("hermes"), model())
    print("\ntags of one's own:", end="")
    chat(
        Reader(Dialect.tagged("<<call>>", "<</call>>")), model('Hi. <<call>>{"name": "ring", "args": {}}<</call>> Bye.')
    )
