"""A mention is not a call (A7): what a model quotes, shows or describes never runs, and what it means does.

conformance/mentions.jsonl holds texts, the protocol each is read under, and how often the write in it may run. The
generators put every dialect's own way of writing a call into every kind of wrapping.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from callgate import Agent, Replay, dialects, tool
from callgate.types import BadCall, ToolCall, ToolSpec
from dialect_reading import CONFORMANCE, bad_of, calls_of, cuts, read, read_with_problems, rows, text_of
from dialect_render import GUARDED, LINES, WRITERS

ROWS = rows("mentions.jsonl")
TEMPLATE_TOOLS = CONFORMANCE / "template_tools.json"
DELETE = ToolSpec(
    "delete_file", parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
)
DIALECT_OF = {"json": "bare_json", "constrained": "bare_json", "marker": "heredoc_tool"}


def dialect_of(row: dict[str, Any]) -> str:
    protocol: str = row["protocol"]
    return row["dialect"] or DIALECT_OF.get(protocol, protocol)


def ran(text: str | list[Any], protocol: str, dialect: str | None = None) -> tuple[list[str], Any]:
    """Which paths a model that writes this deletes, and the run's result."""
    paths: list[str] = []

    @tool(effect="write")
    def delete_file(path: str) -> str:
        """Deletes a file."""
        paths.append(path)
        return "deleted"

    replies = [text, "That is all."] if isinstance(text, str) else text
    agent = Agent(Replay(replies), tools=[delete_file], protocol=protocol, dialect=dialect)
    return paths, agent.run_sync("What does the page say?")


def wrapped(before: str, after: str) -> Any:
    return lambda call: before + call + after


def lines(mark: str) -> Any:
    return lambda call: f"The page:\n{mark} " + call.replace("\n", f"\n{mark} ") + "\nI refuse."


