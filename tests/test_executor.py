"""The executor: one result for every call, whatever the tools do."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import os
import sys
import threading
import time
from typing import Annotated, Any

import pytest

from batches import execute
from callgate.errors import Denied, NoEffect, NotFound, UpstreamError
from callgate.events import CallProgress, CallStarted
from callgate.executor import Executor, Threads, plan
from callgate.keys import idempotency_key
from callgate.tools import Inject, Secret, Tool, Toolbox, ToolContext
from callgate.types import Principal, ToolCall, ToolResult, ToolSpec
from patience import busy

pytestmark = pytest.mark.anyio


def call(name: str, number: int = 1, **arguments: Any) -> ToolCall:
    return ToolCall(f"c{number}", name, arguments, index=number - 1)


def box(*functions: Any, effect: str = "read", **declared: Any) -> Toolbox:
    return Toolbox([f if isinstance(f, Tool) else Tool.from_function(f, effect=effect, **declared) for f in functions])


async def one(toolbox: Toolbox, wanted: ToolCall, **options: Any) -> ToolResult:
    given = {k: options.pop(k) for k in ("timeout", "grace", "max_result", "threads") if k in options}
    ((result, _),) = await execute(Executor(toolbox, **{"grace": 0.3, **given}), [wanted], **options)
    return result


# --- planning -----------------------------------------------------------------------------------------------------


def test_neighbouring_reads_share_a_batch_and_a_write_stands_alone() -> None:
    specs = {n: ToolSpec(n, effect="read" if n.startswith("r") else "write") for n in ("r1", "r2", "w")}
    calls = [call(n, i) for i, n in enumerate(["r1", "r2", "w", "w", "r1", "nobody", "r2", "r1"], 1)]
    assert [[c.name for c in batch] for batch in plan(calls, specs)] == [
        ["r1", "r2"],
        ["w"],
        ["w"],
        ["r1"],
        ["nobody"],
        ["r2", "r1"],
    ]


def test_a_tool_that_comes_after_another_begins_a_new_batch() -> None:
    specs = {
        "login": ToolSpec("login", effect="read"),
        "list": ToolSpec("list", effect="read", after=("login",)),
        "clock": ToolSpec("clock", effect="read"),
    }
    calls = [call("clock", 1), call("login", 2), call("list", 3), call("clock", 4)]
    assert [[c.name for c in b] for b in plan(calls, specs)] == [["clock", "login"], ["list", "clock"]]


# --- what runs when -----------------------------------------------------------------------------------------------


async def test_results_come_in_the_order_of_the_calls_and_reads_overlap() -> None:
    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    begun = time.monotonic()
    timed = await execute(Executor(box(nap)), [call("nap", i, seconds=s) for i, s in enumerate((0.2, 0.1, 0.15), 1)])
    assert time.monotonic() - begun < 0.4 * busy()
    assert [(r.call_id, r.value) for r, _ in timed] == [("c1", 0.2), ("c2", 0.1), ("c3", 0.15)]


async def test_a_write_overlaps_nothing() -> None:
    log: list[str] = []

    def tool_named(name: str) -> Any:
        async def work() -> None:
            log.append(f"+{name}")
            await asyncio.sleep(0.02)
            log.append(f"-{name}")

        work.__name__ = name
        return work

    toolbox = box(tool_named("read")) + box(tool_named("write"), effect="write")
    await execute(Executor(toolbox), [call("read", 1), call("write", 2), call("write", 3), call("read", 4)])
    assert log == ["+read", "-read", "+write", "-write", "+write", "-write", "+read", "-read"]


async def test_reads_overlap_only_up_to_the_limit() -> None:
    now, most = 0, 0

    async def read() -> None:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.01)
        now -= 1

    await execute(Executor(box(read), max_parallel=3), [call("read", i) for i in range(1, 10)])
    assert most == 3


async def test_sync_tools_never_block_the_loop_and_see_the_context_of_the_run() -> None:  # B161
    variable = contextvars.ContextVar("variable", default="")
    gaps: list[float] = []

    def nap() -> str:
        time.sleep(0.3)
        return variable.get()

    async def heart() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.02)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    beating = asyncio.create_task(heart())
    variable.set("of the run")
    begun = time.monotonic()
    timed = await execute(Executor(box(nap)), [call("nap", i) for i in (1, 2, 3)])
    beating.cancel()
    assert time.monotonic() - begun < 0.8 * busy()
    assert [r.value for r, _ in timed] == ["of the run"] * 3
    assert max(gaps) < 0.15 * busy()


async def test_two_calls_of_one_tool_each_get_their_own_result() -> None:  # B159
    def find(q: str) -> str:
        return f"hit:{q}"

    timed = await execute(Executor(box(find)), [call("find", 1, q="X"), call("find", 2, q="Y")])
    assert [(r.call_id, r.content) for r, _ in timed] == [("c1", "hit:X"), ("c2", "hit:Y")]


async def test_the_tool_gets_its_context() -> None:
    seen: list[Any] = []

    def who(principal: Inject[Principal], context: ToolContext) -> None:
        seen.append((principal.id, context.run_id, context.call_id, context.idempotency_key, context.cancelled()))

    await one(box(who), call("who"), run_id="r", principal=Principal("u"))
    assert seen == [("u", "r", "c1", idempotency_key("r", "c1"), False)]


# --- how calls end ------------------------------------------------------------------------------------------------


class Odd(BaseException):
    """No Exception, and no cancellation."""


@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (NoEffect("full"), "failed", "failed"),
        (NotFound("no 7"), "not_found", "not_found"),
        (Denied("not yours"), "denied", "denied"),
        (UpstreamError("502"), "upstream_error", "unknown_outcome"),
        (ConnectionResetError("gone"), "upstream_error", "unknown_outcome"),
        (TimeoutError("slow"), "timeout", "unknown_outcome"),
        (ValueError("no such bay"), "failed", "unknown_outcome"),
        (Odd("odd"), "failed", "unknown_outcome"),
        (ExceptionGroup("group", [NoEffect("inside")]), "failed", "failed"),
        (StopIteration(), "failed", "unknown_outcome"),
        (asyncio.CancelledError(), "failed", "unknown_outcome"),
        (RecursionError("deep"), "failed", "unknown_outcome"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_exception_is_a_result(error: BaseException, read: str, write: str, kind: str) -> None:
    def work() -> None:
        raise error

    async def work_async() -> None:
        raise error

    if kind == "async" and isinstance(error, StopIteration):
        return  # Python turns it into a RuntimeError, which is another row
    function = work if kind == "sync" else work_async
    for effect, status in (("read", read), ("write", write)):
        result = await one(box(function, effect=effect), call(function.__name__))
        assert (result.status, result.call_id) == (status, "c1")


async def test_a_failing_tool_costs_its_siblings_nothing() -> None:  # B169
    async def good() -> str:
        await asyncio.sleep(0.05)
        return "G"

    def bad() -> None:
        raise ValueError("no such bay")

    def base() -> None:
        raise Odd("odd")

    timed = await execute(Executor(box(good, bad, base)), [call("good", 1), call("bad", 2), call("base", 3)])
    results = [r for r, _ in timed]
    assert [r.status for r in results] == ["ok", "failed", "failed"]
    assert results[0].content == "G"
    assert "no such bay" in results[1].content
    assert all("Traceback" not in r.content and ".py" not in r.content for r in results)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_the_end_of_the_program_is_passed_on_when_every_call_has_its_result(kind: str, error: Any) -> None:
    seen: list[tuple[str, str]] = []

    def stop() -> None:
        raise error

    async def stop_async() -> None:
        raise error

    def later() -> None:
        seen.append(("later", "ran"))

    async def after(call: ToolCall, result: ToolResult, seconds: float | None) -> None:
        seen.append((call.name, result.status))

    function = stop if kind == "sync" else stop_async
    with pytest.raises(error):
        await execute(
            Executor(box(function, later, effect="write")),
            [call(function.__name__, 1), call("later", 2)],
            after=after,
        )
    assert seen == [(function.__name__, "unknown_outcome"), ("later", "not_started")]


async def test_neither_declared_secrets_nor_tracebacks_reach_the_model() -> None:
    def bad(word: Annotated[str, Secret]) -> None:
        raise RuntimeError(
            f"login with {word} ({base64.b64encode(word.encode()).decode()}), token_count=17 and sk-learn-x failed\n"
            'Traceback (most recent call last):\n  File "/srv/app/db.py", line 3, in connect'
        )

    result = await one(box(bad), call("bad", word="swordfish"))
    assert result.content == (
        "bad failed: RuntimeError: login with [masked] ([masked]), token_count=17 and sk-learn-x failed"
    )


async def test_a_result_goes_to_the_model_as_it_is_but_for_declared_secrets() -> None:
    """Also those of an earlier call; the caller's value and what the tool works with are never altered (S1)."""
    got: list[str] = []

    def login(word: Annotated[str, Secret]) -> dict[str, str]:
        got.append(word)
        return {"echo": word, "code": "password: str = 'x1y2z3w4'"}

    def status() -> str:
        return "user bob, word swordfish, api_key: string"

    calls = [call("login", 1, word="swordfish"), call("status", 2)]
    (first, _), (second, _) = await execute(Executor(box(login, status)), calls)
    assert got == ["swordfish"]
    assert first.content == '{"echo": "[masked]", "code": "password: str = \'x1y2z3w4\'"}'
    assert first.value == {"echo": "swordfish", "code": "password: str = 'x1y2z3w4'"}
    assert second.content == "user bob, word [masked], api_key: string"


