"""What PostgreSQL's errors mean for a ledger, by their SQLSTATE: do it again, the line is lost, or report it.

Law: `RolledBack` only where nothing was committed; where nobody knows, `Lost`.
(tests/test_ledger_postgres_trouble.py::test_errors_are_told_apart_by_their_sqlstate)

The states: https://www.postgresql.org/docs/current/errcodes-appendix.html.
"""

from __future__ import annotations

from typing import Any

from callgate.errors import LedgerError
from callgate.ledger._writer import Lost


class RolledBack(LedgerError):
    """The server undid the whole transaction; it may be done again."""


class TooManyClients(LedgerError):
    """The server takes no further connection just now."""


_ROLLED_BACK = {
    # Class 40 is transaction rollback: the server has undone everything, by definition. 55P03 and 57014 come before a
    # commit, and the driver rolls back on them.
    "40001": "another transaction came between (serialization failure)",
    "40P01": "two transactions waited for each other (deadlock)",
    "55P03": "another session holds a lock",
    "57014": "the server took too long for a statement",
}
# 57P01 to 57P03: an administrator, a crash, a start. After a COMMIT was sent these say nothing about its fate: only the
# journal can tell, which is why an append that is done again looks for its own entries first.
_LOST = ("57P01", "57P02", "57P03", "57P05", "25P03")
"""Shut down, crashed, starting up, idle for too long; class 08 is lost as well."""
_REPORTED = {
    "25006": "this server only reads (a standby?); use the primary",
    "3F000": "the schema is missing; open the ledger once as a role that may create it",
    "42501": "this role lacks a right ({text}); it needs USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on"
    " its tables",
    "42P01": "a table is missing ({text}); restore a copy, or choose another schema",
    "42703": "a column is missing ({text}); restore a copy, or choose another schema",
    "53100": "the server's disk is full; nothing of this was recorded",
}
_TWICE = {
    "writes": "this write was started before; it is not started again",
    "results": "this call has a result already",
}


def meaning(error: Any, where: str) -> LedgerError:
    """Our error for one of psycopg's. `where`: the ledger, without its password."""
    state = error.sqlstate or ""
    text = first_line(error)
    if state in _ROLLED_BACK:
        return RolledBack(f"{where}: {_ROLLED_BACK[state]}: {text}")
    # psycopg's errors of a failed connection attempt have no SQLSTATE: the server's words are all there is.
    if state == "53300" or "too many clients" in text or "remaining connection slots" in text:
        return TooManyClients(
            f"{where}: the server takes no further connection: {text}; raise its max_connections, or run fewer"
            " processes"
        )
    if state in _LOST or state.startswith("08") or (not state and _is_of_connection(error)):
        return Lost(f"{where}: the server is not there: {text}")
    # A unique violation: the primary keys of `writes` and `results` are what refuses a second start and a second
    # result.
    if state == "23505":
        return LedgerError(f"{where}: {_TWICE.get(error.diag.table_name or '', text)}")
    return LedgerError(f"{where}: {_REPORTED[state].format(text=text) if state in _REPORTED else text}")


def _is_of_connection(error: object) -> bool:
    """Without a state it is the driver that speaks: of the line to the server, or of a mistake of ours."""
    return any(cls.__name__ in ("OperationalError", "InterfaceError") for cls in type(error).__mro__)


def first_line(error: BaseException) -> str:
    """The first line of what a server wrote, without characters that are not for a terminal."""
    line = str(error).strip().split("\n", 1)[0][:300]
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
