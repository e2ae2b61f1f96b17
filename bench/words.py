"""What the word matcher gets right without any model, on every case of BFCL's parts (some minutes at most).

python bench/words.py            # the two thirds that nothing was tuned on
python bench/words.py --part dev # the third that was used
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from callgate.evals import bfcl
from callgate.evals._by_words import by_words

GROUPS = ("simple_python", "multiple", "live_simple", "live_multiple", "irrelevance", "live_irrelevance")


def main(part: str) -> None:
    """Counts and prints a row a set."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callgate" / "bfcl"
    print("| set | cases | called | right tool | right arguments | ms a case |\n|---|---:|---:|---:|---:|---:|")
    for group in GROUPS:
        cases = bfcl.sample(bfcl.load(group, folder), 0, seed=1, part=part)
        began = time.process_time()
        found = [(case, by_words(case)) for case in cases]
        spent = 1000 * (time.process_time() - began) / len(cases)
        called = sum(bool(calls) for _, calls in found) / len(cases)
        tool = sum(tuple(sorted(c.name for c in calls)) == case.names for case, calls in found) / len(cases)
        right = sum(case.wrong(calls) is None for case, calls in found) / len(cases)
        wanted = "– | –" if "irrelevance" in group else f"{tool:.3f} | {right:.3f}"
        print(f"| {group} | {len(cases)} | {called:.3f} | {wanted} | {spent:.1f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["test", "dev"], default="test")
    main(parser.parse_args().part)
