"""The options of `callgate serve`, checked before anything is opened.

Law: what cannot be is a ConfigError that names the option and says what to do.
(tests/test_gateway_server.py::test_a_wrong_option_is_one_line_and_nothing_is_opened)
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from callgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s,]+")
NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class Settings:
    """All options of a gateway. Sizes are in bytes, times in seconds. Raises ConfigError for what cannot be."""

    backends: tuple[str, ...] = ("local",)
    """Who answers, as `providers.open` and `providers.server` take it; the first that has the model is asked."""

    # --- where it listens
    host: str = "127.0.0.1"
    port: int = 8088
    """0: any free one."""
    unix_socket: str | None = None
    """The path of a Unix socket to listen on, in place of host and port."""
    certificate: str | None = None
    """A PEM file with the server's certificate chain: TLS."""
    certificate_key: str | None = None
    """Its private key, if it is not in the same file."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies whose `X-Forwarded-*` headers are believed."""
    grace: float = 10.0
    """What running requests have when the server is told to end; then they end with an error event."""

    # --- who may ask
    keys: tuple[str, ...] = ()
    """Keys that allow everything."""
    keys_file: str | None = None
    """A TOML file of keys with what each of them allows; read again on SIGHUP."""
    hosts: tuple[str, ...] = ()
    """Names, besides the address itself, by which the server may be called (`Host`)."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may use it (CORS); none: only its own."""

    # --- limits
    max_body: int = 32 * 1024 * 1024
    """Of one request: images come as base64 in JSON."""
    max_headers: int = 64 * 1024
    """Of one request, the request line included."""
    max_connections: int = 4096
    """At once; more are refused with 503."""
    max_streams: int = 1000
    """Requests of one key that are answered at once; a key file may say less for a key."""
    header_timeout: float = 15.0
    """How long the head of a request may take to come."""
    body_timeout: float = 60.0
    """How long a client may take for the next piece of its request's body."""
    slow_client: float = 60.0
    """How long a client may take nothing of its answer before it is cut off."""
    keep_alive: float = 75.0
    """How long an idle connection is kept."""
    heartbeat: float = 10.0
    """Silence towards a client after which it is sent a sign of life."""
    stalled: float = 600.0
    """Silence of a backend after which it is given up."""

    # --- what it does with calls
    protocol: str = "auto"
    """How models are asked for calls: "auto", or the name of a protocol or dialect."""
    calls: Literal["whole", "live"] = "whole"
    """"whole": a call is held until it is checked; "live": its arguments go on while they are being written."""
    retries: int = 2
    """How often calls that do not fit are asked for again before the client sees anything of them."""
    observe: bool = False
    """Change nothing and only report."""
    options: Mapping[str, object] = field(default_factory=lambda: NO_OPTIONS)
    """Sampling and server options for requests that do not name them themselves, such as `num_ctx`."""
    kept_responses: int = 1000
    """Responses that are kept in memory for `previous_response_id`."""

    # --- what it records
    access_log: str | None = None
    """A file for one line of JSON a request, "-" for stderr; None: none is written."""

    # --- agent mode
    tools: tuple[str, ...] = ()
    """FILE.py[:NAME] with the tools of agents; there are agents only with tools or a ledger."""
    ledger: str | None = None
    """Where runs and exchanges are recorded; None: in memory."""
    instructions: str = ""
    """The system message of runs that bring none."""

    def __post_init__(self) -> None:
        self._check_place()
        self._check_access()
        self._check_limits()
        _one_of("--calls", self.calls, ("whole", "live"))

    @property
    def agent_mode(self) -> bool:
        """Whether runs of agents are served."""
        return bool(self.tools) or self.ledger is not None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.unix_socket is not None or is_loopback(self.host)

    @property
    def has_keys(self) -> bool:
        """Whether a key is needed."""
        return bool(self.keys) or self.keys_file is not None

    def _check_place(self) -> None:
        _least("--port", self.port, 0)
        if self.port > 65535:
            raise ConfigError(f"--port {self.port}: a port is at most 65535; 0 takes any free one")
        if not self.host.strip():
            raise ConfigError("--host: an address is needed, such as 127.0.0.1")
        for option, path in (("--certificate", self.certificate), ("--certificate-key", self.certificate_key)):
            if path is not None and not Path(path).is_file():
                raise ConfigError(f"{option} {path}: there is no such file")
        if self.certificate_key is not None and self.certificate is None:
            raise ConfigError("--certificate-key: give the certificate as well, with --certificate FILE")
        for proxy in self.proxies:
            _check_network(proxy)

    def _check_access(self) -> None:
        for key in self.keys:
            check_key(key, "--key")
        if not self.is_local and not self.has_keys:
            raise ConfigError(
                f"--host {self.host}: others can reach this address, so a key is needed: --key KEY or --keys FILE"
            )
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(f"--origin {origin}: write it as browsers do, such as https://chat.example.org")
        if "*" in self.origins and not self.has_keys:
            raise ConfigError("--origin *: any web page could use it, so a key is needed: --key KEY or --keys FILE")

    def _check_limits(self) -> None:
        for option, value in (
            ("--max-body", self.max_body),
            ("--max-headers", self.max_headers),
            ("--max-connections", self.max_connections),
            ("--max-streams", self.max_streams),
        ):
            _least(option, value, 1)
        for option, seconds in (
            ("--header-timeout", self.header_timeout),
            ("--body-timeout", self.body_timeout),
            ("--slow-client", self.slow_client),
            ("--heartbeat", self.heartbeat),
            ("--stalled", self.stalled),
        ):
            if not seconds > 0:
                raise ConfigError(f"{option} {seconds:g}: a number of seconds above 0 is needed")
        _least("--retries", self.retries, 0)
        _least("--grace", self.grace, 0)


def is_loopback(host: str) -> bool:
    """Whether this name or address is one of the machine itself."""
    bare = host.strip("[]").lower()
    if bare in LOOPBACK_NAMES or bare.endswith(".localhost"):  # RFC 6761, 6.3: never leaves the machine
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def check_key(key: str, where: str) -> None:
    """Raises ConfigError for a text that cannot be a key. The key itself is never in the message."""
    # RFC 6750, 2.1: other characters cannot be sent in an Authorization header.
    if not re.fullmatch(r"[A-Za-z0-9\-._~+/=]{8,512}", key):
        raise ConfigError(f"{where}: a key has 8 to 512 letters, digits or -._~+/= and nothing else")


def _check_network(text: str) -> None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(
            f"--proxy {text}: an address or a network is needed, such as 10.0.0.7 or 10.0.0.0/8"
        ) from error


def _least(option: str, value: float, least: int) -> None:
    if value < least:
        raise ConfigError(f"{option} {value}: a number from {least} is needed")


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{option} {value}: one of {', '.join(allowed)} is needed")
