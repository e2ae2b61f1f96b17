"""The agent: a model, tools, rules and a ledger, ready to carry out runs.

Law: a started run never raises, except on cancellation; its result says how it ended and why.
(tests/test_agent.py::test_a_started_run_never_raises)
Law: runs keep to themselves. Nothing of one is kept for another but the rates of calls, and which protocol the server
refused. (tests/test_agent_refusals.py::test_only_a_refusal_of_the_server_is_remembered)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, Unpack, overload

from callgate import ledger as ledgers
from callgate import policy as gate
from callgate import providers
from callgate.agent._approver import Approve
from callgate.agent._asgi import AgentApp, Prepare
from callgate.agent._checks import Check, Checks, OnResult
from callgate.agent._child import SCHEMA, Child
from callgate.agent._dialects import known_dialect
from callgate.agent._form import Form
from callgate.agent._instructions import checked_instructions
from callgate.agent._request import (
    AgentOptions,
    HistoryProcessor,
    Models,
    OnEvent,
    Overrides,
    Prompt,
    ResumeOptions,
    ResumeRequest,
    RunOptions,
    RunRequest,
    checked_approve,
    opened,
)
from callgate.agent._result import RunResult
from callgate.agent._runner import Runner
from callgate.agent._setup import Policy, Setup, TooMany, checked_names, checked_options
from callgate.agent._stream import Stream
from callgate.agent._sync import SyncStream, in_own_loop, refuse_in_a_loop
from callgate.errors import ConfigError
from callgate.ledger import Ledger
from callgate.limits import DEFAULTS, Limits, limits_of
from callgate.providers import Provider
from callgate.run import Pending
from callgate.tools import Tool, Toolbox, ToolLike, as_toolbox
from callgate.types import Message, Principal

if TYPE_CHECKING:
    # PEP 696: a plain `Agent` has no dependencies and an output of any type.
    from typing_extensions import TypeVar as DefaultVar

    from callgate.dialects import Dialect
    from callgate.policy import Rule

    Deps = DefaultVar("Deps", default=None)
    Out = DefaultVar("Out", default=Any)
else:
    Deps = TypeVar("Deps")
    Out = TypeVar("Out")
T = TypeVar("T")

__all__ = [
    "Agent",
    "AgentApp",
    "Approve",
    "Overrides",
    "Pending",
    "Prepare",
    "ResumeOptions",
    "RunOptions",
    "RunResult",
    "Stream",
    "SyncStream",
]

OutputType: TypeAlias = "type[T] | Callable[..., T]"
"""A type, or a function whose result is the output. A JSON Schema and a union are taken, too; their type is `Any`."""
Answers: TypeAlias = "Mapping[str, object] | None"
"""Call id -> True, or a `callgate.policy.Answer`; anything else is a no."""


class Agent(Generic[Deps, Out]):
    """Runs a model with tools.

    `model` is "local", "ollama:NAME", "openai:NAME", "http://host/v1#NAME" or a provider, or a list of these: the run
    goes on with the next one when one fails before anything of its answer came. `tools` are functions,
    `Tool`s, toolboxes or JSON descriptions. `instructions` are a text, a function of the run's `ToolContext` that
    gives one, or several of these. `output` is the type of every final answer, `deps_type` that of `run(…,
    deps=…)`. Rules of `policy` come on top of those that are always there. `ledger` is "memory", "sqlite:PATH" or
    "postgresql://…"; None keeps the journal in memory. `dialect` is how the model writes calls in text, `protocol`
    how it is asked for them: names, or a `callgate.dialects.Dialect` of your own. `approve(call)` answers questions
    about calls; without it a run that has to ask ends as `waiting`. `tool_choice` ("required", "none", a tool's
    name) holds for the first turn; `parallel=False` allows one call in an answer; `too_many="refuse"` ends a run
    whose model asks for too many reads at once, instead of running the first ones. `on_event(event)` sees the
    events of all runs. `check_prompt(text)` and `check_answer(text)` look at prompts and final answers before they
    count (`callgate.checks`), `on_result(call, result)` at what tools returned. `limits` are those of
    `callgate.limits`; each is a keyword as well: `max_turns=6, tool_timeout=30, run_timeout=120`.
    Raises ConfigError for whatever cannot be.
    """

    @overload
    def __init__(
        self,
        model: Models,
        tools: Iterable[ToolLike] | ToolLike | None = (),
        *,
        output: None = None,
        **options: Unpack[AgentOptions[Deps]],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Models,
        tools: Iterable[ToolLike] | ToolLike | None = (),
        *,
        output: OutputType[Out],
        **options: Unpack[AgentOptions[Deps]],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Models,
        tools: Iterable[ToolLike] | ToolLike | None = (),
        *,
        output: object,
        **options: Unpack[AgentOptions[Deps]],
    ) -> None: ...
    def __init__(
        self,
        model: Models,
        tools: Iterable[ToolLike] | ToolLike | None = (),
        *,
        output: object = None,
        deps_type: object = None,
        instructions: Any = None,
        options: Mapping[str, object] | None = None,
        policy: Policy = (),
        ledger: str | Ledger | None = None,
        approve: Approve | None = None,
        protocol: str | Dialect = "auto",
        dialect: str | Dialect | None = None,
        tool_choice: str = "auto",
        parallel: bool | None = None,
        too_many: TooMany = "first",
        stop_after: str | Iterable[str] = (),
        on_event: OnEvent | None = None,
        history_processor: HistoryProcessor | None = None,
        check_prompt: Check | None = None,
        check_answer: Check | None = None,
        on_result: OnResult | None = None,
        limits: Limits | None = None,
        **named: Any,
    ) -> None:
        first, *others = opened(model, providers.open)
        waits = "run_timeout" in named
        limits = limits_of(limits, named)
        self._form = Form.of(output)
        self._setup = Setup(
            provider=first,
            others=tuple(others),
            toolbox=as_toolbox(tools),
            policy=gate.combine(policy),
            limits=limits,
            waits=waits or limits.run_timeout != DEFAULTS.run_timeout,
            instructions=checked_instructions(instructions),
            options=checked_options(options),
            tool_choice=tool_choice,
            parallel=parallel,
            too_many=too_many,
            stop_after=checked_names(stop_after, "stop_after"),
            protocol=protocol,
            dialect=known_dialect(dialect),
            deps_type=deps_type,
            process=history_processor,
            checks=Checks(check_prompt, check_answer, on_result),
        ).check_rules()
        if on_event is not None and not callable(on_event):
            raise ConfigError(f"on_event: a function of the event is needed, not {on_event!r}")
        store = ledgers.open(ledger, hold_secrets=limits.hold_secrets, keep_runs=limits.keep_runs)
        private = ledger in (None, "memory")
        self._runner = Runner(store, checked_approve(approve), private=private, on_event=on_event)

    @property
    def provider(self) -> Provider:
        """Who answers; of several models the first."""
        return self._setup.provider

    @property
    def toolbox(self) -> Toolbox:
        """The tools of the agent."""
        return self._setup.toolbox

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that judge its calls: those that always stand, then its own."""
        return self._setup.rules

    @property
    def limits(self) -> Limits:
        """What a run may use."""
        return self._setup.limits

    @property
    def ledger(self) -> Ledger:
        """Where the journals of the runs are."""
        return self._runner.ledger

    # --- runs -----------------------------------------------------------------------------------------------------

    @overload
    async def run(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[Deps]]
    ) -> RunResult[Out]: ...
    @overload
    async def run(
        self, prompt: Prompt, *, output: OutputType[T], **options: Unpack[RunOptions[Deps]]
    ) -> RunResult[T]: ...
    @overload
    async def run(self, prompt: Prompt, *, output: object, **options: Unpack[RunOptions[Deps]]) -> RunResult[Any]: ...
    async def run(self, prompt: Prompt, *, output: object = None, **options: Any) -> RunResult[Any]:
        """One run to its end. `output` is the type of the final answer (`result.output`): whatever pydantic can
        describe, a function, or a JSON Schema; the others are those of `RunOptions`."""
        return await self._runner.begin(self._request(prompt, output, options))(None)

    @overload
    def run_sync(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[Deps]]
    ) -> RunResult[Out]: ...
    @overload
    def run_sync(
        self, prompt: Prompt, *, output: OutputType[T], **options: Unpack[RunOptions[Deps]]
    ) -> RunResult[T]: ...
    @overload
    def run_sync(self, prompt: Prompt, *, output: object, **options: Unpack[RunOptions[Deps]]) -> RunResult[Any]: ...
    def run_sync(self, prompt: Prompt, *, output: object = None, **options: Any) -> RunResult[Any]:
        """`run` for programs without an event loop."""
        return in_own_loop("run", lambda: self._runner.begin(self._request(prompt, output, options))(None))

    @overload
    def stream(self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[Deps]]) -> Stream[Out]: ...
    @overload
    def stream(self, prompt: Prompt, *, output: OutputType[T], **options: Unpack[RunOptions[Deps]]) -> Stream[T]: ...
    @overload
    def stream(self, prompt: Prompt, *, output: object, **options: Unpack[RunOptions[Deps]]) -> Stream[Any]: ...
    def stream(self, prompt: Prompt, *, output: object = None, **options: Any) -> Stream[Any]:
        """The run as events: `async with agent.stream(…) as events`. Leaving the block cancels the run."""
        return self._stream(self._request(prompt, output, options))

    @overload
    def stream_sync(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[RunOptions[Deps]]
    ) -> SyncStream[Out]: ...
    @overload
    def stream_sync(
        self, prompt: Prompt, *, output: OutputType[T], **options: Unpack[RunOptions[Deps]]
    ) -> SyncStream[T]: ...
    @overload
    def stream_sync(
        self, prompt: Prompt, *, output: object, **options: Unpack[RunOptions[Deps]]
    ) -> SyncStream[Any]: ...
    def stream_sync(self, prompt: Prompt, *, output: object = None, **options: Any) -> SyncStream[Any]:
        """The run as events for programs without an event loop: `for event in agent.stream_sync(…)`. Leaving the loop
        cancels the run."""
        refuse_in_a_loop("stream_sync", "async with agent.stream(…) as events")
        request = self._request(prompt, output, options)
        return SyncStream(lambda: self._stream(request))

    @overload
    async def resume(
        self, run_id: str, answers: Answers = None, *, output: None = None, **options: Unpack[ResumeOptions[Deps]]
    ) -> RunResult[Out]: ...
    @overload
    async def resume(
        self, run_id: str, answers: Answers = None, *, output: OutputType[T], **options: Unpack[ResumeOptions[Deps]]
    ) -> RunResult[T]: ...
    @overload
    async def resume(
        self, run_id: str, answers: Answers = None, *, output: object, **options: Unpack[ResumeOptions[Deps]]
    ) -> RunResult[Any]: ...
    async def resume(
        self, run_id: str, answers: Answers = None, *, output: object = None, **options: Any
    ) -> RunResult[Any]:
        """Goes on with a run of the ledger: one that waits for answers (`{call_id: True}`), or one that was cut off.

        Finished calls are not run again, started writes are looked up, an unfinished answer is asked for again. A run
        that has ended gives its result. `principal` is the one of the run unless given afresh; `deps` and overrides
        are not in the ledger and must be given again. `output` is needed where another agent, without that type, goes
        on. Raises `LedgerError` if there is no such run, `RunBusy` if somebody else carries it out.
        """
        return await self._runner.again(run_id, self._resumption(answers, output, options))(None)

    @overload
    def resume_sync(
        self, run_id: str, answers: Answers = None, *, output: None = None, **options: Unpack[ResumeOptions[Deps]]
    ) -> RunResult[Out]: ...
    @overload
    def resume_sync(
        self, run_id: str, answers: Answers = None, *, output: OutputType[T], **options: Unpack[ResumeOptions[Deps]]
    ) -> RunResult[T]: ...
    @overload
    def resume_sync(
        self, run_id: str, answers: Answers = None, *, output: object, **options: Unpack[ResumeOptions[Deps]]
    ) -> RunResult[Any]: ...
    def resume_sync(
        self, run_id: str, answers: Answers = None, *, output: object = None, **options: Any
    ) -> RunResult[Any]:
        """`resume` for programs without an event loop."""
        return in_own_loop(
            "resume", lambda: self._runner.again(run_id, self._resumption(answers, output, options))(None)
        )

    @overload
    def stream_resume(
        self, run_id: str, answers: Answers = None, *, output: None = None, **options: Unpack[ResumeOptions[Deps]]
    ) -> Stream[Out]: ...
    @overload
    def stream_resume(
        self, run_id: str, answers: Answers = None, *, output: OutputType[T], **options: Unpack[ResumeOptions[Deps]]
    ) -> Stream[T]: ...
    @overload
    def stream_resume(
        self, run_id: str, answers: Answers = None, *, output: object, **options: Unpack[ResumeOptions[Deps]]
    ) -> Stream[Any]: ...
    def stream_resume(
        self, run_id: str, answers: Answers = None, *, output: object = None, **options: Any
    ) -> Stream[Any]:
        """`resume` as events."""
        return Stream(self._runner.again(run_id, self._resumption(answers, output, options)))

    def as_tool(self, name: str, description: str = "", **declared: Any) -> Tool[..., Any]:
        """The agent as a tool of another one: the model writes the task, the answer is the result.

        Its run stands in the ledger of the run that calls it and is taken up again with it; it acts for the same
        principal, within what that run has left of requests, tokens and time, and what it has to ask waits there.
        `declared` are fields of `ToolSpec`; it is a read if all tools of the agent are.
        """
        child = Child(self._setup, self._form, self._runner)
        declared = {"effect": "write" if child.writes else "read", **declared}
        made = Tool.from_schema(name, description or f"Asks the agent {name}.", SCHEMA, **declared)
        return replace(made, carried_out_by=child)

    def to_asgi(self, prepare: Prepare | None = None) -> AgentApp:
        """The agent as an ASGI application: a POST of `{"prompt": "…"}` is a run, its answer the events as server-sent
        events. `prepare(scope, body)` says what each run is given beside its prompt, and whom to refuse (`Denied`)."""
        return AgentApp(lambda prompt, options: self.stream(prompt, **options), prepare)

    async def history(self, session: str, *, principal: Principal | None = None) -> list[Message]:
        """The messages of a session of the ledger; none if there is no such session. Given as `history=` to a run of
        another session they branch it off. Raises ConfigError if it belongs to another principal."""
        return list((await self._runner.conversation(session, principal)).messages)

    async def cancel(self, run_id: str) -> bool:
        """Cancels a run of this agent, or of any process that shares the ledger; one that waits
        or was cut off is ended. False: it has ended already, or there is no such run."""
        return await self._runner.cancel(run_id)

    async def aclose(self) -> None:
        """Gives back connections and files. The agent may not be used after it."""
        for provider in (self._setup.provider, *self._setup.others):
            await provider.aclose()
        await self._runner.aclose()

    async def __aenter__(self) -> Agent[Deps, Out]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- what is asked ----------------------------------------------------------------------------------------------

    def _request(self, prompt: Prompt, output: object, options: Mapping[str, Any]) -> RunRequest:
        return RunRequest.of(self._setup, prompt, self._wanted(output), self._opened(options))

    def _resumption(self, answers: Answers, output: object, options: Mapping[str, Any]) -> ResumeRequest:
        return ResumeRequest.of(self._setup, answers, self._wanted(output), self._opened(options))

    def _stream(self, request: RunRequest) -> Stream[Any]:
        unbegun: RunResult[Any] = RunResult(
            "", list(request.history.messages), [], "cancelled", {}, request.run_id or ""
        )
        return Stream(self._runner.begin(request), unbegun)

    def _wanted(self, output: object) -> Form:
        """A form of its own for each run: it remembers what its type made of the last answer."""
        return Form.of(output) if output is not None else replace(self._form, _made=[])

    def _opened(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        model = options.get("model")
        return {**options, "model": opened(model, self._runner.open)} if model is not None else options
