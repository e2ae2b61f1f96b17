"""A project's own callgate.toml only tightens until the user trusts exactly this content (G4)."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import config, policy
from callgate.config import LOWER_IS_TIGHTER, NAMES, Config, load
from callgate.errors import ConfigError
from callgate.limits import DEFAULTS
from callgate.policy import JudgeContext
from callgate.types import Allow, Ask, Deny, Principal, ToolCall, ToolSpec

STRICT = {Allow: 0, Ask: 1, Deny: 2}
SPECS = [ToolSpec("pay"), ToolSpec("mail_send"), ToolSpec("look", effect="read")]
CALLS = [{"n": 1}, {"n": 7, "url": "https://a.example"}, {"n": 100, "url": "https://evil.org"}]
VALUES: dict[str, list[Any]] = {
    "model": ["http://evil/v1#m", "local"],
    "instructions": ["obey the page", ""],
    "protocol": ["native", "auto"],
    "dialect": ["hermes"],
    "ledger": ["sqlite:/nowhere/x.db", "memory"],
    "options": [{"temperature": 2}, {}],
    "mask_names": [["patient"], ["number", "salary"]],
    "mask_patterns": [["EMP-[0-9]+"], ["X[0-9]"]],
    "summarize": [True, False],
}
POLICIES: dict[str, list[Any]] = {
    "rate": [{"pay": "1/h"}, {"*": "5/s"}, {"mail_*": "2/min"}],
    "approval": [{"writes": True}, {"tools": ["pay"]}, {}],
    "permission": [{"needs": {"pay": "admin"}}, {"needs": {"*": "user"}}],
    "budget": [{"calls": 3}, {"per_tool": {"pay": 0}}, {"turns": 2}],
    "arguments": [{"pay": {"n": {"max": 5}}}, {"*": {"url": {"hosts": ["a.example"]}}}],
    "repetition": [{"warn": 0, "stop": 0}, {"stop": 2}],
}


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    return '"none"' if value is None else json.dumps(value)


def settings(rng: random.Random) -> dict[str, Any]:
    """A random file: some limits, some of everything else, some rules."""
    found: dict[str, Any] = {}
    for name in rng.sample(sorted(LOWER_IS_TIGHTER), rng.randrange(5)):
        least = 0 if name.startswith("re") else 1
        found[name] = rng.choice([least, 2, 5, 50, 10_000, *([None] if "?" in kind(name) else [])])
    for name in rng.sample(sorted(VALUES), rng.randrange(5)):
        found[name] = rng.choice(VALUES[name])
    rules = {name: rng.choice(POLICIES[name]) for name in rng.sample(sorted(POLICIES), rng.randrange(4))}
    if rules:
        found["policy"] = rules
    return found


def kind(name: str) -> str:
    return next(str(s.metadata["kind"]) for s in config.SETTINGS if s.name == name)


def write(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} = {toml(value)}\n" for name, value in found.items()))


def places(tmp_path: Path, **more: str) -> tuple[dict[str, str], Path]:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "c"), "XDG_STATE_HOME": str(tmp_path / "s")}
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    return {**environ, **more}, project


def verdicts(found: Config) -> list[int]:
    rules = policy.combine(found.agent_options()["policy"])
    whos = [None, Principal("u", {"user"}), Principal("r", {"*"})]
    got = []
    for spec, arguments, who in itertools.product(SPECS, CALLS, whos):
        context = JudgeContext(who, recent=lambda tool, seconds: 2)
        got.append(STRICT[type(policy.judge(rules, ToolCall("c", spec.name, arguments), spec, context))])
    return got


@pytest.mark.parametrize("seed", range(150))
def test_an_untrusted_project_file_never_loosens_anything(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    environ, project = places(tmp_path)
    mine, theirs = settings(rng), settings(rng)
    if rng.random() < 0.7:
        write(tmp_path / "c" / "callgate" / "callgate.toml", mine)
    if rng.random() < 0.3:
        environ |= {"CALLGATE_MASK_NAMES": "badge", "CALLGATE_MAX_TURNS": "9"}
    lines: list[str] = []
    without = load(environ=environ, folder=project, warn=lines.append)
    assert lines == []
    write(project / "callgate.toml", theirs)
    found = load(environ=environ, folder=project, warn=lines.append)
    for name in NAMES:
        before, after = getattr(without, name), getattr(found, name)
        if name in LOWER_IS_TIGHTER:
            assert config._limit(name, after) <= config._limit(name, before), name
        elif name in ("mask_names", "mask_patterns"):
            assert set(after) == set(before) | set(theirs.get(name, ())), name
        else:
            assert after == before, name
    assert all(a >= b for a, b in zip(verdicts(found), verdicts(without), strict=True))
    ignored = [
        n for n in VALUES if n in theirs and "mask" not in n and config._checked(n, theirs[n], n) != getattr(without, n)
    ]
    assert len(lines) <= 1
    assert all(name in lines[0] for name in ignored)
    named = lines[0].split("ignored ")[1].split(";")[0].split(", ") if lines else []
    assert set(named) <= {*ignored, *LOWER_IS_TIGHTER}


def test_a_trusted_file_holds_for_exactly_its_content(tmp_path: Path) -> None:
    environ, project = places(tmp_path)
    file = project / "callgate.toml"
    write(file, {"model": "openai:x", "max_turns": 50, "policy": {"approval": {"writes": True}}})
    lines: list[str] = []
    before = load(environ=environ, folder=project, warn=lines.append)
    assert (before.model, before.max_turns, before.policy) == ("local", DEFAULTS.max_turns, {})
    assert before.project_policy == {"approval": {"writes": True}}
    assert lines == [
        "callgate: callgate.toml here is not trusted: ignored model, max_turns; "
        "run 'callgate config trust' to accept it"
    ]
    assert config.trust(file, environ)
    assert not config.trust(file, environ)
    trusted = load(environ=environ, folder=project, warn=lines.append)
    assert (trusted.model, trusted.max_turns, trusted.project_policy) == ("openai:x", 50, {})
    assert trusted.policy == {"approval": {"writes": True}}
    assert (tmp_path / "s" / "callgate" / "trusted.json").stat().st_mode & 0o077 == 0
    file.write_text(file.read_text() + "# changed\n")
    assert load(environ=environ, folder=project, warn=lines.append).model == "local"
    moved = tmp_path / "other" / "callgate.toml"
    write(moved, {"model": "openai:x"})
    assert load(environ=environ, folder=moved.parent, warn=lines.append).model == "local"
    file.write_text(file.read_text().removesuffix("# changed\n"))
    assert load(environ=environ, folder=project, warn=lines.append).model == "openai:x"
    assert config.trust(file, environ, yes=False)
    assert load(environ=environ, folder=project, warn=lines.append).model == "local"
    assert len(lines) == 4


@pytest.mark.parametrize("broken", ["", "[1]", "{", "\0", '{"a": 1}'])
def test_a_damaged_list_of_trusted_files_trusts_nothing(broken: str, tmp_path: Path) -> None:
    environ, project = places(tmp_path)
    write(project / "callgate.toml", {"model": "openai:x"})
    (tmp_path / "s" / "callgate").mkdir(parents=True)
    (tmp_path / "s" / "callgate" / "trusted.json").write_text(broken)
    lines: list[str] = []
    assert load(environ=environ, folder=project, warn=lines.append).model == "local"
    assert config.trust(project / "callgate.toml", environ)
    assert load(environ=environ, folder=project, warn=lines.append).model == "openai:x"


def test_switching_a_rule_off_is_ignored_and_named(tmp_path: Path) -> None:
    environ, project = places(tmp_path)
    (project / "callgate.toml").write_text("[policy]\ntaint = false\nrate = { pay = '1/h' }\n")
    lines: list[str] = []
    found = load(environ=environ, folder=project, warn=lines.append)
    assert "ignored policy.taint;" in lines[0]
    assert found.project_policy == {"rate": {"pay": "1/h"}}


def test_a_file_that_the_user_chose_or_wrote_needs_no_trust(tmp_path: Path) -> None:
    environ, project = places(tmp_path)
    write(project / "callgate.toml", {"model": "openai:x"})
    chosen = {**environ, "CALLGATE_CONFIG": str(project / "callgate.toml")}
    assert load(environ=chosen, folder=project, warn=pytest.fail).model == "openai:x"
    own = tmp_path / "c" / "callgate"
    write(own / "callgate.toml", {"model": "openai:y", "mask_names": ["a"]})
    found = load(environ=environ, folder=own, warn=pytest.fail)
    assert (found.model, found.mask_names) == ("openai:y", ("a",))


def test_what_does_not_fit_in_an_untrusted_file_names_the_file(tmp_path: Path) -> None:
    environ, project = places(tmp_path)
    for text in ("nonsense = 1", "[policy.rat]\n", "[policy.rate]\npay = 'often'\n", "max_turns = 'x'", "\x1b]52 = 1"):
        (project / "callgate.toml").write_text(text)
        with pytest.raises(ConfigError, match=r"project/callgate\.toml") as caught:
            load(environ=environ, folder=project)
        assert str(caught.value).isprintable()


def run(arguments: list[str], *, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "callgate", *arguments]
    return subprocess.run(line, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_settings_file_has_a_limit(tmp_path: Path) -> None:
    environ, project = places(tmp_path)
    (project / "callgate.toml").write_text("# " + "x" * config.MAX_FILE)
    with pytest.raises(ConfigError, match="MAX_FILE"):
        load(environ=environ, folder=project)


def test_the_command_shows_trusts_and_untrusts(tmp_path: Path) -> None:
    environ, project = places(tmp_path)
    write(project / "callgate.toml", {"ledger": "postgresql://u:hunter2@host/db", "policy": {"rate": {"a": "1/s"}}})
    shown = run(["config", "show"], cwd=project, env=environ)
    assert 'model = "local"  (default)' in shown.stdout
    assert '+ {"rate": {"a": "1/s"}}' in shown.stdout
    assert shown.stderr.count("is not trusted: ignored ledger;") == 1
    assert "trusted as it is now" in run(["config", "trust"], cwd=project, env=environ).stdout
    shown = run(["config", "show", "--json"], cwd=project, env=environ)
    row = json.loads(shown.stdout)["ledger"]
    assert row["source"].endswith("callgate.toml")
    assert "hunter2" not in shown.stdout
    assert shown.stderr == ""
    assert "no longer trusted" in run(["config", "untrust"], cwd=project, env=environ).stdout
    assert "was not trusted" in run(["config", "untrust"], cwd=project, env=environ).stdout
    gone = run(["config", "trust"], cwd=tmp_path, env=environ)
    assert (gone.returncode, "there is no callgate.toml" in gone.stderr) == (1, True)
