"""The kinds of the second survey (dialects2.jsonl), in every dialect that has them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from callgate import dialects
from callgate.dialects._marks import SPECIAL
from callgate.dialects._spec import Calls, Dialect, Raw, Region
from callgate.types import ToolSpec
from dialect_reading import (
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

ALL = [dialects.get(name) for name in dialects.names()]
HEADERS = ("", "<|im_start|>assistant\n", "<|x|>assistant", "<｜Assistant｜>", "<start_of_turn>model\n", "[/INST]")
WORDS = ("Perhaps", "the boat", "is small,", "\n\n", "2 < 3", "and", "so.")


def thinking(dialect: Dialect) -> Iterator[Region]:
    """The regions of reasoning that a marker closes."""
    yield from (region for region in dialect.regions if region.kind in ("reasoning", "sealed") and region.close)


THINKERS = [(dialect.name, region) for dialect in ALL for region in thinking(dialect)]


def prose(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 5))).strip()


def everywhere(dialect: str, text: str, tail: str, tools: tuple[ToolSpec, ...] = ()) -> tuple[str, str]:
    """Content and reasoning, the same for every cut."""
    whole = read(dialect, [text], tools, tail)
    for chunks in cuts(text, some=2):
        assert read(dialect, chunks, tools, tail) == whole, (text, tail)
    return text_of(whole), reasoning_of(whole)


@pytest.mark.parametrize(("name", "region"), THINKERS, ids=[f"{name}-{region.open[0]}" for name, region in THINKERS])
def test_the_whole_end_of_the_prompt_decides_the_state(name: str, region: Region) -> None:
    """Policy H: the last opener that stands behind the last closer, after the last header of an assistant."""
    rng = random.Random(name)
    for _ in range(4):
        opener, closer = rng.choice(region.open), rng.choice(region.close)
        header, first, second, answer = rng.choice(HEADERS), prose(rng), prose(rng), prose(rng)
        inside = f"{header}{opener}\n{first}"
        rest = f" {second}{closer}{answer}"
        assert everywhere(name, rest, inside) == (answer, second)
        assert everywhere(name, answer, f"{inside}{closer}\n") == (answer, "")
        again = f"{inside}{closer}{second} {opener}\n{first}"
        assert everywhere(name, rest, again) == (answer, second)
        quoted = f"<|im_start|>user\nWhat does {opener} mean?<|im_end|>\n<|im_start|>assistant\n"
        assert everywhere(name, answer, quoted) == (answer, "")


@pytest.mark.parametrize(("name", "region"), THINKERS, ids=[f"{name}-{region.open[0]}" for name, region in THINKERS])
def test_a_repeated_opener_of_reasoning_is_absorbed(name: str, region: Region) -> None:
    """Policy M for regions: at the beginning of reasoning which the prompt opened, and nowhere else."""
    for opener in region.open:
        for closer in region.close:
            tail = f"<|im_start|>assistant\n{opener}\n"
            assert everywhere(name, f"{opener}\nSo.{closer}Yes.", tail) == ("Yes.", "So.")
            assert everywhere(name, f"\n{opener}{closer}Yes.", tail) == ("Yes.", "")
            assert everywhere(name, f"The tag {opener} is odd.{closer}Yes.", tail)[0] == "Yes."
            assert opener in everywhere(name, f"The tag {opener} is odd.{closer}Yes.", tail)[1]


def special_pairs() -> Iterator[tuple[str, Calls, str, str]]:
    """(dialect, calls, opener, closer) where both are special tokens."""
    for dialect in ALL:
        for calls in dialect.calls:
            for opens, closes in ((calls.section, calls.section_close), (calls.open, calls.close)):
                for opener, closer in zip(opens, closes, strict=False):
                    if SPECIAL.search(opener) and SPECIAL.search(closer):
                        yield dialect.name, calls, opener, closer


UNREADABLE = [
    (name, opener, closer)
    for name, calls, opener, closer in special_pairs()
    if opener in calls.section or not (calls.attributes or isinstance(calls.payload, Raw))
]
"""A header of attributes is read to its bracket first; code is anything."""


@pytest.mark.parametrize(("name", "opener", "closer"), UNREADABLE)
def test_what_cannot_be_read_between_special_tokens_is_one_incomplete_call(name: str, opener: str, closer: str) -> None:
    """F against M: it is not shown, and what follows is read."""
    for inside in ("[???]", "?!", "\n§ 7 nothing to read\n"):
        text = f"Hm. {opener}{inside}{closer}Sorry."
        whole = read(name, [text])
        assert (text_of(whole), reasoning_of(whole)) == ("Hm. Sorry.", ""), text
        assert (len(bad_of(whole)), calls_of(whole)) == (1, [])
        for chunks in cuts(text, some=2):
            assert read(name, chunks) == whole
    alone = f"The token {opener}?! is odd."
    assert text_of(read(name, [alone])) == alone  # policy F: nothing closes it


HALVES = [row for row in rows("dialects.jsonl") if row["expect"]["calls"] and not row["expect"].get("incomplete")]
HALVES = [row for row in HALVES if row["dialect"] != "cwm"]  # raw text may begin with anything


@pytest.mark.parametrize("row", HALVES, ids=[row["id"] for row in HALVES])
def test_a_closer_of_the_call_that_has_begun_is_enough(row: dict[str, Any]) -> None:
    """Policy T: cut inside the last closer, where it can be nothing else, and the call counts."""
    dialect = dialects.get(str(row["dialect"]))
    raw, tools = str(row["raw"]).rstrip(), [spec_of(tool) for tool in row["tools"]]
    tail = str(row.get("prompt_tail", ""))
    for calls in dialect.calls:
        for closer in calls.close:
            start = raw.rfind(closer)
            if start < 0 or raw[start + len(closer) :].strip() not in ("", *calls.section_close, *calls.inner):
                continue
            others = (*getattr(calls.payload, "open", ()), *getattr(calls.payload, "close", ()))
            whole = [(call.name, call.arguments) for call in calls_of(read(dialect, [raw], tools, tail))]
            for end in range(1, len(closer)):
                if any(text.startswith(closer[:end]) for text in others):
                    continue
                cut = read(dialect, [raw[: start + end]], tools, tail)
                assert [(call.name, call.arguments) for call in calls_of(cut)] == whole, raw[: start + end]
                assert bad_of(cut) == []


TAGGED = ("hermes", "ernie45", "glm_xml", "hunyuan_v3", "qwen_xml", "step_audio2", "xlam", "rwkv", "granite3", "mimo")


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize("listed", [False, True])
def test_json_in_the_tag_is_read_in_every_dialect_that_has_it(name: str, listed: bool) -> None:
    """`<tool_call>{…}</tool_call>`, one object or a list of them."""
    tool = ToolSpec("tide_at", "", {"type": "object", "properties": {"harbour": {"type": "string"}}})
    one = '{"name": "tide_at", "arguments": {"harbour": "Skagen"}}'
    text = f"<tool_call>\n{f'[{one}, {one}]' if listed else one}\n</tool_call>"
    if name == "hunyuan_v3":
        text = f"<tool_calls>\n{text}\n</tool_calls>"
    if name == "granite3":  # its marker has no closer
        text = text.removesuffix("</tool_call>")
    whole = read(name, [text], (tool,))
    assert [(call.name, call.arguments) for call in calls_of(whole)] == [("tide_at", {"harbour": "Skagen"})] * (
        1 + listed
    )
    assert (text_of(whole), bad_of(whole)) == ("", [])
    for chunks in cuts(text, some=2):
        assert read(name, chunks, (tool,)) == whole


@pytest.mark.parametrize(
    ("name", "header", "content", "reasoning"),
    [
        ("harmony", "<|channel|>analysis to=assistant<|message|>", "", "Body {x}."),
        ("harmony", "<|channel|>commentary to=assistant<|message|>", "Body {x}.", ""),
        ("harmony", "<|channel|>final to=user<|message|>", "Body {x}.", ""),
        ("harmony", "<|channel|>commentary to=developer<|message|>", "Body {x}.", ""),
        ("glimmer_atem", " to=user<|message|>", "Body {x}.", ""),
        ("glimmer_atem", " to=self<|message|>", "", "Body {x}."),
        ("glimmer_atem", " to=developer<|message|>", "", ""),
        ("glimmer_atem", "<|message|>", "", "Body {x}."),
    ],
)
def test_a_header_s_recipient_says_what_its_body_is(name: str, header: str, content: str, reasoning: str) -> None:
    """And in the next message of the turn it is forgotten."""
    end, last = ("<|end|>", "<|channel|>final<|message|>") if name == "harmony" else ("<|eom|>", " to=user<|message|>")
    text = f"{header}Body {{x}}.{end}<|start|>assistant{last}Last."
    assert everywhere(name, text, "") == (f"{content}Last.", reasoning)


def _tool(name: str, **properties: dict[str, object]) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": properties})


STRING: dict[str, object] = {"type": "string"}
INTEGER: dict[str, object] = {"type": "integer"}
POINT: dict[str, object] = {"type": "object", "properties": {"x": INTEGER}}
BOAT = (
    _tool("rent_boat", harbour=STRING, hours=INTEGER),
    _tool("zip_code", code=STRING, n={"type": "number"}),
    _tool("many", tags={"type": "array", "items": STRING}, points={"type": "array", "items": POINT}, n=INTEGER),
)
NAMESPACE = "]<]minimax[>["
RENT: dict[str, object] = {"harbour": "Skagen", "hours": 2}


def m3(body: str) -> str:
    return f'<tool_call>\n<invoke name="many">{body}</invoke>\n</tool_call>'.replace("<", f"{NAMESPACE}<")


Case: TypeAlias = tuple[str, str, dict[str, object]]

BENT: list[Case] = [
    ("qwen_xml", "<tool_call>\n<function=rent_boat>\n<parameter=harbour>\nSkagen\n</parameter<parameter=hours>\n2\n"
     "</parameter>\n</function>\n</tool_call>", RENT),
    ("qwen_xml", "<tool_call>\n<function=rent_boat>\n<parameter=harbour:>\nSkagen\n</parameter>\n<parameter=hours>\n2\n"
     "</parameter</function>\n</tool_call>", RENT),
    ("glm_xml", "<tool_call>rent_boat<arg_key>harbour</arg_key><arg_value>Skagen</arg_value<arg_key>hours</arg_key>"
     "<arg_value>2</arg_value></tool_call>", RENT),
    ("glm_xml", "<tool_call>rent_boat<arg_key>harbour<arg_value>Skagen</arg_key><arg_key>hours:</arg_key><arg_value>2"
     "</arg_value></tool_call>", RENT),
    ("minimax_m2", '<minimax:tool_call>\n<invoke name="rent_boat">\n<parameter name="harbour">Skagen</parameter'
     '<parameter name="hours">2</parameter>\n</invoke>\n</minimax:tool_call>', RENT),
    ("gemma4", '<|tool_call>call:rent_boat(harbour:<|"|>Skagen<|"|>,hours:2)<tool_call|>', RENT),
    ("gemma4", '<|tool_call>call:rent_boat{harbour:<|"|>Skagen<|"|>,hours:2}}<tool_call|>', RENT),
    ("lfm2", "<|tool_call_start|>[rent_boat(harbour='Skagen', hours=2)]]<|tool_call_end|>", RENT),
    ("mistral_list", '[TOOL_CALLS][{"name": "rent_boat", "arguments": {"harbour": "Skagen", "hours": 2}}]]', RENT),
    ("mistral_args", '[TOOL_CALLS]rent_boat[ARGS]{"harbour": "Skagen", "hours": 2}}', RENT),
    ("harmony", '<|channel|>commentary to=functions.rent_boat<|message|>{"harbour": "Skagen", "hours": 2}}<|call|>',
     RENT),
    ("hermes", '<tool_call>{"name": "rent_boat", "arguments": {"arguments": {"harbour": "Skagen", "hours": 2}}}'
     "</tool_call>", RENT),
    ("hermes", '<tool_call>{"arguments": {"input": {"harbour": "Skagen", "hours": 2}}, "name": "rent_boat"}'
     "</tool_call>", RENT),
]  # fmt: skip

FITTING: list[Case] = [
    ("gemma4", "<|tool_call>call:zip_code{code:01234,n:1.50}<tool_call|>", {"code": "01234", "n": 1.5}),
    ("lfm2", "<|tool_call_start|>[zip_code(code=01234, n=2)]<|tool_call_end|>", {"code": "01234", "n": 2}),
    ("bracket_tool", "[TOOL: zip_code(code=01.50, n=2)]", {"code": "01.50", "n": 2}),
    ("minimax_m3", m3("<tags>a</tags><tags>b</tags><n>2</n>"), {"tags": ["a", "b"], "n": 2}),
    ("minimax_m3", m3("<n>2</n><tags>a</tags>"), {"n": 2, "tags": ["a"]}),
    ("minimax_m3", m3('<tags>["a", "b"]</tags>'), {"tags": ["a", "b"]}),
    ("minimax_m3", m3("<points><x>1</x></points><points><x>2</x></points>"), {"points": [{"x": 1}, {"x": 2}]}),
    ("minimax_m3", m3("<points><item><x>1</x></item></points><n>1</n>"), {"points": [{"x": 1}], "n": 1}),
    ("glm_xml", '<tool_call>Boats/rent_boat>{"harbour": "Skagen", "hours": 2}', RENT),
    ("glm_xml", '<tool_call>rent_boat>{"harbour": "Skagen", "hours": 2}</tool_call>', RENT),
    ("sarashina", "<|tool_calls|>[{'name': 'rent_boat', 'arguments': {'harbour': 'Skagen', 'hours': 2}}]", RENT),
    ("sarashina", "<|tool_calls|>[{'arguments': {'tags': ['a'], 'n': None}, 'name': 'many'}]",
     {"tags": ["a"], "n": None}),
    ("hermes", '<tool_call>{"name": "rent_boat", "arguments": {"arguments": {"harbour": 1}, "hours": 2}}</tool_call>',
     {"arguments": {"harbour": 1}, "hours": 2}),
    ("hermes", '<tool_call>{"name": "rent_boat", "arguments": {"arguments": {"place": 1}}}</tool_call>',
     {"arguments": {"place": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "arguments"), BENT + FITTING)
def test_mangled_markup_around_a_value_is_absorbed(name: str, text: str, arguments: dict[str, object]) -> None:
    """Policy M: the call counts, nothing of its markup is shown, and what was bent is flagged and named."""
    whole, problems = read_with_problems(name, [text], BOAT)
    assert ([call.arguments for call in calls_of(whole)], text_of(whole), bad_of(whole)) == ([arguments], "", [])
    bent = (name, text, arguments) in BENT
    assert bool(calls_of(whole)[0].flags & {"recovered", "repaired"}) is bent is bool(problems)
    check_streams(whole)
    for chunks in cuts(text):
        assert read(name, chunks, BOAT) == whole