QUOTES = [
    "\"\"", "''", "“”", "‘’", "„“", "„”", "‚‘", "«»", "»«", "‹›", "›‹", "「」", "『』", "〝〞", "〝〟",
    "｢｣", "﹁﹂", "﹃﹄", "＂＂", "＇＇", "❝❞", "❛❜", "””", "’’", "《》",
]  # fmt: skip
LONG_QUOTES = ['""', "“”", "„“", "«»", "»«", "「」", "『』"]
INSIDE = {
    "code span": wrapped("Use `", "` to delete it."),
    "code span at the end": wrapped("Use `", "`"),
    "code span of two": wrapped("Use `` ", " `` to delete it."),
    "code span of three": wrapped("Use ```", "``` to delete it."),
    "code span on its line": wrapped("It is this:\n`", "`\nand no more."),
    "code in a list": wrapped("Steps:\n- `", "`\n- then check"),
    "fence": wrapped("Like this:\n```\n", "\n```\nShall I?"),
    "labelled fence": wrapped("```xml\n", "\n```"),
    "fence in a longer fence": wrapped("````text\n```\n", "\n```\n````"),
    "fence without end": wrapped("See:\n```python\n", ""),
    "fence in a list": wrapped("1. Write\n   ```\n   ", "\n   ```\n2. Done"),
    "fence of tildes": wrapped("~~~\n", "\n~~~\nis the form."),
    "labelled fence of tildes": wrapped("Example:\n~~~xml\n", "\n~~~"),
    "indented": wrapped("Example:\n\n    ", "\n\nThat is all."),
    "indented later": wrapped("Example:\n\n    first\n    ", "\n\nThat is all."),
    "tab": wrapped("Example:\n\n\t", "\n"),
    "blockquote": lines(">"),
    "blockquote of two": lines(">>"),
    "table cell": wrapped("| form | use |\n|---|---|\n| ", " | deletes |\n"),
    "comment": wrapped("<!-- ", " -->\nNothing to do."),
    "comment of lines": wrapped("<!--\n", "\n-->\nNothing to do."),
    "code element": wrapped("In HTML: <code>", "</code> is what they wrote."),
    "pre element": wrapped("<pre>\n", "\n</pre>"),
    "code in pre": wrapped('<pre><code class="x">\n\n', "\n\n</code></pre>\nSo."),
    "blockquote element": wrapped("<BLOCKQUOTE>\n", "\n</BLOCKQUOTE>"),
    "marks on lines of their own": wrapped('It reads:\n"\n', '\n"\nNo.'),
    "apostrophes on lines of their own": wrapped("It reads:\n'\n", "\n'\nNo."),
    "mark at the end of a line": wrapped('It says: "\n\n', '\n\n" and no.'),
    "string of lines": wrapped('text = """\n', '\n"""\n'),
    "nested quotations": wrapped("He wrote: “She said ‘", "’ yesterday.”"),
    "french": wrapped("La page dit : « ", " » et je refuse."),
    "chinese": wrapped("网页上写着“", "”，我不会执行。"),
    "ascii marks in chinese": wrapped('他说"', '"然后走了。'),
    **{f"quoted {q}": wrapped(f"The page says: {q[0]}", f"{q[1]} and I refuse.") for q in QUOTES},
    **{f"quoted lines {q}": wrapped(f"It says: {q[0]}Do this.\n", f"\nThanks.{q[1]} No.") for q in LONG_QUOTES},
    **{f"quoted text {q}": wrapped(f"It says: {q[0]}Do this.\n\n", f"\n\nThanks.{q[1]} No.") for q in LONG_QUOTES},
    **{f"quoted sentence {q}": wrapped(f"It says: {q[0]}Stop. ", q[1]) for q in LONG_QUOTES},
}
"""Nothing is meant in these, not even between special tokens."""
BESIDE = {
    "text on both sides": wrapped("Never write ", " in an answer, please."),
    "parentheses": wrapped("I could delete it (", "), but should I?"),
    "text before": wrapped("The form is ", ""),
    "colon": wrapped("Example: ", ""),
    "text behind": wrapped("", " is the form."),
    "chinese behind": wrapped("", "就是格式。"),
    "chinese before": wrapped("格式是", ""),
    "list item": wrapped("- ", "\n- next"),
    "numbered item": wrapped("1. ", "\n2. next"),
    "abbreviation": wrapped("Write a call, e.g. ", ""),
    "full stop behind": wrapped("", "."),
    "comma": wrapped("First, ", ", then stop."),
    "bold": wrapped("**", "**"),
}
"""Nothing is meant in these if a person can type the markers."""
MEANT = {
    "alone": wrapped("", ""),
    "lines around": wrapped("\n", "\n"),
    "own line": wrapped("I will delete it now.\n", ""),
    "colon and empty line": wrapped("Deleting:\n\n", ""),
    "chinese": wrapped("好的，现在删除。\n", ""),
    "quotations before": wrapped('He said "go" and I\'ll do it. The \'90s “were” ‘fun’, 5" tall.\n', ""),
    "apostrophes": wrapped("It's the dogs' 5' fence; 's avonds, l’été, צה\"ל.\n\n", ""),
    "closed fence before": wrapped("```python\nprint('\"')\n```\nNow:\n", ""),
    "code before": wrapped('I use `rm "x` for it.\n', ""),
    "a quotation that never ends": wrapped('I said "hello.\n\nNow I go.\n\n', ""),
    "list before": wrapped("Plan:\n1. look\n2. delete\n\n", ""),
    "table before": wrapped("| a | b |\n|---|---|\n| 1 | 2 |\n\n", ""),
    "blockquote before": wrapped("> Please delete it\n\nI do.\n", ""),
    "a tag as a word": wrapped("Use the <code> tag for it.\n\nNow.\n\n", ""),
    "text in the next line": wrapped("", "\nI am waiting."),
    "text two lines on": wrapped("", "  \n\nI am waiting for “x”."),
}
AFTER_A_SENTENCE = [
    "I will delete it now. ", "好的，现在删除。", "Let me do it! 🗑️ ", "Shall we? ", "ठीक है। ", "He said “go.” ",
    "Let me see... ", "حسنا؟ ", "Хорошо. ", "Νομίζω. ", "좋아요. ", "ደህና። ",
]  # fmt: skip
SPECIAL = ("<|", "<｜", "]<]", "[unused", ">>>")


def written(dialect: str, path: str = "/srv/a") -> str:
    return WRITERS[dialect]([("delete_file", {"path": path})]).strip()


