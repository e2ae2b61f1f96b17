"""Mistakes that people make: each ends in one line that says what is wrong and what to write instead."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mistakes import MISTAKES, PRE

TRY = """
try:
{code}
except BaseException as error:
    print(type(error).__name__ + ": " + str(error))
else:
    print("nothing was raised")
"""


def test_there_are_sixty() -> None:
    assert len(MISTAKES) >= 60


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each program prints; they share a process, whose start takes longer than all of them."""
    home = tmp_path_factory.mktemp("home")
    programs = {name: PRE + TRY.format(code=textwrap.indent(each.code, "    ")) for name, each in MISTAKES.items()}
    script = "import sys\nprograms = eval(sys.stdin.read())\nfor name, code in programs.items():\n"
    script += "    print('##', name)\n    exec(compile(code, name, 'exec'), {'__name__': 'mistake'})\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=repr(programs),
        env={"HOME": str(home), "PATH": "", "PYTHONWARNINGS": "ignore"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("## ")[1:]
    return {name: text.strip() for name, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_the_way_out(name: str, told: dict[str, str]) -> None:
    kind, words = MISTAKES[name].kind, MISTAKES[name].words
    assert told[name].startswith(f"{kind}: ")
    assert "\n" not in told[name]
    assert len(told[name]) <= 600
    assert [word for word in words if word not in told[name]] == []


def test_the_command_line_tells_a_mistake_in_one_line(tmp_path: Path) -> None:
    for words, tells in COMMANDS.items():
        done = subprocess.run(
            [sys.executable, "-m", "callgate", *words.split()],
            env={"HOME": str(tmp_path), "PATH": ""},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode != 0, words
        assert "Traceback" not in done.stderr, words
        lines = [line for line in done.stderr.strip().splitlines() if line not in PROGRESS and "·" not in line]
        assert len(lines) == 1, (words, lines)
        assert tells in lines[0], (words, lines)


PROGRESS = ("generating",)
"""What a run shows besides; its last line, with dots, counts."""
COMMANDS = {
    "ask -m qwen3 hello": "ollama:NAME",
    "ask -m openai:gpt-5 hello": "OPENAI_API_KEY",
    "ask --tools nowhere.py hello": "nowhere.py",
    "ask -m http://127.0.0.1:9/v1#m hello": "127.0.0.1:9",
    "runs show nope": "nope",
    "frobnicate": "frobnicate",
    "parse nowhere.txt": "nowhere.txt",
    "parse --dialect herms": "hermes",
}
