"""A two-minute part of the tests on every other Python that is installed, and with the lowest versions allowed.

Law: what could not be tried is named. (tests/test_compat.py::test_a_python_that_is_missing_is_named)

`scripts/compat.py` tries Python 3.12 to 3.14 as far as the machine has them, and on this Python the lowest versions
that `pyproject.toml` allows. Environments are kept in `.compat/` and made by the uv of the development environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".compat"
UV = Path(sys.executable).parent / "uv"
PYTHONS = ("3.12", "3.13", "3.14")

TESTS = (
    "test_contract.py",
    "test_run.py",
    "test_run_gate.py",
    "test_run_acceptance.py",
    "test_reply.py",
    "test_wire.py",
    "test_jsonstream.py",
    "test_schema_mend.py",
    "test_schema_laws.py",
    "test_tools.py",
    "test_tools_describe.py",
    "test_policy.py",
    "test_history.py",
    "test_masking.py",
    "test_ledger.py",
    "test_ledger_sqlite.py",
    "test_agent.py",
    "test_results.py",
    "test_liveview.py",
    "test_config.py",
)
"""What depends most on the Python and on the libraries: annotations, asyncio, SQLite, pydantic, JSON Schema."""


def main() -> None:
    """Tries them all; exits with status 1 if one failed."""
    failed = []
    for version in PYTHONS:
        python = find(version)
        if python is None:
            print(f"compat: Python {version} is not installed here: not tried", flush=True)
        elif not attempt(version, python, lowest=False):
            failed.append(version)
    if not attempt("lowest", sys.executable, lowest=True):
        failed.append("lowest versions")
    if failed:
        sys.exit(f"compat: failed: {', '.join(failed)}")
    print("compat: all good")


def find(version: str) -> str | None:
    """The interpreter of this version, if one runs here."""
    for place in (shutil.which(f"python{version}"), *_kept_by_pyenv(version)):
        if place is not None and _runs(place, version):
            return str(place)
    return None


def _kept_by_pyenv(version: str) -> list[str]:
    return sorted(str(path) for path in (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))


def _runs(python: str, version: str) -> bool:
    """A shim may be there for a version that is not selected."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def attempt(name: str, python: str, *, lowest: bool) -> bool:
    """Makes the environment and runs the tests in it."""
    began = time.monotonic()
    place = ENVIRONMENTS / name
    if not (place / "bin" / "python").exists():
        subprocess.run([str(UV), "venv", "--quiet", "--python", python, str(place)], check=True)
    install = [str(UV), "pip", "install", "--quiet", "--python", str(place / "bin" / "python")]
    tools = ["--group", f"{ROOT / 'pyproject.toml'}:dev"]
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    if lowest:  # of what users install; the test tools stay as they are pinned where that does not move the others
        subprocess.run([*install, "--resolution", "lowest-direct", "--editable", f"{ROOT}[all]"], check=True)
        subprocess.run([*install, "--upgrade-package", "anyio", *tools], check=True)
    else:
        subprocess.run([*install, *pins, "--editable", f"{ROOT}[all]", *tools], check=True)
    tests = [f"tests/{test}" for test in TESTS if (ROOT / "tests" / test).exists()]
    command = [str(place / "bin" / "python"), "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *tests]
    good = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    seconds = time.monotonic() - began
    print(f"compat: {name}: {'good' if good else 'FAILED'} in {seconds:.0f} s", flush=True)
    return good


if __name__ == "__main__":
    main()
