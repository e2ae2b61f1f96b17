"""Dialects of one's own: in an agent, in a protocol, from a file, from the command line, and after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Agent, Replay, read, tool
from callgate.apps.cli import cli
from callgate.apps.dialectfile import dialect_of
from callgate.dialects import Calls, Dialect, JsonArgs, JsonItems, Params, Raw, Region
from callgate.errors import ConfigError, LedgerError
from callgate.protocols._own import own_writer
from callgate.types import ToolCall

pytestmark = pytest.mark.anyio
RAN: list[str] = []
TAGS = Dialect.tagged("[[call]]", "[[/call]]")
PARROT = Dialect(
    "parrot",
    calls=(Calls(JsonArgs(), open=("<|parrot|>",), close=("<|end_parrot|>",), header={"name": {"<|with|>": ""}}),),
    regions=(Region(("<muse>",), ("</muse>",)),),
)
OWL = Dialect(
    "owl",
    calls=(
        Calls(
            Params(("<arg ",), ("</arg>",)),
            open=("<hoot:",),
            close=("</hoot>",),
            header={"name": {">": ""}},
            section=("<hoots>",),
            section_close=("</hoots>",),
        ),
    ),
)
CODE = Dialect("code", calls=(Calls(Raw(), open=("<code>",), close=("</code>",)),))


@tool(effect="read")
def look(at: str) -> str:
    "Looks."
    RAN.append(at)
    return f"saw {at}"


@tool(effect="write", confirm=True)
def put(at: str) -> str:
    "Puts."
    RAN.append(at)
    return "done"


def written(dialect: Dialect, name: str, **arguments: Any) -> str:
    write = own_writer(dialect)
    assert write is not None
    return write([ToolCall("1", name, arguments)])


@pytest.mark.parametrize("dialect", [TAGS, PARROT, OWL], ids=lambda d: d.name)
@pytest.mark.parametrize("cut", [None, 1])
async def test_an_agent_asks_and_reads_in_a_dialect_of_ones_own(dialect: Dialect, cut: int | None) -> None:
    RAN.clear()
    text = f"I look. {written(dialect, 'look', at='東京')}"
    model = Replay([{"content": text, "chunks": cut}, "It is there."])
    result = await Agent(model, tools=[look], protocol=dialect).run("Where?")
    assert (result.text, RAN, result.protocol) == ("It is there.", ["東京"], dialect.name)
    assert dialect.calls[0].open[0] in model.requests[0].messages[0].text  # the model is shown the form
    assert written(dialect, "look", at="東京") in model.requests[1].messages[2].text  # and its own call in it


async def test_it_is_read_where_another_protocol_asks() -> None:
    RAN.clear()
    model = Replay([f"Hm.\n{written(TAGS, 'look', at='x')}", "Done."])
    await Agent(model, tools=[look], dialect=TAGS, protocol="native").run("go")
    assert RAN == ["x"]
    assert [spec.name for spec in model.requests[0].tools] == ["look"]
    RAN.clear()
    model = Replay([f"Hm.\n{written(PARROT, 'look', at='y')}", "Done."])
    result = await Agent(model, tools=[look], dialect=PARROT, protocol="parrot").run("go")
    assert (RAN, result.protocol) == (["y"], "parrot")


NAMES = st.sampled_from(["look", "put_it", "a"])
TEXTS = st.text("aZ1 é東🙂\"'\\{}[]:,.", min_size=1, max_size=8).map(lambda text: f"x{text.strip()}")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([TAGS, PARROT, OWL, Dialect.tagged("%%", "##"), Dialect.tagged("«$ITEM", "»")]),
    st.lists(st.tuples(NAMES, st.dictionaries(NAMES, TEXTS, max_size=3)), min_size=1, max_size=3),
)
def test_what_is_written_in_own_tags_is_read_back(dialect: Dialect, calls: list[tuple[str, dict[str, str]]]) -> None:
    write = own_writer(dialect)
    assert write is not None
    text = write([ToolCall(str(n), name, arguments) for n, (name, arguments) in enumerate(calls)])
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {
            key: {"type": "string"} for _, arguments in calls for key in arguments}}}}
        for name in dict.fromkeys(name for name, _ in calls)
    ]  # fmt: skip
    reply = read(text, dialect, tools=tools)
    assert [(call.name, call.arguments) for call in reply.calls] == calls
    assert reply.content.strip() == ""


def test_names_of_the_house_cannot_be_taken() -> None:
    for name in ("hermes", "native", "auto", "qwen_xml", "json"):
        with pytest.raises(ConfigError, match="the name is taken"):
            Agent(Replay([]), dialect=PARROT.but(name=name))
    Agent(Replay([]), dialect=PARROT, protocol=PARROT)
    for wrong in (5, b"hermes", object()):
        with pytest.raises(ConfigError, match="a Dialect"):
            Agent(Replay([]), dialect=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="a Dialect"):
            Agent(Replay([]), protocol=wrong)  # type: ignore[arg-type]


def test_what_cannot_be_written_cannot_be_asked_for() -> None:
    Agent(Replay([]), dialect=CODE)
    with pytest.raises(ConfigError, match="does not say how a call is written; give it as dialect="):
        Agent(Replay([]), protocol=CODE)


async def test_a_run_goes_on_in_it_after_a_restart(tmp_path: Path) -> None:
    RAN.clear()
    place = f"sqlite:{tmp_path / 'runs.db'}"
    script: list[Any] = [written(TAGS, "put", at="x"), "Done."]
    async with Agent(Replay(script[:1]), tools=[put], protocol=TAGS, ledger=place) as agent:
        first = await agent.run("go")
    assert first.reason == "waiting"
    answers = {first.pending[0].id: True}
    async with Agent(Replay(script[1:]), tools=[put], ledger=place) as other:
        with pytest.raises(LedgerError, match="is unknown; if it is one of your own, give it to the agent"):
            await other.resume(first.run_id, answers)
    async with Agent(Replay(script[1:]), tools=[put], ledger=place, protocol=TAGS) as agent:
        result = await agent.resume(first.run_id, answers)
    assert (result.reason, RAN, result.protocol) == ("answered", ["x"], TAGS.name)
    async with Agent(Replay(["[[call]]"]), tools=[put], ledger=place, dialect=TAGS, protocol="native") as agent:
        await agent.run("go", run_id="read-only")
    async with Agent(Replay([]), tools=[put], ledger=place) as other:
        with pytest.raises(LedgerError, match=r"the dialect '.*' is unknown"):
            await other.resume("read-only")


def test_what_a_payload_can_be() -> None:
    assert written(PARROT, "look", at=1) == '<|parrot|>look<|with|>{"at": 1}<|end_parrot|>'
    assert written(OWL, "look", at=[1]) == "<hoots><hoot:look><arg at>[1]</arg></hoot></hoots>"
    keys = Dialect("keys", calls=(Calls(JsonItems(("tool",), ("with",)), open=("«",), close=("»",)),))
    assert json.loads(written(keys, "look", at=1)[1:-1]) == {"tool": "look", "with": {"at": 1}}


# --- on the command line ----------------------------------------------------------------------------------------------

FILE = """
from callgate.dialects import Calls, Dialect, JsonArgs

