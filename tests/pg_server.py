"""A private PostgreSQL server for tests: its own folder, a unix socket only, no password, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def binaries() -> Path | None:
    """The folder with `initdb`, if PostgreSQL is installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return versions[-1].parent if versions else None


def why_not() -> str | None:
    """Why no server can be started here."""
    if binaries() is None:
        return "PostgreSQL is not installed (Debian: postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed (extra postgres)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "PostgreSQL does not run as root, and there is no user postgres"
    return None


class Server:
    """A server that can be stopped, started and frozen."""

    def __init__(self, *, max_connections: int = 40) -> None:
        found = binaries()
        assert found is not None
        self._bin = found
        self.folder = Path(tempfile.mkdtemp(prefix="cg-pg-", dir="/tmp"))
        self._user: dict[str, object] = {}
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self._user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self._data = self.folder / "data"
        self._options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections={max_connections}"
        self.address = f"postgresql://callgate@/postgres?host={self.folder}"
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "callgate", "-E", "UTF8", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            (str(self._bin / program), *arguments),
            check=True,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            **self._user,  # type: ignore[call-overload]
        )

    def start(self) -> None:
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", log, "-o", self._options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", mode, "stop")

    def processes(self) -> list[int]:
        """The server and its children, the server first."""
        main = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]

    def freeze(self) -> list[int]:
        """Stops every process of the server where it stands: it answers nothing, and its lines stay open."""
        frozen = self.processes()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        return frozen

    def sql(self, statement: str, *params: object) -> list[tuple[object, ...]]:
        """Runs one statement as the owner."""
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), params)
            return cursor.fetchall() if cursor.description is not None else []

    def cut_connections(self) -> None:
        """Ends every session of ours."""
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'callgate' AND pid <> pg_backend_pid()"
        )


def thaw(frozen: list[int]) -> None:
    """Lets the processes go on."""
    for pid in frozen:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def running(**options: int) -> Iterator[Server]:
    """Starts a server of one's own."""
    made = Server(**options)
    try:
        made.start()
        try:
            yield made
        finally:
            with suppress(subprocess.CalledProcessError):  # a test has stopped it
                made.stop()
    finally:
        shutil.rmtree(made.folder, ignore_errors=True)


@contextmanager
def server() -> Iterator[str]:
    """Starts a server; gives its address."""
    with running() as made:
        yield made.address
