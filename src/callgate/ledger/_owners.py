"""Who holds a run: the name of a process, and whether that process still lives.

One law: an owner is called dead only when that is certain; whoever cannot be seen from here is taken to live.

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
    """A new name for an owner in this process; every call gives another one."""
    pid = os.getpid()
    return f"{_place()}/{pid}/{_start(pid)}/{secrets.token_hex(4)}"


def is_dead(owner: str) -> bool:
    """Whether the process of that name is certainly gone."""
    parts = owner.split("/")
    if len(parts) != 4 or parts[0] != _place() or not parts[1].isdigit():
        return False
    if os.name == "nt":
        return False  # signal 0 is no question there, it is Ctrl-C
    pid = int(parts[1])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it is there, but not ours
    return _start(pid) not in (parts[2], "")


def describe(owner: str) -> str:
    """The name for people."""
    parts = owner.split("/")
    return f"process {parts[1]} on {parts[0].split('+')[0]}" if len(parts) == 4 else owner


@cache
def _place() -> str:
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
