"""The first run of an agent imports its HTTP client in a thread: the loop hears a cancel meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, sys, threading
sys.path.insert(0, {tests!r})
from loopback import loopback, say, sse, stream
from callgate import Agent

on_loop = []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            on_loop.append(name.split(".")[0])

async def main():
    async with loopback(stream(sse(say("hi"), say(None, "stop")))) as server:
        async with Agent(f"http://127.0.0.1:{{server.port}}/v1#m") as agent:
            sys.meta_path.insert(0, Watch())
            result = await agent.run("go")
            assert result.text == "hi", result
            print(sorted(set(on_loop) - {{"callgate"}}))

asyncio.run(main())
"""


def test_the_first_run_imports_its_client_in_a_thread() -> None:
    code = SCRIPT.format(tests=str(Path(__file__).parent))
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert out.returncode == 0, out.stderr
    assert "aiohttp" not in out.stdout, out.stdout
    assert "ssl" not in out.stdout, out.stdout
