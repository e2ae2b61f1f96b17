"""Builds the wheel, installs it into an empty environment with nothing but its own requirements, and tries it.

One law: it tests what users get, not this tree.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

TRY = """
import callgate, pathlib, sys
from callgate import Agent, Replay, read, tool

assert pathlib.Path(callgate.__file__).is_relative_to(sys.prefix), callgate.__file__
assert (pathlib.Path(callgate.__file__).parent / "py.typed").exists()

@tool(effect="read")
def add(a: int, b: int) -> int:
    "The sum of two numbers."
    return a + b

model = Replay([{"calls": [{"name": "add", "arguments": {"a": 2, "b": "3"}}]}, "It is 5."])
result = Agent(model, tools=[add]).run_sync("2 + 3?")
assert (result.text, result.reason) == ("It is 5.", "answered"), result
assert result.calls[0].result.status == "ok" and result.calls[0].result.value == 5, result.calls
text = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
assert read(text, dialect="hermes", tools=[add]).calls[0].arguments == {"a": 1, "b": 2}

from callgate.apps.demo import find_parcel, search_docs
assert search_docs(query="cancel a run")[0]["page"], "the documentation is inside"
assert find_parcel(number="P-1001")["status"], "the demo data are inside"
print("wheel: a run through Replay, a read, the documentation, the demo data: all good")
"""


def main() -> None:
    """Raises CalledProcessError or AssertionError where the wheel is not good."""
    with tempfile.TemporaryDirectory(prefix="callgate-wheel-") as folder:
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(HERE), quiet=True)
        (wheel,) = Path(folder).glob("callgate-*.whl")
        venv.create(Path(folder) / "venv", with_pip=True)
        python = str(Path(folder) / "venv" / "bin" / "python")
        pinned = ["--constraint", str(HERE / "constraints.txt")]
        _run(python, "-m", "pip", "install", "-q", *pinned, str(wheel), cwd=folder)
        _run(python, "-W", "error", "-c", TRY, cwd=folder)
        _run(python, "-m", "callgate", "--version", cwd=folder)
        for command in ("ask", "chat", "demo", "model", "parse", "tools"):
            _run(python, "-m", "callgate", command, "--help", cwd=folder, quiet=True)
        _refused(python, folder)
        print(f"wheel: {wheel.name}, {wheel.stat().st_size // 1024} KiB")


def _refused(python: str, folder: str) -> None:
    """Without the extra and the weights `ask` is one clear line and a status that is not 0."""
    env = {**os.environ, "XDG_CACHE_HOME": folder, "XDG_STATE_HOME": folder}
    command = [python, "-m", "callgate", "ask", "hello"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert "callgate model pull" in done.stderr or "callgate[local]" in done.stderr, done.stderr


def _run(*command: str, cwd: str | None = None, quiet: bool = False) -> None:
    subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.DEVNULL if quiet else None)


if __name__ == "__main__":
    main()
