"""What the caller of a run wants, checked before anything starts.

Law: what cannot be is a ConfigError that says what is needed, and nothing has started.
(tests/test_agent.py::test_what_the_caller_does_wrong_is_said_before_anything_starts)
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, TypeVar, cast

from callgate.agent._instructions import Instructions, checked_instructions
from callgate.errors import ConfigError
from callgate.events import Event
from callgate.history import History, Loose
from callgate.limits import LimitOverrides, Limits
from callgate.media import Media
from callgate.policy import Answer
from callgate.types import EXTERNAL, Entry, Message, Part, Principal

if TYPE_CHECKING:
    from callgate.agent._approver import Approve
    from callgate.agent._checks import Check, OnResult
    from callgate.agent._form import Form
    from callgate.agent._setup import Policy, Setup, TooMany
    from callgate.dialects import Dialect
    from callgate.ledger import Ledger
    from callgate.providers import Provider
    from callgate.run import Pending, Run
    from callgate.tools import ToolLike

Prompt: TypeAlias = "str | Loose | Sequence[str | Media | Part] | Sequence[Loose]"
"""A text, a message, content parts (texts, values of `callgate.media`), or messages, the prompt last."""
MAX_NAME = 100
"""Characters of a session's name: it becomes a part of run ids."""
Deps = TypeVar("Deps")
OnEvent: TypeAlias = Callable[[Event], object] | Callable[[Event, str], object]
"""`f(event)` or `f(event, run_id)`: sees every event of every run, as it is shown. What it raises is logged."""


Models: TypeAlias = "str | Provider | Sequence[str | Provider]"
"""A model, or several: the next one is asked when one fails before anything of its answer came."""
HistoryProcessor: TypeAlias = "Callable[[tuple[Message, ...]], Iterable[Loose]]"
"""A pure function of the messages of a request, without the instructions; the run itself keeps them all."""


class Overrides(TypedDict, Generic[Deps], total=False):
    """What one run has otherwise than its agent, for `run`, `stream` and `resume`."""

    principal: Principal | None
    """On whose behalf it acts."""
    deps: Deps
    """The application's own things, for tools and instructions."""
    model: Models
    options: Mapping[str, object]
    """On top of the agent's, by name."""
    instructions: Instructions[Deps]
    tools: Iterable[str | ToolLike] | None
    """Names of the agent's tools, with globs, and further tools."""
    policy: Policy
    """Rules on top of the agent's: a run is never looser than its agent."""
    limits: Limits
    """All limits, in place of the agent's."""


class AgentOptions(LimitOverrides, Generic[Deps], total=False):
    """What an agent may be given by name, beside its model, tools and output."""

    deps_type: type[Deps] | None
    instructions: Instructions[Deps]
    options: Mapping[str, object] | None
    policy: Policy
    ledger: str | Ledger | None
    approve: Approve | None
    protocol: str | Dialect
    dialect: str | Dialect | None
    tool_choice: str
    parallel: bool | None
    too_many: TooMany
    stop_after: str | Iterable[str]
    """Tools whose result is the answer: the run ends with it."""
    on_event: OnEvent | None
    check_prompt: Check | None
    """Looks at each prompt before it is sent."""
    check_answer: Check | None
    """Looks at each final answer before it counts."""
    on_result: OnResult | None
    """Makes of a tool's result what the model and the caller see."""
    history_processor: HistoryProcessor | None
    """Makes of the messages that would be sent those that are."""
    limits: Limits | None


class RunOptions(Overrides[Deps], Generic[Deps], total=False):
    """What a new run may be given."""

    history: Iterable[Loose]
    """The messages of an earlier result, or of another program."""
    session: str | None
    """The conversation that the run goes on with, and that is kept under this name in the ledger."""
    run_id: str | None
    key: str
    """Makes the idempotency keys of its writes, so that the same work may be asked for by another run."""
    tool_choice: str
    """"required", "none" or a tool's name, for the first turn."""
    parallel: bool
    """False: at most one call in an answer."""


class ResumeOptions(Overrides[Deps], Generic[Deps], total=False):
    """What a run that goes on may be given."""

    approve: Approve | None
    results: Mapping[str, object]
    """Call id -> what a call came to that the application carried out itself: a value, or the exception it raised."""