async def test_an_unknown_write_never_invites_to_repeat_it() -> None:  # B175
    def order() -> None:
        raise TimeoutError("read timed out, please try again or retry later")

    result = await one(box(order, effect="write"), call("order"))
    assert result.status == "unknown_outcome"
    assert "may have taken effect" in result.content
    assert not any(word in result.content.lower() for word in ("try", "again", "repeat"))


async def test_results_are_cut_for_the_model_and_kept_whole() -> None:
    def rows() -> list[int]:
        return list(range(5000))

    def complain() -> None:
        raise ValueError("x" * 100_000)

    cut = await one(box(rows), call("rows"), max_result=500)
    assert len(cut.content) <= 500
    assert cut.value == list(range(5000))
    assert cut.size > 20_000
    assert len((await one(box(complain), call("complain"), max_result=500)).content) <= 500


async def test_a_large_value_of_a_coroutine_is_rendered_beside_the_loop() -> None:
    """As one of a thread: what is counted is in which thread it was looked at."""
    seen: list[tuple[str, bool]] = []

    class Value(list[Any]):
        def __init__(self, name: str, items: list[Any]) -> None:
            super().__init__(items)
            self.name = name

        def __iter__(self) -> Any:
            seen.append((self.name, threading.current_thread() is threading.main_thread()))
            return super().__iter__()

    async def rows(n: int) -> Any:
        return {"rows": Value("rows", list(range(n)))}

    async def text(n: int) -> Any:
        return ["x" * n, Value("rows", [])]

    large = await one(box(rows), call("rows", n=5_000))
    assert len(large.value["rows"]) == 5_000
    assert (await one(box(text), call("text", n=200_000))).size > 200_000
    assert {at for _, at in seen} == {False}
    seen.clear()
    assert (await one(box(rows), call("rows", n=3))).value == {"rows": [0, 1, 2]}
    assert {at for _, at in seen} == {True}, "a small one is not worth a thread"


