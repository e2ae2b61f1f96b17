"""Keys in a file of the user's own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from callgate import config, providers
from callgate.errors import ConfigError
from callgate.providers.openai import VENDORS
from command import Person, run

KEY = "sk-kept-0123456789abcdef"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a new user without keys in the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for row in VENDORS.values():
        for variable in (row.key, row.url_variable):
            monkeypatch.delenv(variable or "-", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    return tmp_path / "callgate" / "keys.json"


def test_the_file_is_beside_the_settings(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert providers.keys_place() == place == config.config_folder() / "keys.json"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert providers.keys_place().parent == config.config_folder()


def test_a_key_goes_to_its_own_address_only(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    providers.keep_key("openai", KEY)
    providers.keep_key("http://127.0.0.1:9000/v1/", "sk-of-this-server-0123")

    def sent(model: str, **options: str) -> tuple[str, ...]:
        return providers.secrets_of(providers.open(model, **options))

    assert sent("openai:gpt-5") == sent("openai-responses:gpt-5") == (KEY,)
    assert sent("https://api.openai.com/v1#gpt-5") == (KEY,)
    providers.keep_key("anthropic", KEY)
    assert sent("anthropic:claude") == (KEY,)
    assert sent("http://127.0.0.1:9000/v1#m") == ("sk-of-this-server-0123",)
    assert sent("http://127.0.0.1:9001/v1#m") == ()
    assert sent("openai:gpt-5", key="sk-given-0123456789") == ("sk-given-0123456789",)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment-0123")
    assert sent("openai:gpt-5") == ("sk-environment-0123",)
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9002/v1")
    with pytest.raises(ConfigError, match="no key; run `callgate keys set openai`"):
        sent("openai:gpt-5")


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_the_file_is_the_owners_alone_and_another_is_not_read(place: Path) -> None:
    os.umask(before := os.umask(0))
    providers.keep_key("groq", KEY)
    assert place.stat().st_mode & 0o777 == 0o600
    assert os.umask(before) == before
    place.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        providers.open("groq:m")
    with pytest.raises(ConfigError, match="chmod 600"):
        providers.keep_key("groq", KEY)


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_file_that_cannot_be_used_is_a_warning_for_servers_that_need_no_key(
    place: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    place.parent.mkdir(parents=True)
    place.write_text("broken" if mode == 0o600 else "{}", "utf-8")
    place.chmod(mode)
    assert providers.secrets_of(providers.open("http://127.0.0.1:9001/v1#m")) == ()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(place) in caplog.text
    with pytest.raises(ConfigError, match=r"keys\.json"):
        providers.open("groq:m")


@pytest.mark.parametrize("text", ["", "[]", '{"groq": 3}', "\x00"])
def test_a_damaged_file_is_one_line_and_is_not_written_over(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True)
    place.write_text(text, "utf-8")
    place.chmod(0o600)
    with pytest.raises(ConfigError, match="set the keys again"):
        providers.keep_key("groq", KEY)
    assert place.read_text("utf-8") == text


def test_keys_are_kept_and_forgotten_one_by_one(place: Path) -> None:
    providers.keep_key("groq", KEY)
    providers.keep_key("openai", "other")
    assert providers.keep_key("groq", None)
    assert not providers.keep_key("groq", None)
    assert providers.kept_keys() == {"openai": "other"}
    assert json.loads(place.read_text("utf-8")) == {"openai": "other"}
    assert [path.name for path in place.parent.iterdir()] == ["keys.json"]


def test_a_key_is_never_printed_and_never_an_argument(tmp_path: Path) -> None:
    done = run(tmp_path, "keys", "set", "groq", given=f"{KEY}\n")
    assert (done.returncode, done.stdout) == (0, "")
    listed = run(tmp_path, "keys", "list", OPENAI_API_KEY=KEY)
    assert "groq  kept in " in listed.stdout
    assert "openai  from OPENAI_API_KEY" in listed.stdout
    refused = run(tmp_path, "keys", "set", "groq", KEY)
    assert refused.returncode == 2
    gone = run(tmp_path, "keys", "remove", "groq")
    again = run(tmp_path, "keys", "remove", "groq")
    assert (gone.returncode, again.returncode) == (0, 1)
    assert "no key is kept for it; there are keys for: none" in again.stderr
    for told in (done, listed, gone, again):
        assert KEY not in told.stdout + told.stderr


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("groqq", KEY, "no vendor that wants a key; there are anthropic, azure"),
        ("vllm", KEY, "no vendor that wants a key"),
        ("groq", "", "one word of printable ASCII"),
        ("groq", "two words", "one word of printable ASCII"),
        ("groq", "键" * 8, "one word of printable ASCII"),
        ("groq", "x" * 300, "one word of printable ASCII"),
    ],
)
def test_what_is_no_key_is_one_line_and_nothing_is_kept(tmp_path: Path, name: str, given: str, says: str) -> None:
    done = run(tmp_path, "keys", "set", name, given=f"{given}\n")
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("keys.json"))


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_a_key_that_is_typed_is_not_shown_and_ctrl_c_keeps_nothing(tmp_path: Path) -> None:
    with Person(tmp_path, "keys", "set", "groq") as person:
        person.waits_for("key of groq: ")
        person.types("\x03")
        assert person.leaves() == 130
    assert not list(tmp_path.rglob("keys.json"))
    with Person(tmp_path, "keys", "set", "groq") as person:
        person.waits_for("key of groq: ")
        person.types(f"{KEY}\n")
        person.waits_for("the key of groq is kept in ")
        assert person.leaves() == 0
    assert KEY not in person.seen