@dataclass(frozen=True)
class RunRequest:
    """One run that is wanted. Raises ConfigError for what cannot be."""

    setup: Setup
    form: Form
    history: History
    principal: Principal | None = None
    deps: object = None
    run_id: str | None = None
    key: str = ""
    session: str | None = None
    continues: bool = False
    """The caller gave a history."""
    summary: tuple[str, frozenset[int]] | None = None
    """What an earlier run of the session had summed up."""

    @classmethod
    def of(cls, setup: Setup, prompt: Prompt, form: Form, options: Mapping[str, Any]) -> RunRequest:
        """Everything that can be wrong is found here, before anything starts."""
        given = dict(options)
        session = given.pop("session", None)
        if session is not None and given.get("run_id") is not None:
            raise ConfigError("session, run_id: one or the other; the runs of a session have ids of their own")
        for name in ("run_id", "key"):
            if (value := given.get(name)) is not None and not isinstance(value, str):
                raise ConfigError(f"{name}: a text is needed, not {type(value).__name__}")
        if session is not None:
            checked_session(session)
        continues = bool(given.get("history"))
        # A history that no provider would accept is the caller's mistake and is raised as such.
        history = History.adopt(messages_of(prompt, given.pop("history", None) or ()))
        named = {name: given.pop(name) for name in ("run_id", "key") if name in given}
        made = changed_setup(setup, given)
        principal, deps = _who(given.get("principal")), _deps(made, given)
        return cls(
            made, form, history, principal, deps, named.get("run_id"), named.get("key") or "", session, continues
        )


@dataclass(frozen=True)
class ResumeRequest:
    """What the caller of `resume` brings. Raises ConfigError for what cannot be."""

    setup: Setup
    answers: Mapping[str, Any]
    form: Form | None = None
    """None: the one that the run was started with, if this agent knows it."""
    principal: Principal | None = None
    deps: object = None
    approve: Approve | None = None
    results: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls, setup: Setup, answers: Mapping[str, object] | None, form: Form, options: Mapping[str, Any]
    ) -> ResumeRequest:
        """Everything that can be wrong without knowing the run is found here."""
        given = dict(options)
        approve = checked_approve(given.pop("approve", None))
        results = given.pop("results", None) or {}
        if not isinstance(results, Mapping):
            raise ConfigError(f"results: call ids with their results are needed, not {type(results).__name__}")
        made = changed_setup(setup, given)
        principal, deps = _who(given.get("principal")), _deps(made, given)
        return cls(made, answers or {}, form if form.wanted else None, principal, deps, approve, results)


def changed_setup(setup: Setup, given: Mapping[str, Any]) -> Setup:
    """The setup with the overrides of one run."""
    changes = {name: value for name, value in given.items() if name not in ("principal", "deps")}
    if unknown := sorted(changes.keys() - KNOWN):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; there are: {', '.join(sorted(NAMES))}")
    if not changes:
        return setup
    if "instructions" in changes:
        changes["instructions"] = checked_instructions(changes["instructions"])
    if "model" in changes:
        changes["provider"], *others = changes.pop("model")
        changes["others"] = tuple(others)
    return setup.changed(**changes)


KNOWN = frozenset({"model", "options", "instructions", "tools", "policy", "limits", "tool_choice", "parallel"})
NAMES = KNOWN | {"principal", "deps", "history", "session", "run_id", "key", "output", "answers", "approve", "results"}


def _who(principal: object) -> Principal | None:
    if principal is not None and not isinstance(principal, Principal):
        raise ConfigError(f"principal: a Principal is needed, not {type(principal).__name__}")
    return principal


def _deps(setup: Setup, given: Mapping[str, Any]) -> object:
    """The dependencies, if they are of the agent's type."""
    deps, kind = given.get("deps"), setup.deps_type
    if kind is None:
        if deps is not None:
            raise ConfigError(f"deps: the agent has no deps_type; Agent(…, deps_type={type(deps).__name__})")
        return None
    name = getattr(kind, "__name__", kind)
    if "deps" not in given:
        raise ConfigError(f"deps: a {name} is needed (deps_type), for the tools and instructions of the run")
    try:
        fits = isinstance(deps, kind)  # type: ignore[arg-type]
    except TypeError:  # a generic, or a Protocol that only a type checker can compare
        fits = True
    if not fits:
        raise ConfigError(f"deps: a {name} is needed (deps_type), not {type(deps).__name__}")
    return deps


