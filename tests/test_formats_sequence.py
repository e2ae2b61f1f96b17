"""Mixed fragments are written one call after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callgate.formats._sequence import InSequence
from callgate.types import BadCall, CallDelta, Delta, Finish, ReasoningDelta, TextDelta, ToolCall

TEXTS = ['{"a": 1}', "{}", '{"a": {"b": [1, "}"]}}', '{"cut": [', "no json", ""]


@st.composite
def mixed(draw: st.DrawFn) -> list[Delta]:
    """The fragments of some calls, mixed with each other and with text."""
    calls = draw(st.lists(st.sampled_from(TEXTS), max_size=4))
    size = draw(st.integers(1, 5))
    pieces = [[text[n : n + size] for n in range(0, len(text), size)] or [""] for text in calls]
    order = draw(st.permutations([n for n, row in enumerate(pieces) for _ in row] + ["text"] * draw(st.integers(0, 3))))
    out: list[Delta] = []
    at = [0] * len(calls)
    for n in order:
        if isinstance(n, str):
            out.append(draw(st.sampled_from([TextDelta("t"), ReasoningDelta("r")])))
            continue
        first = at[n] == 0
        out.append(CallDelta(n, f"id{n}" if first else None, "f" if first else None, pieces[n][at[n]]))
        at[n] += 1
    whole = TEXTS[:3]
    ends = [ToolCall(f"id{n}", "f", {}, n) if t in whole else BadCall(n, f"id{n}", "f", t) for n, t in enumerate(calls)]
    silent = draw(st.sets(st.integers(0, len(calls) - 1))) if calls else set()  # calls that gave no fragment
    return [*(d for d in out if not (isinstance(d, CallDelta) and d.index in silent)), *ends, Finish("stop")]


@given(deltas=mixed(), cut=st.integers(1, 9))
def test_one_block_is_closed_before_the_next_opens(deltas: list[Delta], cut: int) -> None:
    machine = InSequence()
    out = [d for n in range(0, len(deltas), cut) for d in machine.feed(deltas[n : n + cut])]
    row = [d.index if isinstance(d, CallDelta) else d for d in out if not isinstance(d, (ToolCall, BadCall, Finish))]
    blocks = [n for k, n in enumerate(row) if isinstance(n, int) and (k == 0 or row[k - 1] != n)]
    assert len(blocks) == len(set(blocks)), "no call is opened twice"
    for kind in (TextDelta, ReasoningDelta, ToolCall, BadCall, Finish):
        assert [d for d in out if isinstance(d, kind)] == [d for d in deltas if isinstance(d, kind)]
    for end in deltas:
        if isinstance(end, (ToolCall, BadCall)):
            came = [d for d in deltas if isinstance(d, CallDelta) and d.index == end.index]
            went = [d for d in out if isinstance(d, CallDelta) and d.index == end.index]
            if came:
                assert went == came
            else:
                assert len(went) == 1
    assert isinstance(out[-1], Finish)
