"""Secrets are masked by rule, and nothing else is changed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import ConfigError
from callgate.masking import MASK, Masking, is_masked

masking = Masking()

SECRETS = [
    ("key sk-abcdefghijklmnop1234 here", "key [masked] here"),
    ("sk-proj-abcDEF_ghijklmnop-1234", "[masked]"),
    ("sk_live_4eC39HqLyjWDarjt", "[masked]"),
    ("ghp_abcdefghijklmnopqrst1234", "[masked]"),
    ("github_pat_11ABCDEFG0abcdefghijklmno", "[masked]"),
    ("xoxb-1234567890-abcdef", "[masked]"),
    ("AKIAIOSFODNN7EXAMPLE is it", "[masked] is it"),
    ("hf_abcdefghijklmnopqrstuvwx", "[masked]"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N", "[masked]"),
    ("Authorization: Bearer abc123def456ghi", "Authorization: Bearer [masked]"),
    ("Basic dXNlcjpwYXNzd29yZA==", "Basic [masked]"),
    ("postgresql://bob:hunter2@db/x", "postgresql://bob:[masked]@db/x"),
    ("password=hunter2&next=/", "password=[masked]&next=/"),
    ("password: 'hunter2'", "password: '[masked]'"),
    ('{"api_key": "abc123", "n": 1}', '{"api_key": "[masked]", "n": 1}'),
    (r"{\"password\":\"hunter2\"}", r"{\"password\":\"[masked]\"}"),
    ("<parameter=password>\nhunter2\n</parameter>", "<parameter=password>\n[masked]\n</parameter>"),
    ('<parameter name="api_key">abc</parameter>', '<parameter name="api_key">[masked]</parameter>'),
    ("<password>two words</password>", "<password>[masked]</password>"),
    ("call:login{password:<escape>hunter2<escape>}", "call:login{password:<escape>[masked]<escape>}"),
    ("mysql --password hunter2 -h db", "mysql --password [masked] -h db"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIB\nabc=\n-----END RSA PRIVATE KEY-----\nafter",
        "[masked]\nafter",
    ),
]

INNOCENT = [
    "the password is required",
    "next page token: eyJ is short",
    '{"page_token": "CAoQAA", "password": null}',
    '{"password": 12345}',  # a number cannot be masked inside the text without breaking the JSON
    "task-1234567890abcdefghij and risk-assessment-of-the-third-quarter",
    "bearer responsibilities and basic understanding",
    "http://example.org:8080/a@b",
    "mailto:someone@example.org",
    "ASIAN food, AKIA",
    "the <password> tag, and --password --user bob",
]


@pytest.mark.parametrize(("text", "masked"), SECRETS)
def test_what_looks_like_a_secret_is_masked(text: str, masked: str) -> None:
    assert masking.text(text) == masked
    assert masking.text(masked) == masked
    assert is_masked({"deep": [masked]})


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masking.text(text) == text
    assert not is_masked(text)


def test_fields_that_hold_secrets_are_masked_by_their_names() -> None:
    value = {
        "user": "bob",
        "Password": "x",
        "X-API-Key": 42,
        "client_secret": ["a", "b"],
        "set-cookie": None,
        "secret": {"note": "kept", "pwd": "y"},
        "page_token": "kept",
        "authorization": False,
    }
    assert masking.value(value) == {
        "user": "bob",
        "Password": MASK,
        "X-API-Key": MASK,
        "client_secret": [MASK, MASK],
        "set-cookie": None,
        "secret": {"note": "kept", "pwd": MASK},
        "page_token": "kept",
        "authorization": False,
    }
    assert value["Password"] == "x", "what is masked is a copy"


def test_further_names_and_patterns_are_a_setting() -> None:
    mine = Masking.of(["Patient-Number"], [r"\bEMP-\d+"])
    assert mine.value({"patient_number": "7", "note": "EMP-123, password=abc"}) == {
        "patient_number": MASK,
        "note": "[masked], password=[masked]",
    }
    with pytest.raises(ConfigError, match="mask_patterns"):
        Masking.of(patterns=["("])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([s for s, _ in SECRETS] + INNOCENT),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["password", "api_key", "user"]), inner)
    ),
    max_leaves=15,
)


@given(json_values)
def test_masking_twice_is_masking_once_and_json_stays_json(value: Any) -> None:
    once = masking.value(value)
    assert masking.value(once) == once
    text = masking.text(json.dumps(value))
    json.loads(text)
    assert masking.text(text) == text


names = st.sampled_from(["Pass-Word", "api key", "X_API_KEY", "set.cookie", "client-Secret", "C V V", "user"])


@given(st.recursive(json_values, lambda inner: st.dictionaries(names, inner), max_leaves=8))
def test_what_is_of_no_concern_holds_no_secret(value: Any) -> None:
    if not masking.may_concern(json.dumps(value)):
        assert masking.value(value) == value


def test_long_texts_cost_little() -> None:
    text = "lorem ipsum dolor sit amet " * 40_000
    begun = time.process_time()
    assert masking.value({"text": text}) == {"text": text}
    assert time.process_time() - begun < 0.5
    hostile = "password" * 20_000 + "a://" * 20_000 + "-----BEGIN PRIVATE KEY-----" * 2000 + "eyJaaaaaaaaa." * 5000
    begun = time.process_time()
    masking.text(hostile)
    assert time.process_time() - begun < 2
