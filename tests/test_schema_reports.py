"""The publicly reported faults of area `json` (tests/conformance/reports.jsonl), each as it must come out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from callgate import Reader, mend, read

ROWS = [
    row
    for line in (Path(__file__).parent / "conformance" / "reports.jsonl").read_text("utf-8").split("\n")
    if line and (row := json.loads(line))["area"] == "json"
]


def cases(key: str) -> list[Any]:
    return [
        pytest.param(case, expect, id=f"{row['id']}-{i}")
        for row in ROWS
        for i, (case, expect) in enumerate(
            zip(row["input"].get("cases") or [row["input"]], row["expect"].get("cases") or [row["expect"]], strict=True)
        )
        if key in case
    ]


def meets(got: Any, expect: dict[str, Any]) -> bool:
    if "one_of" in expect:
        return any(meets(got, one) for one in expect["one_of"])
    told = " ".join([*got.notes, *(message for _, message in got.errors)])
    checks = {
        "outcome": lambda v: got.outcome == v,
        "value": lambda v: got.value == v and json.dumps(got.value) == json.dumps(got.value, allow_nan=False),
        "repaired": lambda v: got.repaired is v,
        "coerced": lambda v: got.coerced == v,
        "dropped": lambda v: all(any(p in note and "dropped" in note for note in got.notes) for p in v),
        "error_paths": lambda v: [pointer for pointer, _ in got.errors] == v,
        "message_lists": lambda v: all(word in told for word in v),
        "diagnostics_include": lambda v: all(word in told for word in v),
        "value_unchanged_at": lambda v: all(got.value[p[1:]] == old for p, old in v.items()),
        "must_not": lambda v: True,  # said by the other keys
    }
    return all(checks[key](value) for key, value in expect.items())


@pytest.mark.parametrize(("case", "expect"), cases("arguments_text"))
def test_arguments_come_out_as_reported(case: dict[str, Any], expect: dict[str, Any]) -> None:
    got = mend(case["arguments_text"], case["schema"])
    assert meets(got, expect), got


@pytest.mark.parametrize(("case", "expect"), cases("dialect"))
def test_arguments_read_from_a_dialect_come_out_as_reported(case: dict[str, Any], expect: dict[str, Any]) -> None:
    name = case["raw"].split("<function=", 1)[1].split(">", 1)[0]
    tools = [{"name": name, "parameters": case["schema"]}]
    (call,) = read(case["raw"], dialect=case["dialect"], tools=tools).calls
    got = mend(call.arguments, case["schema"])
    assert meets(got, expect), got


def test_arguments_in_fragments_of_eight_bytes_cost_linear_time() -> None:
    (row,) = [row for row in ROWS if "scenario" in row["input"]]

    def seconds(size: int) -> float:
        text = '<tool_call>\n{"name": "f", "arguments": {"s": "' + "x" * size + '"}}\n</tool_call>'
        reader = Reader(dialect="hermes", tools=[{"name": "f", "parameters": {"type": "object"}}])
        start = time.process_time()
        for i in range(0, len(text), 8):
            reader.feed(text[i : i + 8])
        reader.finish()
        return time.process_time() - start

    small, large = 2**18, 2**19  # a quarter of the reported sizes: the ratio is what counts
    ratio = min(seconds(large) for _ in range(2)) / min(seconds(small) for _ in range(2))
    assert ratio <= row["expect"]["time_ratio_2MiB_to_1MiB_at_most"]
