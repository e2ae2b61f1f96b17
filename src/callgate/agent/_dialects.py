"""The dialects that an application brings: by name, or as a `Dialect` of its own.

Law: a dialect of one's own never takes the name of one that is there.
(tests/test_dialects_own.py::test_names_of_the_house_cannot_be_taken)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from callgate import protocols
from callgate.errors import ConfigError, UnknownDialect
from callgate.types import EMPTY, ModelInfo

if TYPE_CHECKING:
    from callgate.dialects import Dialect


def own_dialects(*given: str | Dialect | None) -> Mapping[str, Dialect]:
    """Those that are the application's own, by name. Raises UnknownDialect for what is none."""
    if all(one in (None, "auto") or (isinstance(one, str) and one in protocols.ROWS) for one in given):
        return EMPTY  # the tables of all families are read only when one is named
    from callgate import dialects  # plug look-up

    own: dict[str, Dialect] = {}
    for one in given:
        if not isinstance(one, dialects.Dialect):
            continue
        if one.name in protocols.ROWS or one.name == "auto" or dialects.known(one.name) not in (None, one):
            raise ConfigError(f"dialect {one.name!r}: the name is taken; give yours another one")
        if dialects.known(one.name) is None:
            own[one.name] = one
    return own


def known_protocol(protocol: str | Dialect, own: Mapping[str, Dialect]) -> str:
    """The name of the protocol, if there is one. Raises ConfigError; also for a dialect in which no call can be asked
    for, because its data does not say how calls are written."""
    name = protocol if isinstance(protocol, str) else getattr(protocol, "name", None)
    if not isinstance(name, str):
        raise ConfigError(f"protocol: a name or a Dialect is needed, not {type(protocol).__name__}")
    protocols.choose(ModelInfo(""), (), name, own)
    if name in own:
        protocols.check_written(own[name])
    return name


def known_dialect(dialect: str | Dialect | None) -> str | Dialect | None:
    """The dialect, if there is one of that name. Raises UnknownDialect."""
    if dialect is None or dialect == "auto":
        return dialect
    from callgate import dialects  # plug look-up

    if not isinstance(dialect, (str, dialects.Dialect)):
        raise UnknownDialect(f"dialect: {type(dialect).__name__} is no name; give a name, a Dialect or None")
    if isinstance(dialect, str):
        dialects.get(dialect)
    return dialect


def name_of(dialect: str | Dialect | None) -> str | None:
    """The name that the ledger knows it by."""
    return dialect if isinstance(dialect, str) or dialect is None else dialect.name
