"""The access log: one line of JSON for each request, without its contents.

Law: no text, argument or key of a request or an answer stands in it.
(tests/test_gateway_access.py::test_no_key_is_told_anywhere)
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.apps.gateway.asgi import Visit

MAX_PATH = 200


class AccessLog:
    """Where lines go: a file, or stderr. SIGHUP opens the file anew, for whoever moves it away."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._file: TextIO = self._open()

    def _open(self) -> TextIO:
        if self._place == "-":
            return sys.stderr
        try:
            return Path(self._place).open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--access-log {self._place}: {error.strerror or error}") from error

    def reopen(self) -> None:
        """Goes on in a new file of the same name. Raises ConfigError if there can be none; the old one stays."""
        before = self._file
        self._file = self._open()
        if before is not sys.stderr:
            before.close()

    def close(self) -> None:
        """Everything is written."""
        if self._file is not sys.stderr:
            self._file.close()

    def visited(self, visit: Visit, seconds: float) -> None:
        """A request is over."""
        self._file.write(line(visit, seconds, time.time()) + "\n")
        self._file.flush()


def line(visit: Visit, seconds: float, now: float) -> str:
    """What is told of a request. Of its address only the path: a query may hold anything."""
    row: dict[str, object] = {
        "at": round(now, 3),
        "id": visit.id,
        "client": visit.client,
        "key": visit.caller.name if visit.caller is not None else None,
        "method": str(visit.scope["method"])[:20],
        "path": str(visit.scope["path"])[:MAX_PATH],
        "status": visit.status or 499,
        "seconds": round(seconds, 4),
        "bytes": visit.sent,
        "left": visit.left,
    }
    if (record := visit.exchange) is not None:
        row |= {
            "api": record.shape,
            "model": record.model[:MAX_PATH],
            "backend": record.backend,
            "streamed": record.streamed,
            "finish": record.finish,
            "tokens_in": record.tokens_in,
            "tokens_out": record.tokens_out,
            "first_token": record.first_token,
            "calls": [{"tool": call.tool[:MAX_PATH], "outcome": call.outcome} for call in record.calls],
            "mended": dict(record.mended),
            "retries": record.retries,
            "error": record.error,
        }
    return json.dumps(row, ensure_ascii=True, separators=(",", ":"))
