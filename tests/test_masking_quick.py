"""The quick look before an entry is gone through for secrets: what it may leave out, and what it must not."""

from __future__ import annotations

import pytest

from callgate.ledger._lines import to_line
from callgate.masking import Masking
from callgate.types import Entry


@pytest.mark.parametrize("place", ["arguments", "extra"])
def test_a_secret_beside_our_own_hashes_and_ids_is_masked(place: str) -> None:
    """The quick look leaves out our hashes and the ids of calls, and nothing else of the entry."""
    secret = "0123456789abcdef" * 2
    call = {"id": "call_abcdefghijklmnopq", "name": "pay", "arguments": {}, "extra": {}} | {
        place: {"api_key": secret, "key": "b" * 32}
    }
    data = {"call": call, "arguments_hash": "a" * 64, "key": "b" * 32, "tool": {"parameters": "c" * 32}}
    line = to_line(Entry("call_proposed", data), Masking())
    assert secret not in line.text
    assert "a" * 64 in line.text
    assert "b" * 32 in line.text
    message = {"role": "assistant", "content": "tan: 482913 and password=hunter2hunter2"}
    assert "hunter2" not in to_line(Entry("message", {"message": message}), Masking()).text


@pytest.mark.parametrize(
    "text", ["assistantoken", "assistantan", "a_pass_istant", "passistant", "assistant-pin", "x-tan"]
)
def test_the_word_assistant_hides_no_other_word(text: str) -> None:
    assert Masking().may_concern(text)
    assert not Masking().may_concern("Assistant")
