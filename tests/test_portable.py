"""Systems without Unix's own modules: everything imports, and a run with a ledger on disk goes through.

A child process hides what Windows lacks. Windows itself and macOS were not tried: docs/faq.md says so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HIDE = """
import os, signal, sys
for name in ("fcntl", "termios", "pwd", "grp", "resource", "tty", "pty", "syslog", "readline"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGWINCH", "SIGALRM", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGQUIT"):
    delattr(signal, name)
for name in ("fork", "getuid", "geteuid", "fchmod", "getpgid", "killpg", "setsid", "sched_getaffinity", "uname"):
    if hasattr(os, name):
        delattr(os, name)
"""

IMPORT_ALL = """
import importlib, pkgutil
import callgate
names = [info.name for info in pkgutil.walk_packages(callgate.__path__, "callgate.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names) > 300)
"""

RUN = """
from callgate import Agent, Replay, tool

@tool(effect="write")
def put(text: str) -> str:
    "Put a text down."
    return text

model = Replay([{"calls": [{"name": "put", "arguments": {"text": "日本 🦆"}}]}, "done"])
with_ledger = Agent(model, tools=[put], ledger="sqlite:" + sys.argv[1] + "/runs.db")
result = with_ledger.run_sync("go")
print(result.reason, result.calls[0].result.status)
"""


def child(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HIDE + code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_imports_without_the_modules_of_unix() -> None:
    assert child(IMPORT_ALL) == "True"


def test_a_run_with_a_ledger_on_disk_goes_through_without_them(tmp_path: Path) -> None:
    assert child(RUN, str(tmp_path)) == "answered ok"


def test_a_file_ledger_is_read_again_without_them(tmp_path: Path) -> None:
    child(RUN, str(tmp_path))
    code = "from callgate.apps.cli import cli; cli(['runs', 'list', '--ledger', 'sqlite:' + sys.argv[1] + '/runs.db'])"
    assert "answered" in child(code, str(tmp_path))
