"""All benchmarks, one after the other: `python bench/all.py` (what `make bench` does).

What cannot be measured here is named with what it needs, and costs the others nothing. Status 1 if one failed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from callgate.providers import _weights

TABLES = ("reader", "wire", "loop", "mend")
WITH_WEIGHTS = ("prompts", "bounds")


def main() -> None:
    """Runs them in processes of their own, so that none warms up another."""
    failed = [name for name in TABLES if not _run(name)]
    if _weights.find() is not None:
        failed += [name for name in WITH_WEIGHTS if not _run(name)]
    else:
        for name in WITH_WEIGHTS:
            print(f"== bench/{name}.py: skipped, the embedded model is not here (callgate model pull)\n", flush=True)
    print("== bench/bfcl_agreement.py: skipped, it needs a folder with the package bfcl-eval; see the file", flush=True)
    if failed:
        sys.exit(f"bench: failed: {', '.join(failed)}")


def _run(name: str) -> bool:
    print(f"== bench/{name}.py", flush=True)
    return subprocess.run([sys.executable, str(Path(__file__).parent / f"{name}.py")], check=False).returncode == 0


if __name__ == "__main__":
    main()