CALLS = Calls(JsonArgs(), open=("<|parrot|>",), close=("<|/|>",), header={"name": {":": ""}})
PARROT = Dialect("parrot", calls=(CALLS,))
"""
TEMPLATE = {"fields": {"tool_calls": {"open": "<<", "close": ">>", "repeats": True, "content": "json"}}}


def parsed(folder: Path, text: str, *words: str) -> Any:
    (folder / "answer.txt").write_text(text, "utf-8")
    done = CliRunner().invoke(cli, ["parse", *words, str(folder / "answer.txt")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_parse_reads_tags_and_files_of_ones_own(tmp_path: Path) -> None:
    item = '{"name": "look", "arguments": {"at": "x"}}'
    (tmp_path / "parrot.py").write_text(FILE, "utf-8")
    (tmp_path / "template.json").write_text(json.dumps(TEMPLATE), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"response_template": TEMPLATE}), "utf-8")
    for words, text in [
        (["--tags", "[[call]]", "[[/call]]"], f"Hi [[call]]{item}[[/call]]"),
        (["--dialect-file", str(tmp_path / "parrot.py")], 'Hi <|parrot|>look:{"at": "x"}<|/|>'),
        (["--dialect-file", f"{tmp_path / 'parrot.py'}:PARROT"], 'Hi <|parrot|>look:{"at": "x"}<|/|>'),
        (["--dialect-file", str(tmp_path / "template.json")], f"Hi <<{item}>>"),
        (["--dialect-file", str(tmp_path / "tokenizer_config.json")], f"Hi <<{item}>>"),
    ]:
        for cut in ([], ["--chunks", "1"]):
            reply = parsed(tmp_path, text, *words, *cut)
            assert [(call["name"], call["arguments"]) for call in reply["calls"]] == [("look", {"at": "x"})], words
            assert reply["content"].strip() == "Hi"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--tags", "", "x"], "both need at least one character"),
        (["--tags", "a", "b", "--dialect-file", "x.py"], "one or the other"),
        (["--tags", "a", "b", "--dialect", "hermes"], "leave --dialect, --model and --template out"),
        (["--dialect-file", "none.py"], "no such file"),
        (["--dialect-file", "none.json"], "No such file"),
        (["--dialect-file", "empty.py"], "one dialect is needed, and it has none; name one"),
        (["--dialect-file", "two.py"], "it has a, b; name one"),
        (["--dialect-file", "two.py:C"], "has no dialect 'C'"),
        (["--dialect-file", "bad.json"], "Expecting"),
        (["--dialect-file", "list.json"], "--dialect-file list.json: "),
        (["--dialect-file", "raises.py"], "line 1: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_dialect_file_is_one_line(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"empty.py": "", "bad.json": "{", "list.json": "[]", "raises.py": "1 / 0"}
    files["two.py"] = "from callgate.dialects import Dialect\nA, B = Dialect('a'), Dialect('b')"
    for name, text in files.items():
        Path(name).write_text(text, "utf-8")
    done = CliRunner().invoke(cli, ["parse", *words, "-"], input="x", catch_exceptions=True)
    error = done.exception
    assert isinstance(error, ConfigError) or done.exit_code == 2, done.output
    assert why in str(error if isinstance(error, ConfigError) else done.output)
    assert "\n" not in str(error).strip() if isinstance(error, ConfigError) else True


def test_a_run_is_asked_in_tags_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tags` asks in them; a file only reads, unless its dialect is named as the protocol, too."""
    from callgate.apps.cli._options import Given, agent_of

    (tmp_path / "parrot.py").write_text(FILE, "utf-8")
    monkeypatch.setenv("CALLGATE_LEDGER", "memory")
    place = str(tmp_path / "parrot.py")
    model = "http://127.0.0.1:9/v1#m"
    for options, protocol, dialect in [
        (Given(model, tags=("[[", "]]")), "[[…]]", "[[…]]"),
        (Given(model, tags=("[[", "]]"), protocol="native"), "native", "[[…]]"),
        (Given(model, dialect_file=place), "auto", "parrot"),
        (Given(model, dialect_file=place, protocol="parrot"), "parrot", "parrot"),
    ]:
        setup = agent_of(options, None)._setup
        assert (setup.protocol_name, setup.dialect_name) == (protocol, dialect)
    with pytest.raises(ConfigError, match="one or the other"):
        agent_of(Given(model, tags=("[[", "]]"), dialect="hermes"), None)
    assert dialect_of(None, None) is None


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["call", "line\n", "\n", " "]), max_size=7),
    st.sampled_from(["%%", "@@@", "\u00a7", "~call~"]),
)
def test_one_tag_at_both_ends_reads_as_two_tags_do(parts: list[str], tag: str) -> None:
    def message(start: str, end: str) -> str:
        numbered = enumerate(parts)
        return "".join(
            f'{start}{{"name": "look", "arguments": {{"n": {n}}}}}{end}' if part == "call" else part
            for n, part in numbered
        )

    tools = [{"name": "look", "parameters": {"type": "object"}}]
    two = read(message("<<", ">>"), Dialect.tagged("<<", ">>"), tools=tools)
    text, one = message(tag, tag), Dialect.tagged(tag, tag)
    whole = read(text, one, tools=tools)
    assert (whole.content, whole.calls, whole.incomplete) == (two.content, two.calls, two.incomplete)
    assert read(list(text), one, tools=tools) == whole
