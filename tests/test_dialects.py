"""The given cases of all dialects: the right result, and the same one for every cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from callgate import dialects
from callgate.errors import UnknownDialect
from callgate.types import ToolSpec
from dialect_reading import (
    CONFORMANCE,
    bad_of,
    calls_of,
    check_streams,
    cuts,
    read,
    read_with_problems,
    reasoning_of,
    rows,
    spec_of,
    text_of,
)

DIALECTS = rows("dialects.jsonl")
SURVEY = rows("dialects2.jsonl")
TEMPLATES = rows("templates.jsonl")
REPORTS = [row for row in rows("reports.jsonl") if row["area"] == "dialect"]
MORE = rows("dialects_more.jsonl")
MORE_TOOLS = [spec_of(t) for t in json.loads((CONFORMANCE / "dialects_more_tools.json").read_text(encoding="utf-8"))]
FACTS = json.loads((CONFORMANCE / "dialect_facts.json").read_text(encoding="utf-8"))
TEMPLATE_TOOLS = [
    spec_of(tool) for tool in json.loads((CONFORMANCE / "template_tools.json").read_text(encoding="utf-8"))
]

Tools = Sequence[ToolSpec]


def same_for_every_cut(dialect: str, text: str, tools: Tools, tail: str = "") -> None:
    whole = read(dialect, [text], tools, tail)
    check_streams(whole)
    for chunks in cuts(text):
        assert read(dialect, chunks, tools, tail) == whole, [len(chunk) for chunk in chunks]


def exact(calls: Sequence[Any]) -> list[tuple[str, str]]:
    """Names and arguments as JSON text: 1 is not true, and integers are exact."""
    return [(call.name, json.dumps(call.arguments, sort_keys=True)) for call in calls]


def expected(calls: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(call["name"], json.dumps(call["arguments"], sort_keys=True)) for call in calls]


@pytest.mark.parametrize("row", DIALECTS + SURVEY, ids=[row["id"] for row in DIALECTS + SURVEY])
def test_case_of_a_dialect(row: dict[str, Any]) -> None:
    """Each case of dialects.jsonl and dialects2.jsonl, whole, by characters, at every single cut, at random cuts."""
    tools, tail, expect = [spec_of(tool) for tool in row["tools"]], row.get("prompt_tail", ""), row["expect"]
    deltas = read(row["dialect"], [row["raw"]], tools, tail)
    assert text_of(deltas) == expect["content"]
    assert reasoning_of(deltas) == expect["reasoning"]
    assert exact(calls_of(deltas)) == expected(expect["calls"])
    for call, wanted in zip(calls_of(deltas), expect["calls"], strict=True):
        assert "id" not in wanted or call.id == wanted["id"]
    if row in DIALECTS:
        assert [bad.name for bad in bad_of(deltas)] == [bad["name"] for bad in expect.get("incomplete", [])]
    assert len(bad_of(deltas)) == len(expect.get("incomplete", []))  # of what nobody can read, the number counts
    same_for_every_cut(row["dialect"], row["raw"], tools, tail)


@pytest.mark.parametrize("row", MORE, ids=[row["id"] for row in MORE])
def test_case_of_our_own(row: dict[str, Any]) -> None:
    """Inputs that once broke the reader or test a policy's edge, with the flags of their calls."""
    tail, expect = row.get("prompt_tail", ""), row["expect"]
    deltas = read(row["dialect"], [row["raw"]], MORE_TOOLS, tail)
    assert text_of(deltas) == expect["content"]
    assert reasoning_of(deltas) == expect["reasoning"]
    assert exact(calls_of(deltas)) == expected(expect["calls"])
    for call, wanted in zip(calls_of(deltas), expect["calls"], strict=True):
        assert call.id == wanted.get("id", "")
        assert sorted(call.flags) == wanted.get("flags", [])
    assert [{"name": bad.name, "reason": bad.reason} for bad in bad_of(deltas)] == expect.get("incomplete", [])
    same_for_every_cut(row["dialect"], row["raw"], MORE_TOOLS, tail)


@pytest.mark.parametrize(
    "row", TEMPLATES, ids=[f"{row['template']}-{row['case']}-{n}" for n, row in enumerate(TEMPLATES)]
)
def test_what_a_template_renders(row: dict[str, Any]) -> None:
    """Each text that a real chat template renders for known calls."""
    deltas = read(row["dialect"], [row["raw"]], TEMPLATE_TOOLS, row["prompt_tail"])
    assert text_of(deltas).strip() == row["expect_content"].strip()
    assert reasoning_of(deltas).strip() == row["expect_reasoning"].strip()
    assert exact(calls_of(deltas)) == expected(row["expect_calls"])
    assert bad_of(deltas) == []
    same_for_every_cut(row["dialect"], row["raw"], TEMPLATE_TOOLS, row["prompt_tail"])


