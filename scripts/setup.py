"""Makes the environment in .venv: `setup.py demo` (what `make demo` needs) or `setup.py dev` (everything). And
`setup.py bench` makes .venv-bench: callgate beside the packages that it is compared with, which nothing else needs.

One law: it uses the user's own uv or pip as they are configured, so mirrors, proxies and keys hold. A second call
with nothing changed does nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
VENV = HERE / (".venv-bench" if sys.argv[1:] == ["bench"] else ".venv")
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
NEEDS = ("pyproject.toml", "constraints.txt")
EXTRAS = {"demo": "local,chat", "dev": "all", "bench": "all"}


def main() -> None:
    """Brings .venv up to what was asked for."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else "dev"
    if wanted not in EXTRAS:
        sys.exit(f"setup: {wanted!r}: one of {', '.join(EXTRAS)}")
    if sys.version_info < (3, 11):  # noqa: UP036 (an older Python may run this file)
        found = ".".join(map(str, sys.version_info[:2]))
        sys.exit(f"setup: Python 3.11 or newer is needed, this is {found}. Try: make PYTHON=python3.12 …")
    mark = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in NEEDS)).hexdigest()
    if PYTHON.exists() and any(_done(stage) == mark for stage in {wanted, "dev"}):
        return
    began = time.monotonic()
    uv = shutil.which("uv")
    print(f"setup: making {VENV.name} for {wanted} with {'uv' if uv else 'pip'} …", flush=True)
    _environment(uv)
    _install(uv, wanted)
    _stamp(wanted).write_text(mark, "utf-8")
    print(f"setup: ready in {time.monotonic() - began:.0f} s", flush=True)


def _stamp(stage: str) -> Path:
    return VENV / f".callgate-{stage}"


def _done(stage: str) -> str:
    try:
        return _stamp(stage).read_text("utf-8")
    except OSError:
        return ""


def _environment(uv: str | None) -> None:
    if PYTHON.exists():
        return
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(VENV)])
        return
    try:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    except subprocess.CalledProcessError:
        shutil.rmtree(VENV, ignore_errors=True)
        sys.exit("setup: this Python cannot make environments. On Debian or Ubuntu: apt-get install python3-venv")


def _install(uv: str | None, wanted: str) -> None:
    tool = [uv, "pip", "install", "--quiet", "--python", str(PYTHON)] if uv else [str(PYTHON), "-m", "pip", "install"]
    if not uv:
        tool += ["--quiet", "--disable-pip-version-check"]
    what = ["--editable", f"{HERE}[{EXTRAS[wanted]}]"]
    if wanted == "dev":
        what += _group("dev")
    _run([*tool, "--constraint", str(HERE / "constraints.txt"), *what])
    if wanted == "bench":
        for package in _group("bench"):  # one by one: a table leaves out what cannot be had
            if subprocess.run([*tool, package], check=False, cwd=HERE).returncode:
                print(f"setup: {package} cannot be had here; it is left out of the tables", flush=True)


def _group(name: str) -> list[str]:
    # pip reads dependency groups only from 25.1 on, and a fresh venv brings an older one
    import tomllib

    return list(tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["dependency-groups"][name])


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, cwd=HERE)
    except subprocess.CalledProcessError as error:
        sys.exit(f"setup: {Path(command[0]).name} failed (status {error.returncode}): see above, then run it again")


if __name__ == "__main__":
    main()
