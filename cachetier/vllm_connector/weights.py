"""Identity of the weights that a worker has loaded, by their content.

KV computed with other weights must never be read, and weights are replaced in place: a folder is
written again, a hub's branch moves. The digest of each file is kept beside it, so that it is read
once and not at every start. A blob of the Hugging Face cache is named by its digest. Files on a
read-only volume, which holds no record, are identified by size, time of change, and both ends.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RECORD = ".emberline-weights.json"
_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".py")  # the last: a model's own code
_SMALL = frozenset(
    (
        *("config.json", "params.json", "adapter_config.json"),
        *("hf_quant_config.json", "quantize_config.json"),
    )
)
_BLOB = re.compile(r"[0-9a-f]{64}")  # git-lfs: SHA-256 of the content
# Kinds of rope and model whose KV depends on the longest context (`depends_on_arguments`).
_LENGTH_BOUND = re.compile(r'type"\s*:\s*"(longrope|su|dynamic|llama4\w*)"')
_READ_BYTES = 1 << 24
_EDGE_BYTES = 1 << 20
_Stamp = list[int]  # size, times of modification and of change in ns
log = logging.getLogger(__name__)


def weights_identity(model: str, revision: str = "", cache: str = "") -> str:
    """Return the identity of the weights at a path, or of a hub's model in the local cache.

    Without either it is the name alone, with the revision as given. `cache`: of Hugging Face.
    """
    path = Path(model)
    if path.exists():
        return f"sha256:{_digest(path)}"
    snapshot = _find_snapshot(model, revision, cache)
    if snapshot is not None:
        return f"{snapshot.name}:{_digest(snapshot)}"
    return f"{model}@{revision or 'main'}"


def depends_on_arguments(model: str, revision: str = "", cache: str = "") -> bool:
    """Return whether KV depends on `--max-model-len` or the generation configuration, by the
    model's configuration; True if it is not on this machine.

    The longest context decides the factors of vLLM's phi3_long_rope_scaled_rope.py and the
    attention temperature of its llama4.py, which the generation configuration can set as well.
    """
    folder = Path(model) if Path(model).is_dir() else _find_snapshot(model, revision, cache)
    try:
        text = (folder / "config.json").read_text(encoding="utf-8") if folder else ""
    except (OSError, ValueError):
        text = ""
    return not text or _LENGTH_BOUND.search(text) is not None


def _find_snapshot(model: str, revision: str, cache: str) -> Path | None:
    """Return the folder of the revision that the hub's name stands for on this machine."""
    home = cache or os.environ.get("HF_HUB_CACHE", "")
    if not home:
        root = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
        home = str(Path(root) / "hub")
    repository = Path(home) / f"models--{model.replace('/', '--')}"
    named = revision or "main"
    try:
        commit = (repository / "refs" / named).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = named
    snapshot = repository / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _digest(place: Path) -> str:
    """`place`: a folder, or a single file such as a GGUF model."""
    folder = place if place.is_dir() else place.parent
    record = _Record(folder)
    whole = hashlib.sha256()
    for path in _files(folder) if folder is place else (place,):
        whole.update(f"{path.relative_to(folder)}\0{record.digest(path)}\0".encode())
    record.save()
    return whole.hexdigest()[:32]


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (path.suffix in _SUFFIXES or path.name in _SMALL):
            yield path


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


class _Record:
    """Digests of a folder's files, valid while size and times are the same."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORD
        self._keeps = os.access(folder, os.W_OK)
        self._known: dict[str, Any] = {}
        self._changed = False
        try:
            record = json.loads(self._path.read_text(encoding="utf-8"))
            self._known = record if isinstance(record, dict) else {}
        except (OSError, ValueError):
            pass

    def digest(self, path: Path) -> str:
        target = path.resolve()
        if target.parent.name == "blobs" and _BLOB.fullmatch(target.name):
            return target.name
        name, stamp = str(path.relative_to(self._path.parent)), _stamp(target)
        entry = self._known.get(name)
        if isinstance(entry, dict) and entry.get("stamp") == stamp:
            return str(entry.get("digest"))
        if not self._keeps:
            return f"{stamp[0]}-{stamp[1]}-{_edges_digest(target, stamp[0])}"
        began = time.monotonic()
        digest = _content_digest(target)
        log.info("Digest of %s in %.1f s", target, time.monotonic() - began)
        if _stamp(target) == stamp:  # not written meanwhile
            self._known[name] = {"stamp": stamp, "digest": digest}
            self._changed = True
        return digest

    def save(self) -> None:
        if not self._changed:
            return
        half = self._path.with_suffix(f".{os.getpid()}")
        try:
            half.write_text(json.dumps(self._known, indent=1, sort_keys=True), encoding="utf-8")
            half.replace(self._path)
        except OSError as error:
            log.warning("Digests of weights are not kept in %s: %s", self._path, error)


def _content_digest(path: Path) -> str:
    try:
        from blake3 import blake3
    except ImportError:
        return _read_into(hashlib.blake2b(digest_size=32), path)
    hasher: Any = blake3(max_threads=blake3.AUTO)
    hasher.update_mmap(path)
    return f"b3:{hasher.hexdigest()}"


def _read_into(hasher: Any, path: Path) -> str:
    with path.open("rb") as file:
        read: Callable[[], bytes] = lambda: file.read(_READ_BYTES)  # noqa: E731
        for piece in iter(read, b""):
            hasher.update(piece)
    return f"b2:{hasher.hexdigest()}"


def _edges_digest(path: Path, size: int) -> str:
    """Return the digest of the first and last MiB; the first has a safetensors file's tensors."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(_EDGE_BYTES))
        if size > _EDGE_BYTES:
            file.seek(max(size - _EDGE_BYTES, _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()[:32]
