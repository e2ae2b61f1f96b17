"""GGUF files that other programs on this machine hold already: Ollama's store and the cache of the Hugging Face hub.

Law: a name never leads out of its store, and looking never writes or fetches.
(tests/test_stores.py::test_a_name_never_leads_out_of_its_store)

The layouts, which both programs keep stable because several versions of them share one folder:
 - Ollama: `manifests/HOST/OWNER/NAME/TAG` is JSON with layers; the layer of type `…image.model` names its blob
   `blobs/sha256-HEX`. HOST is registry.ollama.ai and OWNER is "library" unless the name says otherwise.
 - The hub: `models--OWNER--NAME/refs/main` holds a commit, `snapshots/COMMIT/FILE` are links to `blobs/`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from callgate.errors import ConfigError

MODEL_LAYER: Final = "application/vnd.ollama.image.model"
_ADAPTER: Final = "application/vnd.ollama.image.adapter"
_DIGEST: Final = re.compile(r"sha256[:-]([0-9a-f]{64})\Z")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
"""One part of a name. It cannot begin with a dot, so it is no way up."""
_PIECE: Final = re.compile(r"-(\d{5})-of-\d{5}\.gguf\Z")
MAX_MANIFEST: Final = 1 << 20
"""Bytes of a manifest that are read; real ones have about one thousand."""
SHOWN: Final = 8
"""Names that an error lists."""


@dataclass(slots=True, frozen=True)
class Stored:
    """A model file in a store."""

    name: str
    """What `providers.open` takes: "local:ollama/qwen3:0.6b"."""
    path: Path
    size: int
    """Bytes, of all its pieces."""


def find(name: str) -> Stored:
    """The model "ollama/NAME[:TAG]" or "hf/OWNER/REPO[:FILE]". Raises ConfigError, with what there is, if it is not
    there; nothing is fetched."""
    store, _, rest = name.partition("/")
    return _in_ollama(rest) if store == "ollama" else _in_hub(rest)


def is_stored(name: str) -> bool:
    """Whether the name is one of a store, and not a path."""
    return name.startswith(("ollama/", "hf/"))


def stored() -> list[Stored]:
    """Every model file that the stores hold, by name; a store that is damaged or missing has none."""
    return sorted([*_all_in_ollama(), *_all_in_hub()], key=lambda found: found.name)


# --- Ollama -----------------------------------------------------------------------------------------------------------


def ollama_folder() -> Path:
    """Where Ollama keeps its models: OLLAMA_MODELS, the user's folder, or that of the service on Linux."""
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return Path(chosen)
    own = Path.home() / ".ollama" / "models"
    service = Path("/usr/share/ollama/.ollama/models")
    return service if not own.is_dir() and service.is_dir() else own


def _in_ollama(name: str) -> Stored:
    manifest = ollama_folder() / "manifests" / _manifest(name)
    if not manifest.is_file():
        raise ConfigError(
            f"local:ollama/{name}: Ollama's store in {ollama_folder()} has no such model; "
            f"{_there_are(_all_in_ollama())}; `ollama pull {name}` fetches it"
        )
    found = _of_manifest(manifest, f"local:ollama/{name}")
    if found is None:
        raise ConfigError(f"local:ollama/{name}: {manifest} names no one model file that is here: pull it again")
    return found


def _manifest(name: str) -> Path:
    """The place of a name's manifest under `manifests`. Raises ConfigError for what is no name."""
    rest, _, tag = name.partition(":")
    parts = rest.split("/")
    if len(parts) > 3 or not all(map(_PART.match, [*parts, tag or "latest"])):
        raise ConfigError(f"local:ollama/{name}: no name of a model; write local:ollama/NAME or local:ollama/NAME:TAG")
    whole = [*["registry.ollama.ai", "library"][: 3 - len(parts)], *parts]  # what is left out is left out in front
    return Path(*whole, tag or "latest")