@pytest.mark.parametrize("empty", ["", None, [], {}])
async def test_an_empty_result_is_sent_as_a_text(empty: Any) -> None:  # R080
    def nothing() -> Any:
        return empty

    async def later() -> Any:
        return empty

    for function in (nothing, later):
        result = await one(box(function), call(function.__name__))
        assert (result.status, bool(result.content)) == ("ok", True)
        assert result.value == empty
        assert (result.content == "(no output)") == (empty == "")


async def test_arguments_that_the_types_refuse_start_nothing() -> None:
    ran: list[int] = []

    def add(n: int) -> None:
        ran.append(n)

    result = await one(box(add, effect="write"), call("add", n="many"))
    assert (result.status, ran) == ("invalid_arguments", [])


async def test_a_call_that_names_no_tool_is_not_started_and_the_text_masked_decides_nothing() -> None:
    ran: list[str] = []

    def login(password: str) -> None:
        ran.append(password)

    timed = await execute(Executor(box(login)), [call("nobody", 1), call("login", 2, password="[masked]")])
    assert [r.status for r, _ in timed] == ["unknown_tool", "ok"]
    assert ran == ["[masked]"]


# --- progress and retries -----------------------------------------------------------------------------------------


async def test_generators_stream_progress_and_end_with_their_result() -> None:
    def steps() -> Any:
        yield "a"
        yield "b"
        return "result"

    async def steps_async() -> Any:
        yield 1
        yield 2

    for function, value, progress in ((steps, "result", ["a", "b"]), (steps_async, 2, [1, 2])):
        events: list[Any] = []
        result = await one(box(function), call(function.__name__), on_event=events.append)
        assert result.value == value
        assert events[0] == CallStarted("c1", function.__name__)
        assert events[1:] == [CallProgress("c1", p) for p in progress]


