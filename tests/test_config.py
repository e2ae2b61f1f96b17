"""The settings: one name each, four places to say them, and nothing ignored."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from callgate import config
from callgate.agent import Agent
from callgate.config import SETTINGS, Config, load
from callgate.errors import ConfigError
from callgate.limits import DEFAULT_NAMES, DEFAULTS, Limits

HOME = {"HOME": "/home/somebody"}
DOCS = Path(__file__).parent.parent / "docs" / "settings.md"

SAMPLES: dict[str, list[tuple[str, Any]]] = {
    "text": [("words", "words")],
    "text?": [("hermes", "hermes"), ("none", None)],
    "count": [("7", 7)],
    "count?": [("7", 7), ("none", None), ("off", None)],
    "number": [("0", 0), ("5", 5)],
    "seconds": [("1.5", 1.5), ("3", 3.0)],
    "seconds?": [("1.5", 1.5), ("none", None)],
    "days?": [("30", 30.0), ("none", None)],
    "switch": [("true", True), ("off", False), ("1", True), ("no", False)],
    "table": [('{"a": {"b": 1}}', {"a": {"b": 1}})],
    "list": [("a, b", ("a", "b")), ('["a,b"]', ("a,b",))],
}
WRONG: dict[str, list[str]] = {
    "count": ["0", "-1", "1.5", "many", "nan", "inf"],
    "count?": ["0", "x"],
    "number": ["-1", "x", "1.5"],
    "seconds": ["0", "-3", "soon", "nan", "inf", "1e999"],
    "seconds?": ["0", "x"],
    "days?": ["0", "x"],
    "switch": ["maybe"],
    "table": ["{", "[1]", "7"],
    "list": ["[1, 2]", "["],
}


def toml_of(value: Any) -> str:
    match value:
        case None:
            return '"none"'
        case bool():
            return str(value).lower()
        case tuple():
            return str(list(value))
        case dict():
            return "{ a = { b = 1 } }"
        case str():
            return f'"{value}"'
        case _:
            return str(value)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_every_setting_is_a_variable_and_a_line_of_the_file(setting: Any, tmp_path: Path) -> None:
    kind = setting.metadata["kind"]
    for text, value in SAMPLES[kind]:
        variable = load(environ={**HOME, f"CALLGATE_{setting.name.upper()}": text}, folder=tmp_path)
        assert getattr(variable, setting.name) == value
        assert variable.sources == {setting.name: f"CALLGATE_{setting.name.upper()}"}
        mine = tmp_path / "callgate" / "callgate.toml"  # the user's own file: a project's one has to be trusted
        mine.parent.mkdir(exist_ok=True)
        mine.write_text(f"{setting.name} = {toml_of(value)}\n")
        line = load(environ={**HOME, "XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path)
        assert getattr(line, setting.name) == value
        assert line.sources == {setting.name: str(mine)}
    for text in WRONG.get(kind, []):
        with pytest.raises(ConfigError, match=f"CALLGATE_{setting.name.upper()}"):
            load(environ={**HOME, f"CALLGATE_{setting.name.upper()}": text}, folder=tmp_path)


def test_the_documentation_has_every_setting_as_it_is() -> None:
    assert config.table() in DOCS.read_text("utf-8")


def test_the_defaults_are_those_of_the_agent() -> None:
    parameters = inspect.signature(Agent.__init__).parameters
    options = Config().agent_options()
    limits = {name: options.pop(name) for name in DEFAULT_NAMES}
    assert Limits(**limits) == DEFAULTS
    assert set(options) == set(parameters) - {
        *("self", "model", "tools", "ledger", "approve", "limits", "named"),
        *("output", "deps_type", "tool_choice", "parallel", "too_many", "on_event"),  # a program's, not a setting
        *("stop_after", "history_processor", "check_prompt", "check_answer", "on_result"),
    }
    for name, value in options.items():
        default = parameters[name].default
        assert value == default or (not value and not default), name


def test_what_is_said_later_wins(tmp_path: Path) -> None:
    user = tmp_path / "config" / "callgate"
    user.mkdir(parents=True)
    (user / "callgate.toml").write_text('model = "user"\nmax_turns = 2\nretries = 1\nmax_result = 100\n')
    (tmp_path / "callgate.toml").write_text("max_turns = 3\nretries = 0\nmax_result = 200\n")
    environ = {
        **HOME,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "CALLGATE_RETRIES": "4",
        "CALLGATE_MAX_RESULT": "300",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    config.trust(tmp_path / "callgate.toml", environ)
    found = load({"max_result": 400, "protocol": None}, environ=environ, folder=tmp_path)
    assert (found.model, found.max_turns, found.retries, found.max_result) == ("user", 3, 4, 400)
    assert found.sources["max_result"] == "given"
    chosen = tmp_path / "other.toml"
    chosen.write_text("max_calls = 9\n")
    only = load(environ={**environ, "CALLGATE_CONFIG": str(chosen)}, folder=tmp_path)
    assert (only.model, only.max_calls, only.retries) == ("local", 9, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_turn = 3", "max_turn: no such setting; did you mean max_turns?"),
        ("[agent]\nmax_turns = 3", "agent: no such setting"),
        ("max_turns = ", "callgate.toml"),
        ('max_turns = "three"', "whole number"),
        ("max_turns = true", "whole number"),
        ("options = 3", "a table is needed"),
        ('mask_names = "password"', "a list of texts"),
        ("summarize = 1", "true or false"),
        ("model = 3", "text is needed"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "callgate.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"callgate\.toml") as caught:
        load(environ=HOME, folder=tmp_path)
    assert message in str(caught.value)


def test_a_misspelt_variable_is_refused_and_a_foreign_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"CALLGATE_MAX_TURN: no such setting; did you mean CALLGATE_MAX_TURNS"):
        load(environ={**HOME, "CALLGATE_MAX_TURN": "3"}, folder=tmp_path)
    assert load(environ={**HOME, "CALLGATE_CRASHES": "3", "CALLGATE_SEED": "1"}, folder=tmp_path).sources == {}
    with pytest.raises(ConfigError, match="there is no file"):
        load(environ={**HOME, "CALLGATE_CONFIG": str(tmp_path / "none.toml")}, folder=tmp_path)
    with pytest.raises(ConfigError, match="nonsense: no such setting"):
        load({"nonsense": 1}, environ=HOME, folder=tmp_path)


def test_the_ledger_is_in_the_state_folder_unless_said_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert load(environ=HOME, folder=tmp_path).where == f"sqlite:{tmp_path}/callgate/runs.db"
    assert load({"ledger": "memory"}, environ=HOME, folder=tmp_path).where == "memory"


def test_masking_follows_the_settings(tmp_path: Path) -> None:
    environ = {**HOME, "CALLGATE_MASK_NAMES": "patient", "CALLGATE_MASK_PATTERNS": r"EMP-\d+"}
    masking = load(environ=environ, folder=tmp_path).masking
    assert masking.value({"Patient": "x", "note": "EMP-1"}) == {"Patient": "[masked]", "note": "[masked]"}
