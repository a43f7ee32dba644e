"""The vLLM and the model of the tests, both made by `make vllm`.

Other ones: EMBERLINE_VLLM_PYTHON (default .venv-vllm/bin/python) and EMBERLINE_MODEL (default
var/models/smollm2-135m-instruct).
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import struct
import tempfile
from pathlib import Path

import pytest

from tests.support.cachenode import ROOT


def vllm_python() -> Path:
    """Fail, do not skip, without vLLM: a proof that was not run is not a proof."""
    if os.environ.get("EMBERLINE_TEST_WORKERS") == "simulated":  # see tests/settings.py
        pytest.skip("WORKERS=simulated: real vLLM was ruled out by the caller")
    default = ROOT / ".venv-vllm" / "bin" / "python"
    python = Path(os.environ.get("EMBERLINE_VLLM_PYTHON", default))
    if not python.exists():
        pytest.fail(f"no vLLM at {python}: run `make vllm` (or set WORKERS=simulated)")
    return python


def model_path() -> Path:
    default = ROOT / "var" / "models" / "smollm2-135m-instruct"
    model = Path(os.environ.get("EMBERLINE_MODEL", default))
    if not (model / "config.json").exists():
        pytest.fail(f"no model at {model}: run `make vllm` (or set WORKERS=simulated)")
    return model


LAYERS = 4


@functools.cache
def short_model_path() -> Path:
    """Return a copy of the model with its first `LAYERS` of 30 layers.

    Its text makes no sense, but tokens, blocks, events and transfers are those of the whole model
    at a seventh of the computing. Blocks are smaller: see `fixtures.BLOCK_BYTES`.
    """
    source = model_path()
    target = source.with_name(f"{source.name}-{LAYERS}-layers")
    if (target / "config.json").exists():
        return target
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        copy = Path(folder) / "model"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.safetensors"))
        config = json.loads((source / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": LAYERS}))
        _copy_tensors(source / "model.safetensors", copy / "model.safetensors")
        if not target.exists():
            copy.rename(target)
    return target


def _copy_tensors(source: Path, target: Path) -> None:
    """Copy what is of the first layers or of none (https://github.com/huggingface/safetensors,
    "Format": length of the header, JSON header with offsets, data)."""
    with source.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        kept, data = {}, bytearray()
        for name, tensor in header.items():
            layer = name.partition(".layers.")[2].partition(".")[0]
            if layer and int(layer) >= LAYERS:
                continue
            start, end = tensor["data_offsets"]
            file.seek(8 + length + start)
            kept[name] = tensor | {"data_offsets": [len(data), len(data) + end - start]}
            data += file.read(end - start)
    head = json.dumps({"__metadata__": {"format": "pt"}} | kept).encode()
    target.write_bytes(struct.pack("<Q", len(head)) + head + data)
