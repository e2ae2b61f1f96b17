"""Secrets are masked by rule, and nothing else is changed."""

from __future__ import annotations

import base64
import json
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import ConfigError
from callgate.masking import MASK, Masking, declared

masking = Masking()
CASES = Path(__file__).parent / "conformance" / "masking"


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text("utf-8").splitlines()]


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


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masking.text(text) == text


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


def test_no_text_with_a_secret_is_of_no_concern() -> None:
    wrong = [case["text"] for case in cases("texts") if not masking.may_concern(json.dumps({"v": case["text"]}))]
    assert wrong == []


def test_names_are_judged_by_their_last_word() -> None:
    wrong = [
        (case["name"], value)
        for case in cases("names")
        for value in ("hunter2", "hunter2hunter", "s3cr3t-V4lue", "4711aB")
        if (masking.value({case["name"]: value}) == {case["name"]: MASK}) != case["secret"]
    ]
    assert wrong == []


def test_secrets_in_texts_are_masked_whole() -> None:
    wrong = [case["text"] for case in cases("texts") if any(s in masking.text(case["text"]) for s in case["secrets"])]
    assert wrong == []


def test_harmless_texts_stay_as_they_are() -> None:
    wrong = [(case["text"], masking.text(case["text"])) for case in cases("harmless")]
    assert [pair for pair in wrong if pair[0] != pair[1]] == []
    values = [{"text": case["text"]} for case in cases("harmless")]
    assert masking.value(values) is values


PIECES = [
    *(case["text"] for name in ("texts", "harmless") for case in cases(name)),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "password", "password=", "x1y2z3", "token", "key"),
    *(
        "Authorization: ",
        "Bearer ",
        "://u:",
        "@h",
        "name",
        "value",
        "sk-",
        "ghp_",
        "eyJabcdefghij.",
        "<escape>",
        "secret",
    ),
    *(
        '"',
        "'",
        "`",
        "\\",
        "\n",
        ", ",
        ":",
        "{",
        "}",
        "[",
        "]",
        "=",
        "<",
        ">",
        "</",
        "\u2028",
        "\u00e9",
        "\u0130",
        MASK,
    ),
    *("\\n", '\\"'),
]