def _of_manifest(manifest: Path, name: str) -> Stored | None:
    """The one model file that a manifest names; None if it is not here, or needs an adapter that we do not load."""
    try:
        with manifest.open("rb") as file:
            layers = json.loads(file.read(MAX_MANIFEST))["layers"]
        kinds = {str(layer["mediaType"]): str(layer["digest"]) for layer in layers}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    digest = _DIGEST.match(kinds.get(MODEL_LAYER, ""))
    if digest is None or _ADAPTER in kinds:
        return None
    blob = ollama_folder() / "blobs" / f"sha256-{digest[1]}"
    return Stored(name, blob, blob.stat().st_size) if blob.is_file() else None


def _all_in_ollama() -> Iterator[Stored]:
    root = ollama_folder() / "manifests"
    for manifest in sorted(root.glob("*/*/*/*")):
        host, owner, model, tag = manifest.relative_to(root).parts
        place = {"registry.ollama.ai": ""}.get(host, f"{host}/")
        whole = f"{place}{'' if not place and owner == 'library' else f'{owner}/'}{model}:{tag}"
        if manifest.is_file() and (found := _of_manifest(manifest, f"local:ollama/{whole}")) is not None:
            yield found


# --- the hub's cache --------------------------------------------------------------------------------------------------


def hub_folder() -> Path:
    """Where the hub's own client keeps what it fetched, by its own variables."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(chosen)
    if home := os.environ.get("HF_HOME"):
        return Path(home) / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface" / "hub"


def _in_hub(name: str) -> Stored:
    repo, _, wanted = name.partition(":")
    parts = repo.split("/")
    if len(parts) != 2 or not all(map(_PART.match, parts)):
        raise ConfigError(f"local:hf/{name}: no name of a repository; write local:hf/OWNER/REPO or …/REPO:FILE")
    files = list(_of_repository(hub_folder() / f"models--{'--'.join(parts)}", repo))
    if not files:
        raise ConfigError(
            f"local:hf/{name}: the hub's cache in {hub_folder()} has no GGUF file of it; {_there_are(_all_in_hub())}"
        )
    chosen = [found for found in files if wanted.lower() in found.path.name.lower()]
    if len(chosen) != 1:
        names = ", ".join(found.path.name for found in files[:SHOWN])
        raise ConfigError(f"local:hf/{name}: give one of its files, or a part of its name, after a colon: {names}")
    return chosen[0]


def _of_repository(folder: Path, repo: str) -> Iterator[Stored]:
    """The model files of the newest snapshot; of a model in pieces the first, which leads to the others."""
    commits = list((folder / "snapshots").glob("*"))
    if not commits:
        return
    newest = max(commits, key=lambda commit: commit.stat().st_mtime)
    main = folder / "refs" / "main"
    named = main.read_text("utf-8", "replace").strip() if main.is_file() else ""
    snapshot = next((commit for commit in commits if commit.name == named), newest)
    for path in sorted(snapshot.rglob("*.gguf")):
        piece = _PIECE.search(path.name)
        if not path.is_file() or path.name.lower().startswith("mmproj") or (piece and piece[1] != "00001"):
            continue  # a link whose blob was removed, the eyes of a model, or a later piece
        pieces = path.parent.glob(_PIECE.sub("-*-of-*.gguf", path.name)) if piece else [path]
        yield Stored(f"local:hf/{repo}:{path.name}", path, sum(each.stat().st_size for each in pieces))


def _all_in_hub() -> Iterator[Stored]:
    for folder in sorted(hub_folder().glob("models--*--*")):
        owner, _, model = folder.name.removeprefix("models--").partition("--")
        yield from _of_repository(folder, f"{owner}/{model}")


def _there_are(found: Iterator[Stored]) -> str:
    names = [each.name for each in found]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"there are {', '.join(names[:SHOWN])}{more}" if names else "it holds none that can be used"
