"""Model files of other programs' stores: Ollama's folder and the hub's cache, laid out as those programs do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from callgate import providers, weights
from callgate.apps.cli import cli, models
from callgate.errors import ConfigError
from callgate.providers._stores import MODEL_LAYER, find, ollama_folder, stored

DIGEST = "a" * 64
WEIGHTS = weights.find() or Path()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with empty stores."""
    for name in ("OLLAMA_MODELS", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def in_ollama(home: Path, name: str, *, digest: str = DIGEST, data: bytes = b"GGUF", **more: str) -> Path:
    """A model as Ollama stores it; its blob."""
    root = home / ".ollama" / "models"
    manifest = root / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [{"mediaType": MODEL_LAYER, "digest": f"sha256:{digest}", "size": len(data)}]
    layers += [{"mediaType": kind, "digest": held, "size": 1} for kind, held in more.items()]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}), "utf-8")
    blob = root / "blobs" / f"sha256-{DIGEST}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    return blob


def in_hub(home: Path, repo: str, *files: str, commit: str = "c0ffee", main: bool = True) -> Path:
    """A repository as the hub's client caches it; its snapshot."""
    folder = home / ".cache" / "huggingface" / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for file in files:
        (snapshot / file).write_bytes(b"GGUF" * 10)
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit, "utf-8")
    return snapshot


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("ollama/qwen3", "registry.ollama.ai/library/qwen3/latest"),
        ("ollama/qwen3:0.6b", "registry.ollama.ai/library/qwen3/0.6b"),
        ("ollama/ann/tuned:q4", "registry.ollama.ai/ann/tuned/q4"),
        ("ollama/hf.co/ann/Some-GGUF:Q4_K_M", "hf.co/ann/Some-GGUF/Q4_K_M"),
    ],
)
def test_a_model_of_ollama_is_found_by_its_name(home: Path, name: str, place: str) -> None:
    blob = in_ollama(home, place)
    assert find(name).path == blob
    (found,) = stored()
    assert found.name.removesuffix(":latest") == f"local:{name}"
    assert find(found.name.removeprefix("local:")) == found


def test_the_folder_of_ollama_is_the_one_that_it_would_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ollama_folder() == home / ".ollama" / "models" or ollama_folder().parts[1:3] == ("usr", "share")
    monkeypatch.setenv("OLLAMA_MODELS", "/elsewhere")
    assert ollama_folder() == Path("/elsewhere")


@pytest.mark.parametrize(
    "damage",
    [
        {"digest": "../../etc/passwd"},
        {"digest": "b" * 64},  # its blob is not here
        {"application/vnd.ollama.image.adapter": f"sha256:{DIGEST}"},
    ],
    ids=["digest", "blob", "adapter"],
)
def test_a_manifest_that_names_no_one_file_is_refused(home: Path, damage: dict[str, Any]) -> None:
    in_ollama(home, "registry.ollama.ai/library/qwen3/latest", **damage)
    with pytest.raises(ConfigError, match="names no one model file that is here: pull it again"):
        find("ollama/qwen3")
    assert stored() == []


def test_a_damaged_manifest_is_refused_and_hides_no_other_model(home: Path) -> None:
    in_ollama(home, "registry.ollama.ai/library/good/latest")
    for number, text in enumerate(["", "[]", '{"layers": 3}', '{"layers": [{"mediaType": 1}]}', "\xff\xfe"]):
        place = home / ".ollama/models/manifests/registry.ollama.ai/library" / f"bad{number}"
        place.mkdir()
        (place / "latest").write_text(text, "latin-1")
        with pytest.raises(ConfigError, match="pull it again"):
            find(f"ollama/bad{number}")
    assert [found.name for found in stored()] == ["local:ollama/good:latest"]