def meant(dialect: str, text: str) -> list[str]:
    """The paths of the calls that count."""
    return [
        call.arguments["path"] for call in calls_of(read(dialect, [text], [DELETE])) if "mentioned" not in call.flags
    ]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_given_text_runs_its_write_as_often_as_it_may(row: dict[str, Any]) -> None:
    """Through an agent, under the row's protocol."""
    paths, result = ran(row["text"], row["protocol"], row["dialect"])
    assert len(paths) == row["runs"]
    assert result.reason == "answered"


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_flags_do_not_depend_on_the_cuts(row: dict[str, Any]) -> None:
    """Deltas, flags and problems are the same whole, by characters, at every single cut, at random cuts."""
    whole = read_with_problems(dialect_of(row), [row["text"]], [DELETE])
    for chunks in cuts(row["text"]):
        assert read_with_problems(dialect_of(row), chunks, [DELETE]) == whole


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_a_call_in_a_quotation_is_never_meant(dialect: str) -> None:
    """Every dialect in every container; and the same for every cut."""
    for kind, wrap in INSIDE.items():
        text = wrap(written(dialect))
        assert meant(dialect, text) == [], kind
        whole = read_with_problems(dialect, [text], [DELETE])
        assert read_with_problems(dialect, list(text), [DELETE]) == whole, kind


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_a_call_beside_text_is_meant_between_special_tokens_only(dialect: str) -> None:
    """Markers that a person can type need a line of their own or the end of a sentence before them."""
    call = written(dialect)
    for kind, wrap in BESIDE.items():
        text = wrap(call)
        found = meant(dialect, text)
        assert found in ([], ["/srv/a"]) if call.startswith(SPECIAL) else found == [], kind
        assert read(dialect, list(text), [DELETE]) == read(dialect, [text], [DELETE]), kind


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_a_call_in_its_place_is_meant(dialect: str) -> None:
    """No real call is held back for what stands elsewhere."""
    call = written(dialect)
    for kind, wrap in MEANT.items():
        text = wrap(call)
        assert meant(dialect, text) == ["/srv/a"], kind
        assert read(dialect, list(text), [DELETE]) == read(dialect, [text], [DELETE]), kind
    if dialect not in GUARDED | LINES:
        for before in AFTER_A_SENTENCE:
            assert meant(dialect, before + call) == ["/srv/a"], before


@pytest.mark.parametrize("dialect", sorted(set(WRITERS) - {"react", "command_r_plus"}))
def test_calls_in_a_row_are_no_text_beside_each_other(dialect: str) -> None:
    """All of a message, in the dialect's own way of writing several, are meant."""
    text = WRITERS[dialect]([("delete_file", {"path": "/a"}), ("delete_file", {"path": "/b"})])
    assert meant(dialect, "Both now.\n" + text) == ["/a", "/b"]


def test_what_follows_on_the_line_of_the_last_call_concerns_the_whole_row() -> None:
    """A second call is no visible text, and what stands behind it stands behind the first as well."""
    call = written("hermes")
    assert meant("hermes", f"{call}{call}\n") == ["/srv/a", "/srv/a"]
    assert meant("hermes", f"{call}{call} are the forms") == []
    assert meant("hermes", f"{call} {call}<|im_end|>\n") == ["/srv/a", "/srv/a"]


def test_one_call_is_quoted_and_another_meant() -> None:
    """Each by its own place; a quoted one never costs the next."""
    text = f"The page has `{written('hermes', '/quoted')}`.\nI do this:\n{written('hermes')}\nDone."
    assert meant("hermes", text) == ["/srv/a"]


def test_a_call_in_reasoning_is_meant_if_the_reasoning_never_closes() -> None:
    """Policy K; but what the reasoning quotes is quoted."""
    call = written("hermes")
    assert meant("hermes", f"<think>I should do it, so {call}") == ["/srv/a"]
    assert meant("hermes", f"<think>The page says `{call}`") == []
    assert meant("hermes", f"<think>It has:\n```\n{call}\n{call}\n```\n") == []
    assert meant("hermes", f"<think>I could {call}</think>No.") == []


