"""The command line at a real pseudo-terminal: live states, questions, several turns, and Ctrl-C as the keyboard sends
it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callgate import weights
from command import TOOLS, Person, answering, calling, serving
from loopback import chunk, head, say, sse
from patience import busy

if sys.platform == "win32":
    pytest.skip("pseudo-terminals", allow_module_level=True)

CTRL_C, CTRL_D = "\x03", "\x04"
HANGING = [head(), chunk(sse(say("Once upon a time"), done=False)), "hang"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A new user's home with a file of tools."""
    (tmp_path / "mine.py").write_text(TOOLS, "utf-8")
    return tmp_path


def test_ask_shows_its_states_and_leaves_calls_results_and_the_answer(home: Path) -> None:
    slow = answering("It ", "is ", "**5**.", delay=0.1)
    with (
        serving(calling("add", a=2, b=3), slow) as server,
        Person(home, "ask", "-m", f"{server.url}#m", "-t", "mine.py", "2+3?") as person,
    ):
        person.waits_for(r"generating · 0\.\d s")
        person.waits_for(r'→ add \{"a": 2, "b": 3\} · ')
        person.waits_for(r"✓ got result 5 · ")
        person.waits_for(r"It is 5\.\n|It is 5\.\r")  # the Markdown is drawn when its block is finished
        person.waits_for(r"✓ answered in .* · 2 turns · 1 call")
        assert person.leaves() == 0


@pytest.mark.parametrize(("key", "outcome"), [("y", "got result paid 7"), ("n", "denied")])
def test_a_call_to_confirm_is_asked_at_the_terminal(home: Path, key: str, outcome: str) -> None:
    with (
        serving(calling("pay", amount=7), answering("Done.")) as server,
        Person(home, "ask", "-m", f"{server.url}#m", "-t", "mine.py", "Pay 7") as person,
    ):
        person.waits_for(r'\? pay \{"amount": 7\}')
        person.waits_for(r"run it\? ")
        person.types(f"perhaps\n{key}\n")  # what is no answer is asked again
        person.waits_for(outcome)
        assert person.leaves() == 0


def screen(person: Person) -> list[str]:
    """The finished lines that stand on the screen, without colours and without what was drawn over."""
    plain = re.sub(r"\x1b\[[0-9;?]*m", "", person.seen)
    return [line.rsplit("\r\x1b[2K", 1)[-1].strip("\r\x03") for line in plain.split("\n")]


def test_the_question_comes_last_and_once(home: Path) -> None:
    """Call, question with tool, arguments, reason and rule, what was answered, result: each once, in this order."""
    with (
        serving(calling("pay", amount=7), answering("Done.")) as server,
        Person(home, "ask", "-m", f"{server.url}#m", "-t", "mine.py", "Pay 7") as person,
    ):
        person.waits_for(r"in this run: ")
        person.types("y\n")
        assert person.leaves() == 0
        lines = screen(person)
    assert [re.sub(r" · .*", "", line) for line in lines if line] == [
        '→ pay {"amount": 7}',
        '? pay {"amount": 7}',
        "  this tool needs your approval (approval)",
        "  run it? [y]es, [n]o, [a]lways pay in this run: y",
        "✓ you allowed it",
        "✓ got result paid 7",
        "Done.",
        lines[-2].split(" · ")[0],
    ]


def test_ctrl_c_at_a_question_leaves_no_litter(home: Path) -> None:
    with (
        serving(calling("pay", amount=7)) as server,
        Person(home, "ask", "-m", f"{server.url}#m", "-t", "mine.py", "Pay 7") as person,
    ):
        person.waits_for(r"in this run: ")
        person.types(CTRL_C)
        assert person.leaves() == 130
        lines = screen(person)
    assert lines[3:5] == [
        "  run it? [y]es, [n]o, [a]lways pay in this run: ",
        "✗ not started: pay was not started: the run was cancelled.",
    ]
    assert "^C" not in person.seen


@pytest.mark.parametrize("after", [0.02, 0.06, 0.1, 0.2, 0.35, 0.6])
def test_ctrl_c_in_the_first_second_is_no_traceback(home: Path, after: float) -> None:
    with serving(HANGING) as server, Person(home, "ask", "-m", f"{server.url}#m", "Tell me") as person:
        time.sleep(after)
        person.types(CTRL_C)
        try:
            person.process.wait(4)
        except subprocess.TimeoutExpired:  # the process had no terminal yet: a person presses the keys again
            person.types(CTRL_C)
        status = person.leaves()
    if status == -signal.SIGINT or ("KeyboardInterrupt" in person.seen and "callgate/apps" not in person.seen):
        pytest.skip("Python itself was not up yet")
    assert status == 130
    assert "Traceback" not in person.seen
    assert "Aborted" not in person.seen


def test_ctrl_c_at_a_question_cancels_the_run_and_leaves_the_keyboard_to_the_chat(home: Path) -> None:
    with (
        serving(calling("pay", amount=7), answering("Hello.")) as server,
        Person(home, "chat", "-m", f"{server.url}#m", "-t", "mine.py") as person,
    ):
        person.waits_for("›")
        person.types("Pay 7\r")
        person.waits_for(r"run it\? ")
        person.types(CTRL_C + CTRL_C)
        person.waits_for("cancelled in")
        person.waits_for("›")
        person.types("Hi\r")
        person.waits_for(r"Hello\.")
        person.waits_for("›")
        person.types(CTRL_D)
        assert person.leaves() == 0


