"""Weights are told apart by content, and read once."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from cachetier.vllm_connector import weights
from cachetier.vllm_connector.weights import RECORD, depends_on_arguments, weights_identity

SIZE = 3 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / "model.safetensors").write_bytes(bytes(SIZE))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def change_middle(path: Path, keep_times: bool = False) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(SIZE // 2)
        file.write(b"x")
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_byte_in_the_middle_changes_the_identity(model: Path, keep_times: bool) -> None:
    before = weights_identity(str(model))
    assert weights_identity(str(model)) == before
    change_middle(model / "model.safetensors", keep_times)
    assert weights_identity(str(model)) != before


def test_copies_have_the_same_identity(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "copy"
    other.mkdir()
    for path in model.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    assert weights_identity(str(other)) == weights_identity(str(model))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("config.json", True),
        ("params.json", True),
        ("adapter_config.json", True),
        ("hf_quant_config.json", True),
        ("modeling_own.py", True),
        ("tokenizer.json", False),
        ("README.md", False),
    ],
)
def test_which_files_count(model: Path, name: str, changes: bool) -> None:
    before = weights_identity(str(model))
    (model / name).write_text("{}")
    assert (weights_identity(str(model)) != before) is changes


def test_files_are_read_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = weights._content_digest
    monkeypatch.setattr(
        weights, "_content_digest", lambda path: read.append(path.name) or whole(path)
    )
    first = weights_identity(str(model))
    assert sorted(read) == ["config.json", "model.safetensors"]
    read.clear()
    assert weights_identity(str(model)) == first
    assert read == []
    change_middle(model / "model.safetensors")
    weights_identity(str(model))
    assert read == ["model.safetensors"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model.safetensors": 5}', "\x00"])
def test_damaged_record_is_made_anew(model: Path, text: str) -> None:
    right = weights_identity(str(model))
    (model / RECORD).write_text(text)
    assert weights_identity(str(model)) == right
    assert json.loads((model / RECORD).read_text())["model.safetensors"]["stamp"][0] == SIZE


def test_read_only_folder_is_identified_by_size_time_and_ends(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    before = weights_identity(str(model))
    assert not (model / RECORD).exists()
    assert weights_identity(str(model)) == before
    change_middle(model / "model.safetensors")
    assert weights_identity(str(model)) != before


def test_record_beside_read_only_weights_is_used(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = weights_identity(str(model))
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert weights_identity(str(model)) == right


def hub(tmp_path: Path, commit: str, content: bytes) -> Path:
    """A model in the cache of Hugging Face, `main` at this commit."""
    cache = tmp_path / "hub"
    repository = cache / "models--org--name"
    blob = repository / "blobs" / hashlib.sha256(content).hexdigest()
    for folder in (blob.parent, repository / "refs", repository / "snapshots" / commit):
        folder.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit / "model.safetensors").symlink_to(blob)
    return cache


def test_branch_of_a_hub_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(_path: Path) -> str:
        raise AssertionError("a blob is named by its digest")

    monkeypatch.setattr(weights, "_content_digest", unread)
    cache = hub(tmp_path, "a" * 40, b"old")
    old = weights_identity("org/name", "main", str(cache))
    assert old.startswith("a" * 40)
    hub(tmp_path, "b" * 40, b"new")
    new = weights_identity("org/name", "", str(cache))
    assert new.startswith("b" * 40)
    assert weights_identity("org/name", "a" * 40, str(cache)) == old
    assert weights_identity("org/other", "", str(cache)) == "org/other@main"


def test_without_blake3_another_digest_is_used(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = weights_identity(str(model))
    (model / RECORD).unlink()
    monkeypatch.setitem(__import__("sys").modules, "blake3", None)
    assert weights_identity(str(model)) != before, "its name is part of the digest"


@pytest.mark.parametrize(
    ("config", "depends"),
    [
        ({"model_type": "qwen3", "max_position_embeddings": 32768}, False),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, False),
        ({"quantization_config": {"activation_scheme": "dynamic"}}, False),
        ({"rope_scaling": {"type": "longrope", "long_factor": [1.0]}}, True),
        ({"rope_scaling": {"type": "su"}}, True),
        ({"text_config": {"rope_parameters": {"rope_type": "dynamic"}}}, True),
        ({"model_type": "llama4"}, True),
        ({"text_config": {"model_type": "llama4_text"}}, True),
    ],
)
def test_models_whose_kv_depends_on_the_longest_context(
    model: Path, config: dict[str, object], depends: bool
) -> None:
    (model / "config.json").write_text(json.dumps(config, indent=2))
    assert depends_on_arguments(str(model)) is depends


def test_unknown_model_depends(model: Path, tmp_path: Path) -> None:
    (model / "config.json").unlink()
    assert depends_on_arguments(str(model))
    assert depends_on_arguments("org/model", cache=str(tmp_path))


def test_single_file_is_identified_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(SIZE))
    (tmp_path / "other.gguf").write_bytes(b"1")
    before = weights_identity(str(file))
    (tmp_path / "other.gguf").write_bytes(b"2")
    assert weights_identity(str(file)) == before
    change_middle(file)
    assert weights_identity(str(file)) != before
    assert depends_on_arguments(str(file)), "its configuration is not read"
