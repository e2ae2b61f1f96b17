"""Tools in processes of their own: found again, killed for good, and no script that starts itself for ever."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import process_tools
from callgate.errors import ToolError
from callgate.events import CallProgress
from callgate.executor import Executor
from callgate.keys import idempotency_key
from callgate.tools import Tool, Toolbox
from callgate.types import Principal, ToolCall, ToolResult

pytestmark = pytest.mark.anyio


def call(name: str, number: int = 1, **arguments: Any) -> ToolCall:
    return ToolCall(f"c{number}", name, arguments, index=number - 1)


async def run(*tools: Tool, calls: list[ToolCall], **options: Any) -> list[ToolResult]:
    given = {k: options.pop(k) for k in ("timeout", "grace") if k in options}
    executor = Executor(Toolbox(tools), **{"grace": 0.2, "timeout": 15, **given})
    return [result for result, _ in await executor.execute(calls, **options)]


async def test_a_tool_in_its_own_process_works_as_any_other() -> None:
    events: list[Any] = []
    results = await run(
        process_tools.identify,
        process_tools.count,
        process_tools.later,
        process_tools.refuse,
        process_tools.die,
        process_tools.photo,
        calls=[
            call("identify", 1, n=5),
            call("count", 2, n=3),
            call("later", 3, text="héllo"),
            call("refuse", 4, why="full"),
            call("die", 5, status=7),
            call("photo", 6),
        ],
        principal=Principal("u"),
        run_id="r",
        on_event=events.append,
        timeout=15,
    )
    assert [r.status for r in results] == ["ok", "ok", "ok", "failed", "failed", "ok"]
    assert results[0].value["pid"] != os.getpid()
    assert {k: results[0].value[k] for k in ("n", "principal", "key")} == {
        "n": 5,
        "principal": "u",
        "key": idempotency_key("r", "c1"),
    }
    assert (results[1].value, results[2].value) == (3, "héllo")
    assert "status 7" in results[4].content
    assert results[5].content == "a photo\n[image/png]"
    assert [part["type"] for part in results[5].parts] == ["image_url"]
    assert [e.value for e in events if isinstance(e, CallProgress)] == [0, 1, 2]


async def test_a_deadline_kills_the_process_and_everything_it_started(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    (result,) = await run(process_tools.spin, calls=[call("spin", 1, path=str(path))], timeout=3, grace=1)
    assert result.status == "unknown_outcome"
    for pid in path.read_text().split():
        for _ in range(100):
            if not _runs(int(pid)):
                break
            await asyncio.sleep(0.02)
        assert not _runs(int(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_tool_that_no_other_process_could_find_is_refused_at_once() -> None:
    def inner() -> None:
        """Stands inside a function."""

    with pytest.raises(ToolError, match="inner: process=True"):
        Executor(Toolbox([Tool.from_function(inner, process=True)]))


SCRIPT = """
import sys
from callgate import Agent, Replay, tool

@tool(effect="read", process=True)
def where(n: int) -> str:
    "Where it runs."
    import os
    return f"{n} {os.getpid()} {__name__}"

def main():
    calls = {"calls": [{"name": "where", "arguments": {"n": 7}}]}
    result = Agent(Replay([calls, "done"]), tools=[where], dialect="hermes").run_sync("go")
    print(result.calls[0].result.status, result.calls[0].result.content)

%s
"""


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "unguarded"])
async def test_a_tool_of_a_script_is_found_again_and_a_careless_script_does_not_start_itself_for_ever(
    tmp_path: Path, guard: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT % ('if __name__ == "__main__":\n    main()' if guard else "main()"))
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(child.communicate(), 15)
    words = out.decode().split()
    assert words[:2] == ["ok", "7"], (out, err)
    assert words[3] == "__callgate_child__"
    assert (b"belongs under" in err) == (not guard)