async def test_a_tool_reports_progress_from_its_thread() -> None:
    def work(context: ToolContext) -> None:
        context.report({"done": 1})

    events: list[Any] = []
    await one(box(work), call("work"), on_event=events.append)
    assert events == [CallStarted("c1", "work"), CallProgress("c1", {"done": 1})]


@pytest.mark.parametrize(
    ("effect", "retries", "error", "attempts"),
    [
        ("read", 2, UpstreamError("503"), 3),
        ("read", 0, UpstreamError("503"), 1),
        ("read", 2, ValueError("no"), 1),
        ("write", 2, UpstreamError("503"), 1),
    ],
)
async def test_only_reads_are_tried_again_and_only_for_a_failing_service(
    effect: str, retries: int, error: Exception, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.executor._batch.RETRY_PAUSE", 0.001)
    made = 0

    def fetch() -> None:
        nonlocal made
        made += 1
        raise error

    await one(box(fetch, effect=effect, retries=retries), call("fetch"))
    assert made == attempts


async def test_a_retry_that_succeeds_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.executor._batch.RETRY_PAUSE", 0.001)
    answers = iter([UpstreamError("503"), "here"])

    def fetch() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    events: list[Any] = []
    assert (await one(box(fetch, retries=1), call("fetch"), on_event=events.append)).content == "here"
    assert events[1] == CallProgress("c1", {"attempt": 2, "after": "503"})


async def test_hanging_threads_are_counted_and_above_the_cap_nothing_starts() -> None:
    threads = Threads(max_threads=4, max_abandoned=2)
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang() -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()

    executor = Executor(box(hang), timeout=0.05, threads=threads)
    timed = await execute(executor, [call("hang", 1), call("hang", 2)])
    assert [r.status for r, _ in timed] == ["timeout", "timeout"]
    assert executor.abandoned == 2
    ((refused, _),) = await execute(executor, [call("hang", 3)])
    assert refused.status == "not_started"
    release.set()
    for _ in range(100):
        await asyncio.sleep(0.01)
        if not executor.abandoned:
            break
    assert executor.abandoned == 0
    ((fine, _),) = await execute(executor, [call("hang", 4)])
    assert fine.status == "ok"


async def test_a_forked_process_has_threads_of_its_own() -> None:
    """What a server does that forks its workers: the idle threads stayed with the parent."""
    code = (
        "import asyncio, os, time\n"
        "from batches import execute\n"
        "from callgate.executor import Executor\n"
        "from callgate.tools import Tool, Toolbox\n"
        "from callgate.types import ToolCall\n"
        "box = Toolbox([Tool.from_function(lambda: 'ran', name='look', effect='read')])\n"
        "def run():\n"
        "    ((result, _),) = asyncio.run(execute(Executor(box, timeout=3), [ToolCall('c1', 'look', {})]))\n"
        "    return result.status\n"
        "assert run() == 'ok'\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if run() == 'ok' else 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    here = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    child = await asyncio.create_subprocess_exec(sys.executable, "-W", "ignore", "-c", code, env=here)
    assert await asyncio.wait_for(child.wait(), 15) == 0
