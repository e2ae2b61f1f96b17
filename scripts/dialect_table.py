#!/usr/bin/env python3
"""Writes the table of dialects into docs/dialects.md, from the dialects themselves and their facts.

One law: the page says what the code does. `--check` changes nothing and fails if the table is not current.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from callgate import dialects
from callgate.dialects import Dialect

HERE = Path(__file__).resolve().parent.parent
PAGE = HERE / "docs" / "dialects.md"
FACTS = HERE / "tests" / "conformance" / "dialect_facts.json"
BEGIN, END = "<!-- made by scripts/dialect_table.py -->\n", "<!-- end -->"


def table() -> str:
    """The Markdown table: one row a dialect, sorted by name."""
    facts = {row["name"]: row for row in json.loads(FACTS.read_text("utf-8"))}
    rows = ["| dialect | models | opens with | closes with | thinking |", "|---|---|---|---|---|"]
    for name in dialects.names():
        dialect = dialects.get(name)
        fact = facts.get(name, {})
        also = f" (also {', '.join(code(alias) for alias in dialect.aliases)})" if dialect.aliases else ""
        opens, closes = (cell(fact[key]) if key in fact else markers(dialect, key) for key in ("open", "close"))
        models = cell(dialect.models or fact.get("models", ""))
        rows.append(f"| {code(name)}{also} | {models} | {opens} | {closes} | {thinking(dialect)} |")
    return "\n".join(rows) + "\n"


def markers(dialect: Dialect, key: str) -> str:
    """The first marker of each way to write a call, from the dialect itself."""
    texts = [getattr(calls, key)[0] for calls in dialect.calls if getattr(calls, key)]
    return ", ".join(code(text) for text in texts) or "none"


def thinking(dialect: Dialect) -> str:
    """The markers around its reasoning."""
    regions = [
        region for region in dialect.regions if region.kind in ("reasoning", "sealed") and region.open and region.close
    ]
    texts = [f"{code(region.open[0])}…{code(region.close[0])}" for region in regions]
    if dialect.channels is not None:
        texts.append("its own channel")
    return ", ".join(texts) or "none"


def cell(text: str) -> str:
    """Text inside a table's cell."""
    return text.replace("\n", "↵").replace("|", "\\|")


def code(text: str) -> str:
    """Text as code inside a table's cell."""
    fence = "``` " if "``" in text else "`` " if "`" in text else "`"
    return fence + cell(text) + fence[::-1]


def main() -> int:
    """Writes the page, or with --check tells whether it is current."""
    page = PAGE.read_text("utf-8")
    head, rest = page.split(BEGIN)
    current = head + BEGIN + "\n" + table() + "\n" + END + rest.split(END, 1)[1]
    if "--check" not in sys.argv:
        PAGE.write_text(current, "utf-8")
    elif page != current:
        print("docs/dialects.md: the table is not current; run scripts/dialect_table.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
