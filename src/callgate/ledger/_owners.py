"""Who holds a run: the name of a process, and whether that process still lives.

Law: an owner is called dead only when that is certain; one that cannot be seen from here is taken to live.
(tests/test_ledger.py::test_a_lease_of_a_dead_process_is_free_at_once_and_one_of_another_machine_is_not)

A name is `place/pid/start/nonce`. The place is the machine, its boot and its process namespace, so that a pid is only
ever looked up where it means something; the start time of the process tells a reused pid from the old one.
"""

from __future__ import annotations

import os
import secrets
import socket
from functools import cache
from pathlib import Path


def me() -> str:
    """A new name for an owner in this process; every call gives another one. It lives until it is retired."""
    pid = os.getpid()
    name = f"{_place()}/{pid}/{_start(pid)}/{secrets.token_hex(4)}"
    _LIVING.add(name)
    return name


def retire(owner: str) -> None:
    """Nobody in this process acts under that name any more, whatever the ledger still says."""
    _LIVING.discard(owner)


def is_dead(owner: str) -> bool:
    """Whether the process of that name is certainly gone, or is this one and has retired the name."""
    parts = owner.split("/")
    # From another machine, boot or container a number says nothing about the process: such an owner is waited for.
    if len(parts) != 4 or parts[0] != _place() or not parts[1].isdigit():
        return False
    pid = int(parts[1])
    # Our own: a run whose holder in this process was dropped without its release must not wait for the lease to run
    # out.
    if pid == os.getpid() and parts[2] == _start(pid):
        return owner not in _LIVING
    if os.name == "nt":
        return False  # signal 0 is no question there, it is Ctrl-C
    try:
        # Signal 0 only asks (kill(2)).
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it is there, but not ours
    # Process numbers are used again after a while; the start time tells the old process from the new one. A
    # zombie holds its number and does nothing any more.
    return _start(pid) not in (parts[2], "")


_LIVING: set[str] = set()
"""Names that somebody in this process acts under."""


def describe(owner: str) -> str:
    """The name for people."""
    parts = owner.split("/")
    return f"process {parts[1]} on {parts[0].split('+')[0]}" if len(parts) == 4 else owner


@cache
def _place() -> str:
    # After a reboot every number is another process, and before it nobody lives: the boot is part of the place.
    boot = _first_line("/proc/sys/kernel/random/boot_id")[:8]
    try:
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        namespace = ""
    host = socket.gethostname().replace("/", "_").replace("+", "_")
    return f"{host}+{boot}+{namespace}"


def _start(pid: int) -> str:
    """When the process began, in the kernel's ticks; empty where the system does not tell (or it is a zombie)."""
    line = _first_line(f"/proc/{pid}/stat")
    fields = line.rpartition(")")[2].split()
    if len(fields) < 20:
        return ""
    return "zombie" if fields[0] in ("Z", "X") else fields[19]


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text("ascii", "replace").split("\n", 1)[0]
    except OSError:
        return ""
