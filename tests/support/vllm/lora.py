"""LoRA adapter of random weights for the test model; only its block hashes matter."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.vllm.forks import run_vllm_python
from tests.support.vllm.installation import short_model_path

_MAKE = """
import json, sys, torch
from safetensors.torch import save_file
model, out, seed, rank = sys.argv[1], sys.argv[2], int(sys.argv[3]), 8
config = json.load(open(f"{model}/config.json"))
hidden, heads = config["hidden_size"], config["num_attention_heads"]
wide = hidden // heads * config["num_key_value_heads"]
torch.manual_seed(seed)
scale = 0.01 if seed == 1 else 0.5
weights = {}
for layer in range(config["num_hidden_layers"]):
    for name, width in (("q_proj", hidden), ("v_proj", wide)):
        place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
        weights[f"{place}.lora_A.weight"] = torch.randn(rank, hidden) * scale
        weights[f"{place}.lora_B.weight"] = torch.randn(width, rank) * scale
save_file(weights, f"{out}/adapter_model.safetensors")
"""


def make_adapter(folder: Path, seed: int = 1) -> Path:
    """Weights of another seed than 1 are large enough to change the model's text."""
    folder.mkdir(exist_ok=True)
    facts = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(short_model_path()),
        "r": 8,
        "lora_alpha": 8,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(facts))
    run_vllm_python("-c", _MAKE, str(short_model_path()), str(folder), str(seed)).check_returncode()
    return folder
