"""Tools in processes of their own: found again, killed for good, and no script that starts itself for ever."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import process_tools
from batches import execute
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
    return [result for result, _ in await execute(executor, calls, **options)]


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


@pytest.mark.parametrize("how", ["returns", "hangs", "raises", "twice"])
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has started")
async def test_what_a_tool_started_in_a_session_of_its_own_is_gone_as_well(how: str, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    (result,) = await run(
        process_tools.detach, calls=[call("detach", 1, path=str(path), how=how)], timeout=2 if how == "hangs" else 15
    )
    assert result.status == ("ok" if how in ("returns", "twice") else "unknown_outcome")
    pids = [int(pid) for pid in path.read_text().split()]
    assert pids
    for pid in pids:
        for _ in range(100):
            if not _runs(pid):
                break
            await asyncio.sleep(0.02)
        assert not _runs(pid)


async def test_nothing_that_a_tool_writes_is_taken_for_its_result() -> None:
    (result,) = await run(process_tools.forge, calls=[call("forge", 1, token="0" * 32)])
    assert (result.status, result.content) == ("ok", "honest")


async def test_standard_input_is_empty_and_the_environment_is_that_of_the_program() -> None:
    empty, environment = await run(
        process_tools.read_input, process_tools.environment, calls=[call("read_input"), call("environment", 2)]
    )
    assert (empty.status, empty.value) == ("ok", "")
    ours = {k: v for k, v in os.environ.items() if k.startswith(("PYTHON", "CALLGATE"))}
    assert {k: v for k, v in environment.value.items() if k.startswith(("PYTHON", "CALLGATE"))} == ours


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_an_exception_means_the_same_in_a_process_as_in_a_thread(effect: str) -> None:
    names = sorted(process_tools.ERRORS)
    calls = [call("fail", n, kind=name, grouped=n % 2 == 0) for n, name in enumerate(names, 1)]
    here = await run(Tool.from_function(process_tools.fail, effect=effect), calls=_but(calls, "SystemExit"))
    there = await run(Tool.from_function(process_tools.fail, effect=effect, process=True), calls=calls)
    statuses = {r.call_id: r.status for r in there}
    assert {r.call_id: r.status for r in here} == {r.call_id: statuses[r.call_id] for r in here}
    texts = {r.call_id: r.content for r in there}
    for result in here:
        assert texts[result.call_id].replace("no such key: ", "") == result.content.replace("no such key: ", "")


def _but(calls: list[ToolCall], name: str) -> list[ToolCall]:
    return [c for c in calls if c.arguments["kind"] != name]


async def test_a_subclass_of_upstream_error_is_tried_again() -> None:
    events: list[Any] = []
    tool = Tool.from_function(process_tools.fail, effect="read", process=True, retries=1)
    (result,) = await run(tool, calls=[call("fail", 1, kind="Flaky", grouped=False)], on_event=events.append)
    assert result.status == "upstream_error"
    assert [e.value["attempt"] for e in events if isinstance(e, CallProgress)] == [2]


async def test_a_result_that_is_too_large_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from callgate.executor._processes import MAX_LINE

    (result,) = await run(process_tools.large, calls=[call("large", 1, size=MAX_LINE + 10)])
    assert result.status == "failed"
    assert "too large to be passed on" in result.content


async def test_a_tool_of_raw_schema_and_those_of_a_class_work_in_a_process() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    desk = process_tools.Desk
    results = await run(
        Tool.from_schema("keywords", "", schema, process_tools.keywords, effect="read", process=True),
        Tool.from_function(desk.static, effect="read", process=True),
        Tool.from_function(desk.of_class, effect="read", process=True),
        calls=[call("keywords", 1, n=1, m=[2]), call("static", 2, n=1), call("of_class", 3, n=1)],
    )
    assert [r.value for r in results] == [{"n": 1, "m": [2]}, 2, "Desk 1"]


@pytest.mark.parametrize(
    "function", [process_tools.Desk().bound, process_tools.original, lambda n: n], ids=["bound", "replaced", "lambda"]
)
def test_what_another_process_would_not_find_is_refused_when_the_agent_is_made(function: Any) -> None:
    with pytest.raises(ToolError, match="process=True"):
        Executor(Toolbox([Tool.from_function(function, name="tool", process=True)]))


UNFINDABLE = {
    "missing": "import os\nif os.environ.get('GONE'): raise ImportError('no such thing')\n",
    "renamed": "import os\nif os.environ.get('GONE'): del pay\n",
    "exits": "import os\nif os.environ.get('GONE'): os._exit(3)\n",
}


@pytest.mark.parametrize("how", UNFINDABLE)
async def test_a_write_that_its_process_could_not_begin_is_not_started(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"unfindable_{how}"
    body = "def pay(n: int) -> int:\n    'Pay.'\n    return n\n"
    (tmp_path / f"{name}.py").write_text(body + UNFINDABLE[how])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("GONE", raising=False)
    module = importlib.import_module(name)
    tool = Tool.from_function(module.pay, effect="write", process=True)
    monkeypatch.setenv("GONE", "1")
    (result,) = await run(tool, calls=[call("pay", 1, n=1)])
    assert result.status == "not_started"


PACKAGE = """
from .other import VALUE
from callgate import Agent, Replay, tool

@tool(effect="write", process=True)
def pay(n: int) -> str:
    "Pay."
    return f"{VALUE} {n}"

if __name__ == "__main__":
    calls = {"calls": [{"name": "pay", "arguments": {"n": 7}}]}
    result = Agent(Replay([calls, "done"]), tools=[pay], dialect="hermes").run_sync("go")
    print(result.calls[0].result.status, result.calls[0].result.content)
"""


async def test_a_tool_of_python_dash_m_is_found_with_its_relative_imports(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "other.py").write_text("VALUE = 'value'")
    (tmp_path / "shop" / "main.py").write_text(PACKAGE)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shop.main", cwd=tmp_path, stdout=pipe, stderr=pipe
    )
    out, err = await asyncio.wait_for(child.communicate(), 15)
    assert out.decode().split() == ["ok", "value", "7"], (out, err)


async def test_a_tool_of_a_program_from_standard_input_is_refused(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-", stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(child.communicate((SCRIPT % "main()").encode()), 15)
    assert (out, b"came from standard input" in err) == (b"", True), (out, err)


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