def test_a_repository_of_the_hub_is_found_in_the_snapshot_that_main_names(home: Path) -> None:
    old = in_hub(home, "ann/Some-GGUF", "some-Q4_K_M.gguf", commit="0ld", main=False)
    new = in_hub(home, "ann/Some-GGUF", "some-Q4_K_M.gguf", "some-Q8_0.gguf", "mmproj-f16.gguf", "README.md")
    assert old != new
    assert find("hf/ann/Some-GGUF:q8").path == new / "some-Q8_0.gguf"
    assert find("hf/ann/Some-GGUF:some-Q4_K_M.gguf").path == new / "some-Q4_K_M.gguf"
    with pytest.raises(ConfigError, match=r"after a colon: some-Q4_K_M\.gguf, some-Q8_0\.gguf$"):
        find("hf/ann/Some-GGUF")


def test_a_model_in_pieces_is_one_model(home: Path) -> None:
    snapshot = in_hub(home, "ann/Big", *(f"big-0000{n}-of-00003.gguf" for n in (1, 2, 3)))
    assert find("hf/ann/Big").path == snapshot / "big-00001-of-00003.gguf"
    assert [(found.name, found.size) for found in stored()] == [("local:hf/ann/Big:big-00001-of-00003.gguf", 120)]


def test_what_is_not_there_is_one_line_with_what_there_is(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no such model; it holds none that can be used; `ollama pull qwen3`"):
        find("ollama/qwen3")
    in_ollama(home, "registry.ollama.ai/library/phi4/latest")
    with pytest.raises(ConfigError, match=r"there are local:ollama/phi4:latest"):
        find("ollama/qwen3")
    with pytest.raises(ConfigError, match="has no GGUF file of it; it holds none"):
        find("hf/ann/None")


@given(
    name=st.one_of(
        st.text(max_size=12),
        st.lists(st.sampled_from(["..", ".", "", "a", "~", "/", ":", "\\", "C:", "\x00"]), max_size=6).map("/".join),
    )
)
def test_a_name_never_leads_out_of_its_store(name: str) -> None:
    """Whatever is asked for: a model of the store, or ConfigError; no other error, and no file from elsewhere."""
    for store in ("ollama", "hf"):
        try:
            found = find(f"{store}/{name}")
        except ConfigError:
            continue
        assert found in stored()


@pytest.mark.model
@pytest.mark.skipif(not WEIGHTS.is_file(), reason="the embedded weights are not here: callgate model pull")
def test_a_model_of_a_store_is_opened_by_its_name(home: Path) -> None:
    blob = in_ollama(home, "registry.ollama.ai/library/smol/135m")
    blob.unlink()
    blob.symlink_to(WEIGHTS)
    provider = providers.open("local:ollama/smol:135m")
    assert (provider.name, provider.model) == ("local", "smol:135m")
    shown = CliRunner().invoke(cli, ["models", "local"])
    assert "local:ollama/smol:135m" in shown.output
    assert "93 MB" in shown.output or "92 MB" in shown.output


def test_what_is_missing_is_told_with_the_way_to_it(home: Path) -> None:
    """A new machine: no weights, no server; a model of Ollama's store that is damaged."""
    in_ollama(home, "registry.ollama.ai/library/broken/latest")
    done = CliRunner().invoke(cli, ["models"])
    assert done.exit_code == 0
    told = [line for line in done.stderr.splitlines() if line.startswith("missing: ")]
    assert len(told) == len(set(told))
    for words in (
        "callgate model pull",
        "cannot be read as GGUF",
        "ollama: ",
        "llama-server: ",
        "lmstudio: ",
        "vllm: ",
    ):
        assert sum(words in line for line in told) >= 1, words
    assert done.stdout == ""


def test_a_model_that_does_not_fit_is_said_to_be_too_large(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models._memory(1) == ""
    monkeypatch.setattr(models, "_free", lambda: 4_000_000_000)
    assert models._memory(40_000_000_000) == "too large for the memory that is free here: 40.5 GB or more of 4.0 GB"