def test_what_harmony_addresses_to_the_user_holds_no_calls() -> None:
    """A header quoted in `final` is a quotation; after its end it is a header again."""
    call = '<|start|>assistant<|channel|>commentary to=functions.delete_file<|message|>{"path": "/srv/a"}<|call|>'
    assert meant("harmony", f"<|channel|>final<|message|>One writes {call} for it.") == []
    assert meant("harmony", f"<|channel|>final<|message|>Now.<|end|>{call}") == ["/srv/a"]
    assert meant("harmony", f"<|channel|>commentary<|message|>Now<|end|>{call}") == ["/srv/a"]


def test_the_answer_of_a_message_with_headers_is_the_body_for_the_user() -> None:
    """The quoted call stays in it, the headers of the message itself do not."""
    call = '<|start|>assistant<|channel|>commentary to=functions.delete_file<|message|>{"path": "/srv/a"}<|call|>'
    text = f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>One writes {call}."
    paths, result = ran(f"{text}<|return|>", "native", "harmony")
    assert (paths, result.text) == ([], f"One writes {call}.")


def test_a_fence_is_meant_under_json_only_if_it_is_the_whole_message() -> None:
    """One fence, without a label or with `json`."""
    call = '{"tool": "delete_file", "args": {"path": "/srv/a"}}'
    for label, runs in (("", 1), ("json", 1), ("JSON", 1), ("tool_call", 0), ("jsonc", 0)):
        assert len(meant("bare_json", f"```{label}\n{call}\n```\n")) == runs, label
    assert meant("bare_json", f"Sure:\n```json\n{call}\n```") == []
    assert meant("bare_json", f"```json\n{call}\n```\nDone.") == []


def test_a_broken_call_in_a_quotation_is_a_mention_too() -> None:
    """Nobody is told to correct what was only an example."""
    bad = bad_of(read("hermes", ['Use `<tool_call>{"name": "x", "arguments": {...}}</tool_call>` for it.'], [DELETE]))
    assert [call.flags for call in bad] == [{"mentioned"}]
    paths, result = ran(
        'Write `<tool_call>{"name": "delete_file", "arguments": {...}}</tool_call>`.', "native", "hermes"
    )
    assert (paths, len(result.messages)) == ([], 2)
    assert result.text == 'Write `<tool_call>{"name": "delete_file", "arguments": {...}}</tool_call>`.'


@pytest.mark.parametrize(
    ("protocol", "dialect"), [("native", "hermes"), ("hermes", None), ("marker", None), ("bracket_tool", None)]
)
def test_a_message_of_mentions_is_the_answer_as_it_was_written(protocol: str, dialect: str | None) -> None:
    """At once under `native`; else after one correction, once a run, and nothing of it moves the ladder."""
    call = written(DIALECT_OF.get(protocol, dialect or protocol))
    text = f"The page says “{call}” and I refuse."
    paths, result = ran([text, text], protocol, dialect)
    assert (paths, result.reason, result.text) == ([], "answered", text)
    assert result.messages[-1].calls == ()
    assert [m.role for m in result.messages] == ["user", "assistant"]


def test_a_mention_changes_no_protocol_and_asks_once() -> None:
    """The second mention of a run is the answer, and the agent's protocol stays."""
    text = f"The page says “{written('heredoc_tool')}” and I refuse."
    model = Replay([text, text])

    @tool(effect="write")
    def delete_file(path: str) -> str:
        """Deletes a file."""
        raise AssertionError(path)

    agent = Agent(model, tools=[delete_file], protocol="marker")
    result = agent.run_sync("What does it say?")
    assert len(model.requests) == 2
    assert result.text == text
    assert "mentions a call" in model.requests[1].messages[-1].text


def test_meant_calls_run_and_mentioned_ones_leave_the_history() -> None:
    """A mixed message."""
    text = f"The page has `{written('hermes', '/quoted')}`.\nI do this:\n{written('hermes')}"
    paths, result = ran(text, "hermes")
    assert paths == ["/srv/a"]
    assert [call.arguments for m in result.messages for call in m.calls] == [{"path": "/srv/a"}]


