"""Keys of vendors and servers in a file of the user's own: `keys.json` in the configuration folder.

Law: the file is readable by its owner alone, and a key goes to the address that it was kept for and to no other.
(tests/test_keyfile.py::test_a_key_goes_to_its_own_address_only)
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from callgate.errors import ConfigError

LOGGER = logging.getLogger("callgate.providers")
MAX_FILE: Final = 1_000_000
"""Bytes that are read of the file."""


def keys_place() -> Path:
    """Where the keys are, beside the user's `callgate.toml`."""
    if chosen := os.environ.get("XDG_CONFIG_HOME"):
        return Path(chosen) / "callgate" / "keys.json"
    home = Path(os.environ["HOME"]) if os.environ.get("HOME") else Path.home()
    folder = home / ".config"
    if sys.platform == "win32":
        folder = Path(os.environ.get("APPDATA") or home / "AppData")
    if sys.platform == "darwin":
        folder = home / "Library" / "Application Support"
    return folder / "callgate" / "keys.json"


def kept_keys() -> dict[str, str]:
    """Name -> key; empty if there is no file. Raises ConfigError for one that others may read, or that is damaged."""
    path = keys_place()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode  # of what was opened, not of what now stands under the name
            text = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if sys.platform != "win32" and mode & 0o077:  # Windows keeps the folder from others by its own lists
        raise ConfigError(f"{path}: others may read these keys; close it with: chmod 600 {path}")
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error}); mend it, or remove it and set the keys again") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found.values()):
        raise ConfigError(f"{path}: a JSON object of texts is needed; remove it and set the keys again")
    return found


def key_of(name: str) -> str:
    """The key that is kept for a vendor's name or a server's address; "" for none.

    Raises ConfigError for a vendor if the file cannot be used. Most servers with an address want no key: there it is a
    warning of the logger `callgate.providers`, and a server that does want one says so itself.
    """
    try:
        return kept_keys().get(_folded(name), "")
    except ConfigError as error:
        if "://" not in name:
            raise
        LOGGER.warning("%s", error)
        return ""


def keep_key(name: str, key: str | None) -> bool:
    """Keeps the key, or with None forgets it. False: there was none to forget."""
    known = kept_keys()
    name = _folded(name)
    if key is None and name not in known:
        return False
    changed = {**known, name: key} if key is not None else {k: v for k, v in known.items() if k != name}
    _write(keys_place(), {k: v for k, v in changed.items() if v is not None})
    return True


def _folded(name: str) -> str:
    return name.rstrip("/")


def _write(path: Path, keys: Mapping[str, str]) -> None:
    """Whole or not at all, and never for a moment open to others: the mode is the file's from its first byte on."""
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            new.unlink()  # of a process that was killed
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(dict(sorted(keys.items())), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
