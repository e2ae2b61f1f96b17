"""Prepares a release: `python scripts/release.py VERSION [--draft]`. Publishes nothing.

Law: a step that could not be carried out is named and fails the release.
(tests/test_release.py::test_a_step_that_fails_fails_the_release)

Steps: the changelog is assembled from `changelog.d/`; sdist and wheel are built; twine checks them; the licences of
what the wheel needs are listed and compared with the allowed ones; a CycloneDX bill of materials is written; known
vulnerabilities are looked up. `--draft` shows the changelog instead of writing it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent

ALLOWED = (
    "Apache",
    "BSD",
    "MIT",
    "PSF",
    "Python Software Foundation",
    "ISC",
    "MPL",
    "Mozilla",
    "LGPL",
    "Unlicense",
    "CNRI",
)
"""Licences that may be combined with Apache-2.0 as a dependency (LGPL and MPL: used unchanged, linked dynamically)."""


class Failed(Exception):
    """A step that could not be carried out; its text says why and what to do."""


def main() -> None:
    """Runs the steps in order; exits with status 1 if one failed."""
    arguments = [a for a in sys.argv[1:] if not a.startswith("-")]
    if len(arguments) != 1 or not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", arguments[0]):
        sys.exit("release: give the version, as in: python scripts/release.py 1.2.3")
    steps: dict[str, Callable[[], str]] = {
        "changelog": lambda: changelog(arguments[0], draft="--draft" in sys.argv),
        "build": build,
        "twine": check_files,
        "licences": licences,
        "sbom": lambda: sbom(arguments[0]),
        "audit": audit,
    }
    sys.exit(1 if run(steps) else 0)


def run(steps: dict[str, Callable[[], str]]) -> list[str]:
    """Carries out every step and prints what came of it; the names of those that failed."""
    failed = []
    for name, step in steps.items():
        try:
            print(f"release: {name}: {step()}", flush=True)
        except Failed as error:
            failed.append(name)
            print(f"release: {name}: FAILED: {error}", flush=True)
    return failed


def changelog(version: str, *, draft: bool) -> str:
    """CHANGELOG.md with the fragments of this release."""
    how = ["--draft"] if draft else ["--yes"]
    return _call("towncrier", "build", "--version", version, *how)


def build() -> str:
    """sdist and wheel."""
    _call("python", "-m", "build", "--outdir", str(DIST), str(ROOT))
    return ", ".join(sorted(path.name for path in DIST.iterdir()))


def check_files() -> str:
    """What the package index would refuse."""
    files = [str(path) for path in DIST.iterdir() if path.suffix in {".whl", ".gz"}]
    return _call("uvx", "twine", "check", "--strict", *files).splitlines()[-1]


def licences() -> str:
    """dist/licences.json: every installed requirement of the wheel with its licence; one that is not allowed fails."""
    rows = {d.name: _licence(d) for d in requirements()}
    DIST.mkdir(exist_ok=True)
    (DIST / "licences.json").write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
    odd = [f"{name} ({licence})" for name, licence in rows.items() if not any(word in licence for word in ALLOWED)]
    if odd:
        raise Failed(f"read these licences and add them to ALLOWED, or do without: {', '.join(odd)}")
    return f"{len(rows)} packages, all allowed"


def requirements() -> list[metadata.Distribution]:
    """What callgate with all extras needs, as installed here, with what that needs in turn."""
    found: dict[str, metadata.Distribution] = {}
    queue = list(_names(metadata.distribution("callgate"), extras=True))
    while queue:
        name = queue.pop()
        if name in found or name == "callgate":
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another platform or Python
        queue += _names(found[name], extras=False)
    return sorted(found.values(), key=lambda d: d.name.lower())


def _names(distribution: metadata.Distribution, *, extras: bool) -> Iterator[str]:
    for line in distribution.requires or ():
        if extras or "extra ==" not in line:
            yield re.split(r"[\s;\[<>=!~(]", line, maxsplit=1)[0].lower()


def _licence(distribution: metadata.Distribution) -> str:
    about = distribution.metadata
    stated = about.get("License-Expression") or (about.get("License") or "").strip().split("\n")[0]
    classed = "; ".join(c.rsplit(" :: ", 1)[-1] for c in about.get_all("Classifier") or () if c.startswith("License"))
    return stated or classed or "unknown"


def sbom(version: str) -> str:
    """dist/sbom.json, in the CycloneDX 1.6 form (https://cyclonedx.org/docs/1.6/json/)."""
    parts = [
        {
            "type": "library",
            "name": d.name,
            "version": d.version,
            "purl": f"pkg:pypi/{d.name.lower()}@{d.version}",
            "licenses": [{"license": {"name": _licence(d)}}],
        }
        for d in requirements()
    ]
    about = {"type": "library", "name": "callgate", "version": version, "purl": f"pkg:pypi/callgate@{version}"}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": parts,
    }
    DIST.mkdir(exist_ok=True)
    (DIST / "sbom.json").write_text(json.dumps(bill, indent=1) + "\n", "utf-8")
    return f"{len(parts)} components"


def audit() -> str:
    """Known vulnerabilities of the pinned versions. An index that cannot be reached is a failure that says so."""
    uvx = str(BIN / "uvx") if (BIN / "uvx").exists() else "uvx"
    command = [uvx, "pip-audit", "--requirement", str(ROOT / "constraints.txt"), "--no-deps", "--disable-pip"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except FileNotFoundError:
        raise Failed("uvx is not installed; NOT AUDITED. Install uv, or run pip-audit yourself") from None
    except subprocess.TimeoutExpired:
        raise Failed("the advisory index did not answer within 300 s; NOT AUDITED") from None
    if done.returncode and "vulnerabilit" not in done.stdout + done.stderr:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        raise Failed(f"the advisory index could not be asked; NOT AUDITED: {last}")
    if done.returncode:
        raise Failed(done.stdout.strip())
    return "no known vulnerabilities"


def _call(tool: str, *arguments: str) -> str:
    inside = BIN / tool
    command = str(inside) if inside.exists() else tool
    done = subprocess.run([command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{tool} ended with status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
