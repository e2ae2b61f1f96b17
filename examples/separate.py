"""A chat loop on `separate`: the stateless form, called with the whole text after every chunk.

It prints "response" while the model talks and "tool calling" while it writes a call. Runs offline:

    python examples/separate.py
"""

import json
from collections.abc import Iterator

from callgate import separate

ANSWER = """Let me look that up. 好的，马上查。
<tool_call>
{"name": "get_weather", "arguments": {"city": "北京", "days": 2}}
</tool_call>
And the other city, if 3 < 5 <tool_call>
{"name": "get_weather", "arguments": {"city": "São Paulo", "days": 1}}
</tool_call>
Done <"""


def model() -> Iterator[str]:
    """Stands for a model: its answer in pieces of four characters, which cut every tag somewhere."""
    for start in range(0, len(ANSWER), 4):
        yield ANSWER[start : start + 4]


def chat() -> None:
    """Shows text as it comes and never a piece of a tag; a call is parsed when it is finished."""
    text, printed, calls, state = "", 0, 0, ""

    def enter(now: str) -> None:
        nonlocal state
        if now != state:
            state = now
            print(f"\n[{state}] ", end="")

    for chunk in (*model(), None):
        text += chunk or ""
        over = chunk is None  # then what only looked like a tag is text after all
        shown, in_progress, finished = separate(text, start_tag="<tool_call>", end_tag="</tool_call>", final=over)

        for call in finished[calls:]:
            print(f"\n  call: {json.loads(call)}", end="")
        calls = len(finished)

        if len(shown) > printed:
            enter("response")
            print(shown[printed:].replace("\n", " "), end="", flush=True)
            printed = len(shown)
        if in_progress is not None:
            enter("tool calling")
            print(".", end="", flush=True)
    print()


if __name__ == "__main__":
    chat()
