"""What the proxy and the server around it share: the gate that requests go through, and the record of each of them.

Law: every exchange that began ends in exactly one record, whatever became of it.
(tests/test_gateway_openai.py::test_every_exchange_ends_in_one_record)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from callgate.types import EMPTY, Principal

if TYPE_CHECKING:
    from callgate.apps.gateway.backends import Backends
    from callgate.policy import Rule
    from callgate.types import Usage

CALLER = "callgate.caller"
"""The key of an ASGI scope under which the `Caller` stands; without one anybody may ask for anything."""
RECORD_ID = "callgate.request_id"
"""The key of an ASGI scope under which the id of the request stands; without one the proxy makes it."""

CallOutcome: TypeAlias = Literal["passed", "mended", "retried", "withheld", "denied"]
"""What became of a call: let through as it came; changed to fit; let through after it was asked for again; did not fit
and was kept back; refused by a rule."""


class ProxySettings(Protocol):
    """The options that the proxy reads; `settings.Settings` has them."""

    @property
    def protocol(self) -> str:
        """How models are asked for calls: "auto" or a protocol's or dialect's name. Default "auto"."""
        ...

    @property
    def calls(self) -> Literal["whole", "live"]:
        """ "whole" (default): a call is held until it is checked; "live": its arguments go on as they are written."""
        ...

    @property
    def retries(self) -> int:
        """How often calls that do not fit are asked for again. Default 2."""
        ...

    @property
    def observe(self) -> bool:
        """Change nothing and only report. Default False."""
        ...

    @property
    def heartbeat(self) -> float:
        """Seconds of silence towards a client after which it is sent a sign of life. Default 10."""
        ...

    @property
    def max_body(self) -> int:
        """Bytes of a request's body. Default 32 MiB."""
        ...

    @property
    def options(self) -> Mapping[str, object]:
        """Sampling and server options for requests that do not name them (`num_ctx`). Default none."""
        ...

    @property
    def kept_responses(self) -> int:
        """Responses that are kept in memory for `previous_response_id`. Default 1,000."""
        ...


class Caller(Protocol):
    """Who asks, as far as the proxy must know it; `access` puts it under `CALLER` into the scope."""

    @property
    def principal(self) -> Principal | None:
        """On whose behalf the request is made; None: anybody."""
        ...

    @property
    def rules(self) -> Sequence[Rule]:
        """What is checked of the calls that are let through to this caller."""
        ...

    def may_use(self, model: str) -> bool:
        """Whether this caller may ask (and be told of) the model."""
        ...


@dataclass(slots=True, frozen=True)
class CallSeen:
    """One call of an answer."""

    tool: str
    outcome: CallOutcome


@dataclass(slots=True, frozen=True)
class ExchangeRecord:
    """One request to the proxy, when it is over. It holds no contents: neither texts nor arguments."""

    id: str
    shape: str
    """The client's API: "openai", "responses", "anthropic", "ollama" or "generate"."""
    model: str
    """As the client named it."""
    backend: str = ""
    """The address or name of who answered; "": nobody did."""
    wire: str = ""
    """The format that the backend speaks."""
    protocol: str = ""
    principal: str | None = None
    streamed: bool = False
    status: int = 200
    """The HTTP status that the client saw; 499: it left before there was one."""
    finish: str = ""
    """How the answer ended, in the words of `types.FinishReason`; "": there was none."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    first_token: float | None = None
    """Seconds from the request to the first token; None: none came."""
    seconds: float = 0.0
    calls: tuple[CallSeen, ...] = ()
    mended: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """Kind of what was mended (docs/gateway.md lists them) -> how often."""
    retries: int = 0
    error: str | None = None
    """The class of the error that ended it ("Overloaded", "EndedEarly", "Disconnected", …); None: it ended well."""
    backend_errors: tuple[tuple[str, str], ...] = ()
    """(backend, class of the error) of those that failed before another one answered."""


@dataclass(slots=True)
class Seen:
    """What is known of an exchange so far, for its record."""

    backend: str = ""
    wire: str = ""
    protocol: str = ""
    begun: bool = False
    """Something of an answer has come: no other backend is asked any more."""
    first_token: float | None = None
    finish: str = ""
    usage: Usage | None = None
    calls: tuple[CallSeen, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    """(backend, error) of those that failed before."""
    mended: Counter[str] = field(default_factory=Counter)
    retries: int = 0


Sink: TypeAlias = Callable[[ExchangeRecord], None]


class Stoppable(Protocol):
    """A running exchange."""

    def stop(self, reason: str) -> None:
        """Ends it at once with an error in its client's shape."""
        ...


class Gate:
    """The settings, the backends and who is told of each exchange. One for each server."""

    def __init__(self, settings: ProxySettings, backends: Backends, sinks: Sequence[Sink] = ()) -> None:
        self.settings = settings
        self.backends = backends
        self.sinks: list[Sink] = list(sinks)
        """Each is given every record: metrics, the access log, the ledger."""
        self.running: set[Stoppable] = set()

    def finished(self, record: ExchangeRecord) -> None:
        """An exchange is over."""
        for sink in self.sinks:
            sink(record)

    def stop(self, reason: str) -> None:
        """Ends what still runs (a server that shuts down, after its grace)."""
        for exchange in tuple(self.running):
            exchange.stop(reason)

    async def aclose(self) -> None:
        """Gives the backends' connections back."""
        await self.backends.aclose()