@pytest.mark.parametrize("row", REPORTS, ids=[row["id"] for row in REPORTS])
def test_reported_fault(row: dict[str, Any]) -> None:
    """Each publicly reported fault of a dialect's parser does not happen here."""
    given, expect = row["input"], row["expect"]
    tools = [spec_of(tool) for tool in given.get("tools", ())]
    deltas, problems = read_with_problems(given["dialect"], [given["raw"]], tools)
    assert text_of(deltas).strip() == expect.get("text", "").strip()
    if expect.get("text_compare") != "stripped":
        assert text_of(deltas) == expect.get("text", "")
    if "reasoning" in expect:
        assert reasoning_of(deltas).strip() == expect["reasoning"].strip()
    assert expect.get("reasoning_contains", "") in reasoning_of(deltas)
    assert exact(calls_of(deltas)) == expected(expect["calls"])
    wanted = expect.get("incomplete_calls", [])
    assert [bad.name for bad in bad_of(deltas)] == [bad["name"] for bad in wanted]
    for bad, want in zip(bad_of(deltas), wanted, strict=True):
        assert want.get("raw_contains", "") in bad.text
    assert bool(problems) or not expect.get("diagnostics_include")
    same_for_every_cut(given["dialect"], given["raw"], tools)
    for chunks in given.get("reported_chunks", ()):
        assert read(given["dialect"], chunks, tools) == deltas


def test_every_dialect_of_the_facts_is_there() -> None:
    """All of them, under exactly the names of the facts."""
    assert sorted(dialects.names()) == sorted(fact["name"] for fact in FACTS)


@pytest.mark.parametrize(
    ("start", "end"), [("<call>", "</call>"), ("%%", "%%"), ("«", "»"), ("[[", "]]"), ("\n--", "--\n")]
)
def test_tags_of_ones_own(start: str, end: str) -> None:
    """`Dialect.tagged` reads JSON calls between any two tags."""
    text = f'Hi {start}{{"name": "ring_bell", "arguments": {{"a": "{end.strip()}"}}}}{end} there'
    dialect = dialects.Dialect.tagged(start, end)
    whole = read(dialect, [text])
    assert exact(calls_of(whole)) == [("ring_bell", json.dumps({"a": end.strip()}))]
    assert text_of(whole).split() == ["Hi", "there"]
    for chunks in cuts(text):
        assert read(dialect, chunks) == whole


def test_a_tag_needs_a_character() -> None:
    with pytest.raises(ValueError, match="tag"):
        dialects.Dialect.tagged("<call>", "")


def test_an_unknown_dialect_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UnknownDialect, match="hermes"):
        dialects.get("hermess")


def test_a_model_name_is_a_dialect() -> None:
    """Ollama tags and repository names lead to the family's dialect."""
    assert dialects.get("qwen3-coder:30b").name == "qwen_xml"
    assert dialects.get("gpt-oss-20b").name == "harmony"


AMBIGUOUS = {"hunyuan_a13b-02-think-answer", "ernie45-03-response"}
"""Wrappers that only their own dialects may take away: `<answer>`, `<response>`."""


@pytest.mark.parametrize("row", DIALECTS, ids=[row["id"] for row in DIALECTS])
def test_the_automatic_dialect_reads_the_case_too(row: dict[str, Any]) -> None:
    """`auto` finds the dialect from what is seen, and the cuts make no difference."""
    tools, tail, expect = [spec_of(tool) for tool in row["tools"]], row.get("prompt_tail", ""), row["expect"]
    deltas = read("auto", [row["raw"]], tools, tail)
    check_streams(deltas)
    if row["id"] not in AMBIGUOUS:
        assert text_of(deltas).strip() == expect["content"].strip()
        assert reasoning_of(deltas) == expect["reasoning"]
        assert exact(calls_of(deltas)) == expected(expect["calls"])
        assert [bad.name for bad in bad_of(deltas)] == [bad["name"] for bad in expect.get("incomplete", [])]
    for chunks in cuts(row["raw"], every=False):
        assert read("auto", chunks, tools, tail) == deltas


def begun(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The case with its first region or message begun by the prompt: (the prompt's end, what is left)."""
    dialect, raw = dialects.get(row["dialect"]), row["raw"]
    openers = [opener for region in dialect.regions for opener in region.open if raw.startswith(opener)]
    if (channels := dialect.channels) is not None and not channels.recipient:
        openers += [start for start in channels.start if raw.startswith(start)]
        openers += [raw[: raw.find(body) + len(body)] for body in channels.body if body in raw]
    start = "" if channels is None or raw.startswith("<|start|>") else "<|start|>assistant"
    return [(start + opener, raw[len(opener) :]) for opener in openers]


BEGUN = [(row, *split) for row in DIALECTS if not row.get("prompt_tail") for split in begun(row)]


@pytest.mark.parametrize(("row", "tail", "rest"), BEGUN, ids=[f"{row['id']}-{len(tail)}" for row, tail, _ in BEGUN])
def test_what_the_prompt_has_begun_is_read_as_if_the_model_had_written_it(
    row: dict[str, Any], tail: str, rest: str
) -> None:
    """Under the dialect's name and under `auto`."""
    tools = [spec_of(tool) for tool in row["tools"]]
    for name in (row["dialect"], "auto"):
        deltas, whole = read(name, [rest], tools, tail), read(name, [row["raw"]], tools, "")
        assert (text_of(deltas), reasoning_of(deltas)) == (text_of(whole), reasoning_of(whole))
        assert exact(calls_of(deltas)) == exact(calls_of(whole))
        assert [bad.name for bad in bad_of(deltas)] == [bad.name for bad in bad_of(whole)]
