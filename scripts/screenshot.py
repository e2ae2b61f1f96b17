"""A picture of a real terminal: runs a command in tmux and writes what stands on the screen as an SVG.

    python scripts/screenshot.py docs/demo.svg "callgate demo"

One law: nothing is drawn by hand; the picture is the screen of the real program.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

SESSION = "callgate-screenshot"


def main() -> None:
    """Runs the command until it ends, or until the text given as third argument is on the screen."""
    target, command, *until = sys.argv[1:]
    columns, lines = 100, 72
    _tmux("new-session", "-d", "-s", SESSION, "-x", str(columns), "-y", str(lines), "sh")
    try:
        _tmux("send-keys", "-t", SESSION, "PS1='$ '; clear; " + command + "; echo END", "Enter")
        mark = until[0] if until else "\nEND"
        for _ in range(1200):
            time.sleep(0.05)
            if mark in _tmux("capture-pane", "-p", "-t", SESSION):
                break
        screen = _tmux("capture-pane", "-e", "-p", "-t", SESSION)
    finally:
        _tmux("kill-session", "-t", SESSION)
    rows = [
        row for row in screen.rstrip("\n").split("\n") if row.strip() not in {"END", "$"} and "; echo END" not in row
    ]
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text.from_ansi("\n".join([f"$ {command}", *rows]).rstrip()))
    svg = console.export_svg(title=command, theme=MONOKAI)
    # the picture must not fetch fonts from anywhere
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    Path(target).write_text("\n".join(line.rstrip() for line in svg.split("\n")) + "\n", "utf-8")


def _tmux(*words: str) -> str:
    return subprocess.run(["tmux", *words], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
