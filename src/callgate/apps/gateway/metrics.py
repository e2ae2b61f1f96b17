"""What happened so far as numbers, in the text form of Prometheus.

Law: what a client sends can make neither a name nor a label longer, and only so many of them.
(tests/test_gateway_access.py::test_metrics_count_what_happened_and_stay_small)

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from callgate import __version__

if TYPE_CHECKING:
    from callgate.apps.gateway.asgi import Visit
    from callgate.apps.gateway.gate import ExchangeRecord

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper ends of the buckets: from a cached prompt to a slow model with a long answer."""
MAX_VALUES = 200
"""Values of one label: names of models and tools come from clients, and a label is for ever."""
MAX_LENGTH = 100
OTHER = "other"
HELP: Mapping[str, tuple[str, str]] = {
    "callgate_requests_total": ("counter", "Requests over HTTP, by route and status."),
    "callgate_requests_running": ("gauge", "Requests that are being answered."),
    "callgate_request_seconds": ("histogram", "Seconds from a request's head to the end of its answer."),
    "callgate_exchanges_total": ("counter", "Requests to models, by client API, model and finish reason."),
    "callgate_first_token_seconds": ("histogram", "Seconds from a request to the first token of its answer."),
    "callgate_tokens_total": ("counter", "Tokens read and written, by model."),
    "callgate_calls_total": ("counter", "Calls of tools, by tool and outcome."),
    "callgate_mended_total": ("counter", "What was mended in answers and histories, by kind."),
    "callgate_retries_total": ("counter", "Answers that were asked for again."),
    "callgate_backend_errors_total": ("counter", "Failures of backends, by backend and class."),
    "callgate_clients_left_total": ("counter", "Clients that left before their answer was whole."),
    "callgate_refused_total": ("counter", "Requests that were not let in, by status."),
    "callgate_runs_running": ("gauge", "Runs of agents that are being carried out."),
    "callgate_runs_total": ("counter", "Runs of agents that ended or wait, by reason."),
    "callgate_info": ("gauge", "The version."),
}
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How often a value was at most so much."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """One value more."""
        self.counts[bisect_left(SECONDS, value)] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        """Its lines in Prometheus' form."""
        total = 0
        for end, count in zip((*map(str, SECONDS), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{end}"}} {total}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """The numbers of one server."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Labels]] = {}
        self._values: dict[str, set[str]] = {}
        self._request = Histogram()
        self._first_token = Histogram()
        self.running = 0
        self.runs = 0

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Adds to a counter."""
        key = tuple((label, self._bounded(label, value)) for label, value in labels.items())
        self._counts.setdefault(name, Counter())[key] += amount

    def _bounded(self, label: str, value: str) -> str:
        known = self._values.setdefault(label, set())
        value = value[:MAX_LENGTH]
        if value in known:
            return value
        if len(known) >= MAX_VALUES:
            return OTHER
        known.add(value)
        return value

    def visited(self, visit: Visit, route: str, seconds: float) -> None:
        """A request is over."""
        self.count("callgate_requests_total", route=route, status=str(visit.status or 499))
        self._request.add(seconds)
        if visit.left:
            self.count("callgate_clients_left_total")
        if visit.status in (401, 403, 413, 421, 429, 431):
            self.count("callgate_refused_total", status=str(visit.status))

    def exchanged(self, record: ExchangeRecord) -> None:
        """A request to a model is over."""
        # What failed before it reached a backend has no model that exists, only a name that a client chose.
        model = record.model if record.backend else OTHER
        self.count("callgate_exchanges_total", api=record.shape, model=model, finish=record.finish or "none")
        if record.first_token is not None:
            self._first_token.add(record.first_token)
        for way, amount in (("in", record.tokens_in), ("out", record.tokens_out)):
            if amount:
                self.count("callgate_tokens_total", amount, model=model, direction=way)
        for call in record.calls:
            self.count("callgate_calls_total", tool=call.tool, outcome=call.outcome)
        for kind, amount in record.mended.items():
            self.count("callgate_mended_total", amount, kind=kind)
        if record.retries:
            self.count("callgate_retries_total", record.retries)
        for backend, error in record.backend_errors:
            self.count("callgate_backend_errors_total", backend=backend, error=error)
        if record.error is not None and record.backend:
            self.count("callgate_backend_errors_total", backend=record.backend, error=record.error)

    def run_ended(self, reason: str) -> None:
        """A run ended, or waits."""
        self.count("callgate_runs_total", reason=reason)

    def text(self) -> str:
        """Everything, in Prometheus' form."""
        lines: list[str] = []
        gauges = {"callgate_requests_running": self.running, "callgate_runs_running": self.runs}
        for name, (kind, about) in HELP.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            if name in gauges:
                lines.append(f"{name} {gauges[name]}")
            elif name == "callgate_info":
                lines.append(f'{name}{{version="{__version__}"}} 1')
            elif name == "callgate_request_seconds":
                lines += self._request.lines(name)
            elif name == "callgate_first_token_seconds":
                lines += self._first_token.lines(name)
            else:
                lines += _samples(name, sorted(self._counts.get(name, {}).items()))
        return "\n".join(lines) + "\n"


def _samples(name: str, counts: Sequence[tuple[Labels, int]]) -> Iterable[str]:
    if not counts:
        return [] if HELP[name][0] != "counter" else [f"{name} 0"]
    return [f"{name}{_labels(labels)} {amount}" for labels, amount in counts]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{label}="{_escaped(value)}"' for label, value in labels) + "}"


def _escaped(value: str) -> str:
    """A label's value. Beside what the format escapes nothing stays that could end a line or hide in one."""
    plain = "".join(char if char.isprintable() else "?" for char in value)
    return plain.replace("\\", "\\\\").replace('"', '\\"')
