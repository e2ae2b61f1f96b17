"""Secrets where nobody looks for them: names, Python's spelling, longer base64, Chinese, SQLite's log."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Agent, Replay, Tool
from callgate.masking import DEFAULT, Masking, Secret

SECRET = 's3cr"et/ü\n你好 x+y'
MASKING = Masking.of(secrets=[SECRET])
VALUE = "Xq7vB2mK9tR4wZ8n"
SPELLINGS = [
    repr(SECRET),
    ascii(SECRET),
    repr(SECRET.encode()),
    html.escape(SECRET),
    quote(SECRET),
    quote(SECRET).replace("%C3%BC", "%c3%bc").replace("%E4%BD%A0%E5%A5%BD", "%e4%bd%a0%e5%a5%bd").lower(),
    json.dumps(json.dumps(json.dumps(SECRET))),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_declared_secret_is_known_as_others_spell_it(spelling: str) -> None:
    """Exceptions use Python's spelling, pages that of HTML."""
    masked = MASKING.text(f"a {spelling} b")
    assert "[masked]" in masked
    assert MASKING.text(masked) == masked


@given(before=st.binary(max_size=7), secret=st.text(st.characters(codec="ascii"), min_size=12, max_size=40))
def test_a_declared_secret_inside_of_longer_base64_is_masked(before: bytes, secret: str) -> None:
    """As in `Authorization: Basic`, of which each text that decodes to the secret's middle is gone."""
    encoded = base64.b64encode(before + secret.encode() + b"!").decode()
    masked = Masking.of(secrets=[secret]).exact(encoded)
    assert "[masked]" in masked


@given(
    st.recursive(
        st.integers() | st.just(SECRET),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([SECRET, f"a{SECRET}", "b", "[masked]", "[masked] (2)"]), inner, max_size=5
            )
        ),
        max_leaves=20,
    )
)
def test_a_name_of_a_field_is_masked_and_no_field_is_lost(value: Any) -> None:
    """Also where two names become one; the places do not tell the name."""
    masked, places = MASKING.mask(value)
    assert SECRET not in _texts(masked)
    assert SECRET not in "".join(places)
    assert _size(masked) == _size(value)
    assert MASKING.value(masked) is masked
    assert SECRET not in _texts(MASKING.exact_value(value))
    assert bool(places) == (SECRET in _texts(value))


def _texts(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"{name}\0{_texts(inner)}\0" for name, inner in value.items())
    return "\0".join(map(_texts, value)) if isinstance(value, list) else str(value)


def _size(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + sum(map(_size, inner))


@pytest.mark.parametrize("name", ["密码", "数据库密码", "口令", "api密钥", "访问令牌"])
def test_names_in_chinese(name: str) -> None:
    """As fields, in texts, and in JSON whose letters are escaped."""
    assert DEFAULT.value({name: VALUE}) == {name: "[masked]"}
    for text in (
        f"{name}：{VALUE}",
        f"{name}: {VALUE}",
        f"{name}={VALUE}",
        json.dumps({name: VALUE}, ensure_ascii=False),
    ):
        assert VALUE not in DEFAULT.text(text)
    assert DEFAULT.may_concern(json.dumps({name: VALUE}))


@pytest.mark.parametrize(
    "text",
    [
        "忘记密码：请点击这里",
        "密码：必填",
        "密码长度至少8位",
        "请输入密码：",
        "令牌桶算法：每秒100个",
        "公钥：ssh-rsa",
        '{"密码": "请输入密码"}',
    ],
)
def test_sentences_in_chinese_stay(text: str) -> None:
    """They speak of passwords and have none."""
    assert DEFAULT.text(text) == text


@pytest.mark.parametrize(
    "value", [{"tokens": 123456}, {"tokens": [101, 2023, 50256]}, {"seed": 1234567}, {"密码": "请输入"}]
)
def test_counts_of_a_model_stay(value: dict[str, Any]) -> None:
    """Its tokens, and the seed of a series, are no secrets."""
    assert DEFAULT.value(value) is value


def test_arguments_that_were_held_are_in_no_file_after_the_result(tmp_path: Path) -> None:
    """Not in the log of SQLite either, while agents that used the file live on."""
    paid: list[str] = []

    def pay(code: Annotated[str, Secret]) -> str:
        """Pays."""
        paid.append(code)
        return "paid"

    tools = [Tool.from_function(pay, effect="write", confirm=True)]
    where = f"sqlite:{tmp_path / 'runs.db'}"
    first = Agent(Replay([{"calls": [{"name": "pay", "arguments": {"code": VALUE}}]}]), tools=tools, ledger=where)
    waiting = first.run_sync("Pay.")
    assert any(VALUE.encode() in file.read_bytes() for file in tmp_path.iterdir())
    second = Agent(Replay(["Done."]), tools=tools, ledger=where)
    assert second.resume_sync(waiting.run_id, {waiting.pending[0].id: True}).reason == "answered"
    assert paid == [VALUE]
    assert not any(VALUE.encode() in file.read_bytes() for file in tmp_path.iterdir())


def test_a_declared_secret_as_a_name_is_not_in_the_journal(tmp_path: Path) -> None:
    """And the tool gets it as it was."""
    seen: list[dict[str, int]] = []

    def count(code: Annotated[str, Secret], uses: dict[str, int]) -> str:
        """Counts."""
        seen.append(uses)
        return "counted"

    call = {"calls": [{"name": "count", "arguments": {"code": VALUE, "uses": {VALUE: 1}}}]}
    tools = [Tool.from_function(count, effect="write", confirm=True)]
    where = f"sqlite:{tmp_path / 'runs.db'}"
    waiting = Agent(Replay([call]), tools=tools, ledger=where).run_sync("Count.")
    result = Agent(Replay(["Done."]), tools=tools, ledger=where).resume_sync(
        waiting.run_id, {waiting.pending[0].id: True}
    )
    assert (result.reason, seen) == ("answered", [{VALUE: 1}])
    assert not any(VALUE.encode() in file.read_bytes() for file in tmp_path.iterdir())
