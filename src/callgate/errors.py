"""The errors that callgate raises for its caller. What the *model* does wrong is never raised: it is a value
(`BadCall`, or a `ToolResult` whose status is not ok).

One law: whose fault it is decides the branch.

    CallgateError
    ├── ConfigError            your settings, arguments or files: fix them and start again (also a ValueError)
    │   ├── ToolError          a function that cannot be described, two tools of one name (also a TypeError)
    │   └── UnknownDialect     no dialect of that name
    ├── ProviderError          the server or engine that should answer
    │   ├── Unreachable        no connection: not running, wrong address, DNS, TLS
    │   ├── RefusedKey         401 / 403
    │   ├── RateLimited        429; `retry_after` in seconds, or None
    │   ├── Overloaded         500, 502, 503, 529: the server failed; asking later may help
    │   ├── BadRequest         400 / 422, with the server's own words
    │   │   └── ContextTooLong the prompt does not fit the model
    │   ├── ModelMissing       404 for a model; `available` lists what is there
    │   ├── ProtocolBroken     the bytes are not what the API promises
    │   └── EndedEarly         the stream stopped before its end; a call in it is incomplete
    ├── LedgerError            the ledger cannot be read or written; nothing was run
    │   └── RunBusy            another process or task is carrying out this very run
    ├── LimitExceeded          a named size limit of a reader (also a ValueError)
    └── ToolFailure            raised *by tools*, to say how a call ended
        ├── NoEffect           this write certainly changed nothing -> status failed
        ├── NotFound           -> status not_found
        ├── Denied             -> status denied
        └── UpstreamError      a service behind the tool failed -> status upstream_error (for a write: unknown)
"""

from __future__ import annotations

from collections.abc import Sequence


class CallgateError(Exception):
    """The root of everything that callgate raises on purpose."""


class ConfigError(CallgateError, ValueError):
    """A setting, argument or file of the caller is wrong; the message says which, and what to do."""


class ToolError(ConfigError, TypeError):
    """A tool cannot be registered: its signature cannot be described, or its name is taken."""


class UnknownDialect(ConfigError):
    """No dialect has this name; the message lists the nearest ones."""


class ProviderError(CallgateError):
    """The model's server or engine failed.

    `provider` names it, `status` is the HTTP status or None, `sent` tells whether any of the answer
    had already arrived (then nothing is retried), `tries` how often the provider has tried itself.
    """

    tries: int = 1

    def __init__(self, message: str, *, provider: str = "", status: int | None = None, sent: bool = False) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.sent = sent


class Unreachable(ProviderError):
    """No connection could be made."""


class RefusedKey(ProviderError):
    """The server refused the key. The key itself is never in the message."""


class RateLimited(ProviderError):
    """Too many requests; `retry_after` is the server's wish in seconds, or None."""

    retry_after: float | None = None


class Overloaded(ProviderError):
    """The server failed on its side (5xx); `retry_after` as for RateLimited."""

    retry_after: float | None = None


class BadRequest(ProviderError):
    """The server did not accept the request; the message quotes the server."""


class ContextTooLong(BadRequest):
    """The request does not fit into the model's context."""


class ModelMissing(ProviderError):
    """The server does not have this model; `available` lists those it has, as far as it tells."""

    available: Sequence[str] = ()


class ProtocolBroken(ProviderError):
    """What came is not what the API promises: no JSON, wrong types, a record over the size limit."""


class EndedEarly(ProviderError):
    """The stream ended before the answer did."""


class LedgerError(CallgateError):
    """The ledger could not record or read something. A call that could not be recorded was not run."""


class RunBusy(LedgerError):
    """Somebody else holds this run: exactly one may carry it out. The message says who, and until when."""


class LimitExceeded(CallgateError, ValueError):
    """A named size limit was exceeded; the message names the limit and the setting that moves it."""


class ToolFailure(CallgateError):
    """What a tool raises to say how its call ended; the message goes to the model."""


class NoEffect(ToolFailure):
    """The write certainly had no effect; its status is `failed` and it may be tried again."""


class NotFound(ToolFailure):
    """The thing asked for does not exist: status `not_found`."""


class Denied(ToolFailure):
    """The tool itself refuses this principal or these arguments: status `denied`."""


class UpstreamError(ToolFailure):
    """A service behind the tool failed: status `upstream_error`, for a started write `unknown_outcome`."""