def test_ctrl_c_cancels_an_ask_with_its_end_told_and_recorded(home: Path) -> None:
    with serving(HANGING) as server, Person(home, "ask", "-m", f"{server.url}#m", "Tell me") as person:
        person.waits_for("Once upon a time")
        person.types(CTRL_C)
        person.waits_for(r"✗ cancelled in ")
        assert person.leaves() == 130
        assert server.dropped  # the request was given up, not left to run
    with Person(home, "runs", "list") as person:
        person.waits_for(r"cancelled +Tell me")
        assert person.leaves() == 0


def test_a_chat_keeps_its_history_and_ctrl_c_stops_the_answer_and_not_the_chat(home: Path) -> None:
    with (
        serving(answering("Hello Ann."), HANGING, answering("You are Ann.")) as server,
        Person(home, "chat", "-m", f"{server.url}#m", "-t", "mine.py") as person,
    ):
        person.waits_for("callgate chat with m")
        person.waits_for("›")
        person.types("I am Ann\r")
        person.waits_for(r"Hello Ann\.")
        person.waits_for("answered in")
        person.waits_for("›")
        person.types("Tell me a story\r")
        person.waits_for("Once upon a time")
        person.types(CTRL_C)
        person.waits_for("cancelled in")
        person.waits_for("›")
        person.types("Who am I?\r")
        person.waits_for(r"You are Ann\.")
        person.waits_for("›")
        person.types("/tools\r")
        person.waits_for(r"add: The sum of two numbers\.")
        person.waits_for("›")
        person.types("/new\r")
        person.waits_for("›")
        person.types("/what\r")
        person.waits_for("/what: no such command")
        person.waits_for("›")
        person.types("Again\r")
        person.waits_for(r"You are Ann\.")
        person.waits_for("›")
        person.types(CTRL_D)
        assert person.leaves() == 0
        asked = [[(m["role"], m["content"]) for m in request.json["messages"]] for request in server.asked]
    assert asked[1] == [("user", "I am Ann"), ("assistant", "Hello Ann."), ("user", "Tell me a story")]
    assert asked[2][:2] == [("user", "I am Ann"), ("assistant", "Hello Ann.")]
    assert asked[2][-1] == ("user", "Who am I?")
    assert asked[3] == [("user", "Again")]  # after /new


def test_ctrl_c_at_the_prompt_leaves_the_chat_alone(home: Path) -> None:
    with serving(answering("Hello.")) as server, Person(home, "chat", "-m", f"{server.url}#m") as person:
        person.waits_for("›")
        person.types("half a qu" + CTRL_C)
        person.waits_for("Ctrl-D or /exit leaves")
        person.waits_for("›")
        person.types("Hi\r")
        person.waits_for(r"Hello\.")
        person.waits_for("›")
        person.types("/exit\r")
        assert person.leaves() == 0
        assert server.asked[0].json["messages"] == [{"role": "user", "content": "Hi"}]


def test_ctrl_c_while_a_tool_runs_stops_it_and_the_chat_goes_on(home: Path) -> None:
    (home / "slow.py").write_text(
        "import time\nfrom callgate import ToolContext, tool\n\n@tool(effect='read')\n"
        "def nap(context: ToolContext) -> str:\n    'Sleeps.'\n"
        "    while not context.cancelled():\n        time.sleep(0.02)\n    return 'woken'\n",
        "utf-8",
    )
    with (
        serving(calling("nap"), answering("Good morning.")) as server,
        Person(home, "chat", "-m", f"{server.url}#m", "-t", "slow.py") as person,
    ):
        person.waits_for("›")
        person.types("Sleep\r")
        person.waits_for("calling nap")
        began = time.monotonic()
        person.types(CTRL_C)
        person.waits_for("cancelled in")
        assert time.monotonic() - began < 5 * busy()
        person.waits_for("›")
        person.types("Hello\r")
        person.waits_for(r"Good morning\.")
        person.waits_for("›")
        person.types(CTRL_D)
        assert person.leaves() == 0
        roles = [m["role"] for m in server.asked[1].json["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]  # the call has its result: a valid history


def test_a_dumb_terminal_gets_plain_lines(home: Path) -> None:
    with (
        serving(answering("Hello.")) as server,
        Person(home, "ask", "-m", f"{server.url}#m", "Hi", TERM="dumb") as person,
    ):
        person.waits_for("generating")
        person.waits_for(r"Hello\.")
        assert person.leaves() == 0
    assert "\x1b[" not in person.seen


@pytest.mark.model
@pytest.mark.timeout(90)  # a real model, on one core of a machine that may be busy
@pytest.mark.skipif(weights.find() is None, reason="the weights are not here: callgate model pull")
def test_the_demo_runs_the_closed_loop_on_the_real_model(home: Path) -> None:
    """Validity, never the model's choice: it answers, and every call that was made has one result."""
    cache = str(weights.cached().parents[2])
    with Person(home, "demo", "What time is it in Tokyo?", XDG_CACHE_HOME=cache, patience=80) as person:
        person.waits_for(r"\[1/1\] What time is it in Tokyo\?")
        person.waits_for(r"generating · ")
        person.waits_for(r"[✓✗] (answered|turn limit|repetition) in ")
        person.waits_for(r"\d of 1 answered, \d+ calls?, \d+ with a result")
        person.leaves()
