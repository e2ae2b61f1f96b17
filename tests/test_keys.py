"""What calls are known by."""

from __future__ import annotations

import json
import random
from typing import Any

from callgate.keys import arguments_hash, idempotency_key

KEY = b"k" * 32


def value(chance: random.Random, depth: int = 0) -> Any:
    kinds = ["text", "int", "float", "bool", "none", *(["list", "dict"] if depth < 3 else [])]
    match chance.choice(kinds):
        case "text":
            return chance.choice(["", "a", "\ud800", "é", "[masked]", "1"])
        case "int":
            return chance.choice([0, 1, -5, 10**30])
        case "float":
            return chance.choice([0.5, 1e400, -1e400, 2.25])
        case "bool":
            return chance.random() < 0.5
        case "none":
            return None
        case "list":
            return [value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
        case _:
            return {chance.choice("abcd"): value(chance, depth + 1) for _ in range(chance.randint(0, 3))}


def respelt(chance: random.Random, given: Any) -> Any:
    """The same arguments, spelt differently."""
    if isinstance(given, dict):
        keys = list(given)
        chance.shuffle(keys)
        return {key: respelt(chance, given[key]) for key in keys}
    if isinstance(given, list):
        return [respelt(chance, part) for part in given]
    if type(given) is int and abs(given) < 2**53 and chance.random() < 0.5:
        return float(given)
    return given


def test_equal_arguments_have_equal_hashes() -> None:
    chance = random.Random(7)
    seen: dict[str, str] = {}
    for _ in range(2000):
        arguments = {"x": value(chance)}
        made = arguments_hash("pay", arguments, key=KEY)
        assert made == arguments_hash("pay", respelt(chance, arguments), key=KEY)
        assert made != arguments_hash("pay2", arguments, key=KEY)
        assert made != arguments_hash("pay", arguments, key=b"j" * 32)
        plain = json.dumps(arguments, sort_keys=True).replace("-0", "0")
        assert seen.setdefault(made, plain) == plain


def test_an_idempotency_key_is_for_one_call_of_one_run_for_life() -> None:
    assert idempotency_key("r", "c") == "b1742a0d0ce49058d705795e564d8501"
    assert len({idempotency_key(r, c) for r in ("a", "b", "a\x00") for c in ("c", "\ud800", "")}) == 9