def test_a_rescued_call_beside_text_reads_but_does_not_write() -> None:
    """Under `native` the server should have read it: `loose`."""
    text = f"I will do it now.\n{written('hermes')}"
    paths, _ = ran(text, "native", "hermes")
    assert paths == []
    paths, _ = ran([text, written("hermes"), "Done."], "native", "hermes")
    assert paths == ["/srv/a"]
    seen: list[str] = []

    @tool(effect="read")
    def delete_file(path: str) -> str:
        """Only looks."""
        seen.append(path)
        return "fine"

    Agent(Replay([text, "Done."]), tools=[delete_file], protocol="native", dialect="hermes").run_sync("Go.")
    assert seen == ["/srv/a"]


def test_a_call_is_reported_as_soon_as_the_rest_of_its_line_is_known() -> None:
    """Not only at the message's end."""
    machine = dialects.reader("hermes", tools=[DELETE])
    machine.feed(written("hermes"))
    assert any(isinstance(delta, ToolCall) for delta in machine.feed("\nI"))  # a surplus closer might stand there
    machine = dialects.reader("hermes", tools=[DELETE])
    machine.feed(written("hermes"))
    flags = [delta.flags for delta in machine.feed(" x") if isinstance(delta, ToolCall)]
    assert flags == [{"mentioned"}]


def test_the_cost_of_placing_a_call_does_not_grow_with_what_stood_before() -> None:
    """Each character is looked at once, however many calls stand on one line: counted, not timed."""
    call = written("hermes")
    machine = dialects.reader("hermes", tools=[DELETE])
    place = machine.text.place
    looked = 0
    real = type(place)._part

    class Counting(type(place)):  # type: ignore[misc]
        __slots__ = ()

        def _part(self, text: str, after: str, *, plain: bool = False) -> None:
            nonlocal looked
            looked += len(text)
            real(self, text, after, plain=plain)

    place.__class__ = Counting
    text = f"some “text {call} " * 300
    for start in range(0, len(text), 7):
        machine.feed(text[start : start + 7])
    machine.finish()
    assert looked <= len(text)


@pytest.mark.parametrize("protocol", ["native", "hermes", "json", "marker", "bracket_tool", "constrained"])
@pytest.mark.parametrize("dialect", ["hermes", "qwen_xml", "mistral_list", "heredoc_tool", "bracket_tool", "bare_json"])
def test_no_mention_runs_under_any_protocol(protocol: str, dialect: str) -> None:
    """Whatever the markup and whoever asked for which: the write never runs."""
    call = written(dialect)
    for kind, wrap in itertools.islice(itertools.chain(INSIDE.items(), BESIDE.items()), 0, None, 3):
        own = dialect if protocol == "native" else None
        paths, result = ran(wrap(call), protocol, own)
        assert paths == [], (kind, result.text)


@pytest.mark.parametrize("dialect", sorted(set(WRITERS) - {"functionary_v32"}))
def test_a_mention_is_none_for_a_reader_that_guesses_the_dialect(dialect: str) -> None:
    """`auto` too: what is known of the place outlives the choice."""
    call = written(dialect)
    for kind, wrap in {**INSIDE, **({} if call.startswith(SPECIAL) else BESIDE)}.items():
        assert meant("auto", wrap(call)) == [], kind


@pytest.mark.parametrize("kind", sorted(INSIDE | BESIDE))
def test_an_object_is_a_mention_where_one_was_asked_for_too(kind: str) -> None:
    """`json` and `constrained`: one object, alone on its line."""
    text = {**INSIDE, **BESIDE}[kind](written("bare_json"))
    assert [ran(text, protocol)[0] for protocol in ("json", "constrained")] == [[], []]


def test_templates_of_real_models_are_meant() -> None:
    """What chat templates render for real calls is never taken for a mention."""
    tools = [ToolSpec(tool["function"]["name"]) for tool in json.loads(TEMPLATE_TOOLS.read_text(encoding="utf-8"))]
    for row in rows("templates.jsonl"):
        for delta in read(row["dialect"], [row["raw"]], tools, row.get("prompt_tail", "")):
            if isinstance(delta, ToolCall | BadCall):
                assert not delta.flags & {"mentioned", "loose"}, row["id"]


def test_the_text_that_comes_with_a_mention_is_unchanged() -> None:
    """Content is what it always was: the markup is taken out of it, and `Reply.source` has it."""
    deltas = read("hermes", [f"<think>hm</think>Use `{written('hermes')}` so."], [DELETE])
    assert text_of(deltas) == "Use `` so."