def opened(models: Models, open: Callable[[str | Provider], Provider]) -> list[Provider]:
    """The providers of one model or several, in their order. Raises ConfigError for no model at all."""
    if not isinstance(models, (list, tuple)):
        return [open(cast("str | Provider", models))]
    if not models:
        raise ConfigError("model: a list of models needs one at least")
    return [open(model) for model in models]


def messages_of(prompt: Prompt, history: Iterable[Loose]) -> list[Loose]:
    """The conversation with the prompt at its end."""
    if isinstance(prompt, str):
        return [*history, Message("user", prompt)]
    if isinstance(prompt, (Message, Mapping)):
        return [*history, prompt]
    given: list[Any] = list(prompt) if isinstance(prompt, (list, tuple)) else []
    if given and all(isinstance(item, Message) or (isinstance(item, Mapping) and "role" in item) for item in given):
        return [*history, *given]
    given = _parts(given)
    if not given or not all(isinstance(part, Mapping) and "role" not in part for part in given):
        raise ConfigError(f"prompt: a text, a message, messages or content parts are needed, not {prompt!r}")
    return [*history, Message("user", tuple(given))]


def _parts(given: list[Any]) -> list[Any]:
    """Content parts, values of `callgate.media` and texts between them as parts. Texts alone are none: a list of
    several prompts was meant, and each is a run of its own."""
    return given if all(isinstance(item, str) for item in given) else [_part(item) for item in given]


def _part(item: object) -> object:
    """A text or a value of `callgate.media` as a content part; a part is one already."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    return item.part if isinstance(item, Media) else item


def checked_session(name: object) -> str:
    """The name of a session. Raises ConfigError for what cannot be one."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise ConfigError(f"session: a printable name of 1 to {MAX_NAME} characters is needed, not {name!r}")
    return name


def checked_approve(approve: Approve | None) -> Approve | None:
    """The callback, if it can be called."""
    if approve is not None and not callable(approve):
        raise ConfigError(f"approve: a function of the call is needed, not {approve!r}")
    return approve


def check_answers(request: ResumeRequest, run: Run, entries: Iterable[Entry]) -> None:
    """Raises ConfigError for an answer or a result to a call that does not wait for one, unless it was given just so
    before, and for arguments that the call's tool does not take."""
    pending = {one.id: one for one in run.pending}
    ended = {record.call.id for record in run.records if record.call.id not in pending}
    # A retried web request brings its answer again, perhaps when the run is long over: that is no mistake.
    before = {e.data["call_id"]: e.data["allow"] for e in entries if e.kind == "answer"}
    over = ended if run.ended else frozenset()
    external = [one.id for one in run.pending if one.rule == EXTERNAL]
    for call_id, answer in request.answers.items():
        if _inside(call_id, [*external, *ended]):
            continue
        if call_id in pending:
            _check_answer(run, pending[call_id], answer)
        elif before.get(call_id) is not _allows(answer) and call_id not in over:
            raise ConfigError(f"answers: {call_id} does not wait; waiting: {', '.join(pending) or 'none'}")
    _check_results(request.results, external, ended)


def _check_results(results: Iterable[str], external: Sequence[str], ended: Collection[str]) -> None:
    for call_id in results:
        if call_id not in external and call_id not in ended and not _inside(call_id, [*external, *ended]):
            raise ConfigError(f"results: {call_id} does not wait for one; waiting: {', '.join(external) or 'none'}")


def _inside(call_id: str, calls: Iterable[str]) -> bool:
    """Whether it is the id of a call in the run of an agent that carries one of these out."""
    return any(call_id.startswith(f"{outer}/") for outer in calls)


def _allows(answer: Answer | bool) -> bool:
    return answer.allow if isinstance(answer, Answer) else answer is True


def _check_answer(run: Run, waiting: Pending, answer: Answer | bool) -> None:
    """Raises ConfigError for an answer that a call which waits cannot take."""
    if waiting.rule == EXTERNAL and _allows(answer):
        raise ConfigError(f"answers: {waiting.id} waits for its result: resume(…, results={{{waiting.id!r}: value}})")
    if isinstance(answer, Answer) and answer.arguments is not None:
        run.check_edit(waiting.call, answer)


def new_id() -> str:
    """A run id: sorts by time, and cannot be guessed."""
    # Eleven hexadecimal digits of milliseconds last until the year 2527; 48 random bits behind them.
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(6)}"