def nested(chance: random.Random, depth: int) -> Any:
    """JSON whose texts are pieces of secrets and of JSON, and JSON again, cut anywhere."""
    kind = chance.random()
    if depth == 0 or kind < 0.4:
        pieces = [chance.choice(PIECES) for _ in range(chance.randint(1, 4))]
        return "".join(p[: chance.randrange(len(p) + 1)] if chance.random() < 0.3 else p for p in pieces)
    if kind < 0.5:
        return chance.choice([1, None, True, 1.5, ""])
    if kind < 0.65:
        return json.dumps(nested(chance, depth - 1), ensure_ascii=chance.random() < 0.5)
    if kind < 0.8:
        return [nested(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    names = ["password", "api_key", "a", "name", "value", "token", "text"]
    return {chance.choice(names): nested(chance, depth - 1) for _ in range(chance.randint(0, 3))}


def keeps_its_json(before: Any, after: Any) -> bool:
    """Whether what was JSON, at any depth of texts, is JSON of the same shape."""
    if isinstance(before, str):
        try:
            inner = json.loads(before)
        except ValueError:
            return True
        if after == MASK or not isinstance(inner, (dict, list)):
            return True
        try:
            return keeps_its_json(inner, json.loads(after))
        except ValueError:
            return False
    if isinstance(before, dict):
        return isinstance(after, dict) and all(keeps_its_json(before[k], after[k]) for k in before if k in after)
    if isinstance(before, list):
        same = isinstance(after, list) and len(before) == len(after)
        return same and all(keeps_its_json(a, b) for a, b in zip(before, after, strict=True))
    return True


def test_json_stays_json() -> None:
    chance = random.Random(5)
    for _ in range(1500):
        value = {"v": nested(chance, 3)}
        text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
        masked = masking.text(text)
        assert keeps_its_json(text, masked), (text, masked)
        assert masking.text(masked) == masked
        once = masking.value(value)
        assert masking.value(once) == once


HOSTILE = [
    "password", "password=", 'password="', '"password":"', "a://u:", "-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaaa.",
    "a", " ", "\n", "\\", '"', "Authorization: ", "bearer ", "curl -u ", "<password>", "sk-a", "1234567:AA",
    '"name":"password",', "key", "abcdefgh-", "cookie: a=", "a://b:@", '"password",', "password          ",
]  # fmt: skip


def seconds(text: str) -> float:
    best = 9.0
    for _ in range(3):
        begun = time.process_time()
        masking.text(text)
        best = min(best, time.process_time() - begun)
    return best


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_cost_of_a_text_is_linear(piece: str) -> None:
    """Eight times the text costs about eight times the time: a quadratic pattern would cost sixty-four times."""
    small, large = (seconds((piece * (size // len(piece) + 1))[:size]) for size in (6_000, 48_000))
    assert large < 24 * small + 0.01
    assert large < 1


def test_long_texts_cost_little() -> None:
    text = "lorem ipsum dolor sit amet " * 40_000
    begun = time.process_time()
    assert masking.value({"text": text}) == {"text": text}
    assert time.process_time() - begun < 0.5


def test_values_are_masked_at_any_depth() -> None:
    value: Any = {"password": "hunter2"}
    for _ in range(20_000):
        value = [value]
    _, places = masking.mask(value)
    assert places == ("/0" * 20_000 + "/password",)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(?:a|b*)*c", "(\\w+\\s?)*$", "((ab){2,})+", "x*", "(?:(?:a{1,99})?)+z"])
def test_patterns_of_the_user_are_bounded(pattern: str) -> None:
    with pytest.raises(ConfigError, match="mask_patterns"):
        Masking.of(patterns=[pattern])


def test_a_pattern_of_the_user_sees_a_long_text_in_pieces() -> None:
    mine = Masking.of(patterns=[r"EMP-\d+", r"\w+@corp"])
    text = "lorem EMP-123 ipsum " * 500 + "bob@corp"
    assert "EMP-" not in mine.text(text)
    assert mine.text(text).endswith(MASK)
    begun = time.process_time()
    mine.text("a" * 60_000)  # quadratic in a piece, but a piece is bounded
    assert time.process_time() - begun < 3


def test_declared_secrets_are_masked_wherever_they_stand() -> None:
    mine = Masking.of(secrets=["blue horse", "abc"]).with_secrets(["green-cat"])
    assert mine.text("a blue horse, a green-cat and abc") == "a [masked], a [masked] and abc"
    assert mine.value({"note": "blue horse", "n": 1}) == {"note": MASK, "n": 1}
    assert mine.exact("blue horse, password=hunter2") == f"{MASK}, password=hunter2"
    assert mine.exact_value({"a": ["blue horse", "ghp_abcdefghijklmnopqrst1234"]}) == {
        "a": [MASK, "ghp_abcdefghijklmnopqrst1234"]
    }
    assert repr(mine).find("horse") < 0


@pytest.mark.parametrize("secret", ['two "quoted" words', "t\u00fcr\n17", "a/b+c d=", "hunter2hunter"])
def test_declared_secrets_are_known_in_the_forms_they_travel_in(secret: str) -> None:
    mine = Masking.of(secrets=[secret])
    twice = json.dumps({"s": json.dumps({"x": secret})})
    forms = [secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), twice, quote(secret, safe="")]
    forms += [quote_plus(secret), base64.b64encode(secret.encode()).decode()]
    for form in forms:
        assert MASK in mine.exact(f"x {form} y"), form
        assert mine.exact(mine.exact(form)) == mine.exact(form)
    json.loads(mine.exact(twice))


def test_what_a_schema_declares_secret_is_found_in_the_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {
            "user": {"type": "string"},
            "word": {"type": "string", "format": "password"},
            "pins": {"type": "array", "items": {"type": "integer", "writeOnly": True}},
            "login": {"$ref": "#/$defs/Login"},
        },
        "$defs": {
            "Login": {"type": "object", "properties": {"key": {"anyOf": [{"format": "password"}, {"type": "null"}]}}}
        },
    }
    arguments = {"user": "bob", "word": "swordfish", "pins": [4711, 8150], "login": {"key": "k-e-y", "other": "x"}}
    assert sorted(declared(schema, arguments)) == ["4711", "8150", "k-e-y", "swordfish"]
    assert list(declared({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, {"a": 1})) == []


def test_masked_places_are_told_out_of_band() -> None:
    value = {"a/b": [{"password": "x1y2z3w4"}, "plain"], "text": "Bearer abc123def456ghi", "n~": 1}
    masked, places = masking.mask(value)
    assert masked == masking.value(value)
    assert sorted(places) == ["/a~1b/0/password", "/text"]
    assert masking.mask({"n": [1]}) == ({"n": [1]}, ())
