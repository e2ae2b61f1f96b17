"""A search in callgate's own documentation, which is shipped inside the package.

Law: what is found is quoted from a page, with the page's name; nothing is made up.
    (tests/test_demo_tools.py::test_the_documentation_is_searched_by_its_words)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from callgate.errors import NotFound
from callgate.tools import tool

FOUND = 3
EXCERPT = 160
"""Characters of each section that are quoted."""
_WORD = re.compile(r"[a-z0-9]+")
_CODE = re.compile(r"```.*?(```|\Z)|^(\||    )[^\n]*$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,4} +(.+)$", re.MULTILINE)
_PACKAGE = Path(__file__).resolve().parents[2]
_PLACES = (_PACKAGE / "_docs", _PACKAGE.parents[1] / "docs")  # in a wheel; in a source tree


@dataclass(slots=True, frozen=True)
class Section:
    """A piece of a page under one heading."""

    page: str
    title: str
    text: str
    words: Counter[str]


@tool(
    effect="read",
    timeout=5,
    examples=[
        {"request": "What do the docs say about approvals?", "arguments": {"query": "approvals"}},
        {"request": "Look up the ledger in the documentation.", "arguments": {"query": "ledger"}},
    ],
)
def search_docs(query: Annotated[str, Field(max_length=60)]) -> list[dict[str, str]]:
    """Searches callgate's own documentation.

    Args:
        query: A few words, such as "cancel a run" or "hermes dialect".
    """
    found = best(query, sections())
    if not found:
        raise NotFound(f"nothing in the documentation has the words of {query!r}")
    return [{"page": s.page, "section": s.title, "text": excerpt(s.text)} for s in found[:FOUND]]


def excerpt(text: str) -> str:
    """The beginning of a section on one line, without code and tables, cut between two words."""
    flat = " ".join(_CODE.sub(" ", text).split())
    return flat if len(flat) <= EXCERPT else flat[: flat.rfind(" ", 0, EXCERPT)] + " …"


@cache
def sections() -> tuple[Section, ...]:
    """All sections of all pages."""
    folder = next((place for place in _PLACES if place.is_dir()), None)
    if folder is None:
        return ()
    return tuple(section for page in sorted(folder.rglob("*.md")) for section in _cut(page, folder))


def _cut(page: Path, folder: Path) -> list[Section]:
    text = page.read_text("utf-8")
    name = page.relative_to(folder).as_posix()
    starts = [*_HEADING.finditer(text)]
    ends = [match.start() for match in starts[1:]] + [len(text)]
    found = []
    for match, end in zip(starts, ends, strict=True):
        body = text[match.end() : end].strip()
        if body:
            words = Counter(_WORD.findall(f"{match[1]} {match[1]} {body}".lower()))  # a title's word counts twice
            found.append(Section(name, match[1].strip(), body, words))
    return found


def best(query: str, among: tuple[Section, ...]) -> list[Section]:
    """Sections that hold a word of the query, the best first (BM25)."""
    wanted = set(_WORD.findall(query.lower()))
    length = sum(section.words.total() for section in among) / max(1, len(among))
    rarity = {}
    for word in wanted:
        holding = sum(word in section.words for section in among)
        rarity[word] = math.log(1 + (len(among) - holding + 0.5) / (holding + 0.5))

    def score(section: Section) -> float:
        norm = 1.2 * (0.25 + 0.75 * section.words.total() / max(1.0, length))
        return sum(rarity[w] * section.words[w] * 2.2 / (section.words[w] + norm) for w in wanted)

    scored = sorted(((score(section), -at, section) for at, section in enumerate(among)), key=lambda row: row[:2])
    return [section for points, _, section in reversed(scored) if points > 0]
