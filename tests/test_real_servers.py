"""The suite for real servers: it runs on the engine's own one here, and says what it did not try."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import weights

SCRIPT = Path(__file__).parent.parent / "scripts" / "real_servers.py"


def run(*names: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("LLAMA_SERVER", "OLLAMA_HOST")}
    return subprocess.run(
        [sys.executable, SCRIPT, *names],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.skipif(weights.find() is None, reason="the embedded weights are not here: callgate model pull")
def test_what_was_not_tried_is_said_and_why(tmp_path: Path) -> None:
    found = run("llama-server", "ollama", PATH=str(tmp_path))
    assert found.stdout.splitlines() == [
        "llama-server: skipped: no llama-server in the path, and LLAMA_SERVER is not set",
        "ollama: skipped: no ollama in the path, and no Go to build it with",
    ]
    assert found.returncode == 0, found.stderr
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such instruction >&2\nexit 3\n")
    broken.chmod(0o755)
    assert "did not start: no such instruction" in run("llama-server", LLAMA_SERVER=str(broken)).stdout
    assert run("nobody").returncode == 2
