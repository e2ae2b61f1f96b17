"""The errors that callgate raises for its caller. What the *model* does wrong is never raised: it is a value
(`BadCall`, or a `ToolResult` whose status is not ok).

Law: whose fault it is decides the branch, and the tree below is the whole tree.
(tests/test_leaves.py::test_the_tree_of_errors_is_the_one_that_its_module_shows)

    CallgateError
    ├── ConfigError            your settings, arguments or files: fix them and start again (also a ValueError)
    │   ├── ToolError          a function that cannot be described, two tools of one name (also a TypeError)
    │   ├── UnknownDialect     no dialect of that name
    │   └── ToolsChanged       a run cannot be resumed: a call that waits would meet another tool
    ├── ProviderError          the server or engine that should answer
    │   ├── Unreachable        no connection: not running, wrong address, DNS, TLS
    │   ├── RefusedKey         401 / 403
    │   ├── RateLimited        429; `retry_after` in seconds, or None
    │   ├── Overloaded         500, 502, 503, 529: the server failed; asking later may help
    │   ├── BadRequest         400 / 422, with the server's own words
    │   │   ├── ContextTooLong the prompt does not fit the model
    │   │   └── BadParameter   a parameter that the server refuses; `named` says which
    │   ├── ModelMissing       404 for a model; `available` lists what is there
    │   ├── ProtocolBroken     the bytes are not what the API promises
    │   │   └── Redirected     the server lives at another address, which the message gives
    │   └── EndedEarly         the stream stopped before its end; a call in it is incomplete
    ├── LedgerError            the ledger cannot be read or written; nothing was run
    │   └── RunBusy            another process or task is carrying out this very run
    ├── LimitExceeded          a named size limit of a reader (also a ValueError)
    ├── InvalidRequest         what a client of the gateway asked is not in the form of its API (also a ValueError)
    └── ToolFailure            raised *by tools*, to say how a call ended
        ├── NoEffect           this write certainly changed nothing -> status failed
        │   └── NotStarted     not even begun, and why -> status not_started
        ├── NotFound           -> status not_found
        ├── Denied             -> status denied
        ├── ToolRetry          -> status invalid_arguments: the model is told what to do otherwise
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


class ToolsChanged(ConfigError):
    """A call that waits or has begun would meet another tool than the one it was proposed for; the message says what
    differs. Nothing was written."""


class ProviderError(CallgateError):
    """The model's server or engine failed.

    `provider` names it, `status` is the HTTP status or None, `tries` how often the provider has tried itself.
    """

    tries: int = 1

    def __init__(self, message: str, *, provider: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status


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
    """The server did not accept the request; the message quotes the server, `named` are the fields it blames."""

    def __init__(
        self, message: str, *, provider: str = "", status: int | None = None, named: Sequence[str] = ()
    ) -> None:
        super().__init__(message, provider=provider, status=status)
        self.named = tuple(named)


class BadParameter(BadRequest):
    """The server refuses a parameter of the request (`named`): no other way of asking helps."""


class ContextTooLong(BadRequest):
    """The request does not fit into the model's context."""


class ModelMissing(ProviderError):
    """The server does not have this model; `available` lists those it has, as far as it tells."""

    available: Sequence[str] = ()


class ProtocolBroken(ProviderError):
    """What came is not what the API promises: no JSON, wrong types, a record over the size limit."""


class Redirected(ProtocolBroken):
    """The server redirects. Nothing is sent to another address unasked, and asking again cannot help."""


class EndedEarly(ProviderError):
    """The stream ended before the answer did."""


class LedgerError(CallgateError):
    """The ledger could not record or read something. A call that could not be recorded was not run."""


class RunBusy(LedgerError):
    """Somebody else holds this run: exactly one may carry it out. The message says who, and until when."""


class LimitExceeded(CallgateError, ValueError):
    """A named size limit was exceeded; the message names the limit and the setting that moves it."""


class InvalidRequest(CallgateError, ValueError):
    """The body of a client's request is not what its API promises; `field` says where: "messages[2].content"."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class ToolFailure(CallgateError):
    """What a tool raises to say how its call ended; the message goes to the model."""


class NoEffect(ToolFailure):
    """The write certainly had no effect; its status is `failed` and it may be tried again."""


class NotStarted(NoEffect):
    """The call was certainly not begun by the service behind the tool; its status is `not_started`."""


class NotFound(ToolFailure):
    """The thing asked for does not exist: status `not_found`."""


class Denied(ToolFailure):
    """The tool itself refuses this principal or these arguments: status `denied`."""


class ToolRetry(ToolFailure):
    """The model should call again with other arguments, and nothing was changed: status `invalid_arguments`. The
    message says what to do otherwise."""


class UpstreamError(ToolFailure):
    """A service behind the tool failed: status `upstream_error`, for a started write `unknown_outcome`."""
