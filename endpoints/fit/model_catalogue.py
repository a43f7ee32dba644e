"""Shapes of models without local files, from their published `config.json`.

The match is exact: names of distillations and forks are not guessed, even if similar. Licences of
known models are copied from the model cards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from endpoints.fit.model_shape import ModelShape, from_config

_FIELDS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
)

# Values in the order of _FIELDS.
_DENSE: dict[str, tuple[int, int, int, int, int, int, int, int, bool]] = {
    "llama-3.1-8b": (32, 4096, 32, 8, 128, 14336, 128256, 131072, False),
    "llama-3.1-70b": (80, 8192, 64, 8, 128, 28672, 128256, 131072, False),
    "llama-3.1-405b": (126, 16384, 128, 8, 128, 53248, 128256, 131072, False),
    "llama-3.2-1b": (16, 2048, 32, 8, 64, 8192, 128256, 131072, True),
    "llama-3.2-3b": (28, 3072, 24, 8, 128, 8192, 128256, 131072, True),
    "mistral-7b-v0.3": (32, 4096, 32, 8, 128, 14336, 32768, 32768, False),
    "qwen2.5-0.5b": (24, 896, 14, 2, 64, 4864, 151936, 32768, True),
    "qwen2.5-1.5b": (28, 1536, 12, 2, 128, 8960, 151936, 32768, True),
    "qwen2.5-3b": (36, 2048, 16, 2, 128, 11008, 151936, 32768, True),
    "qwen2.5-7b": (28, 3584, 28, 4, 128, 18944, 152064, 32768, False),
    "qwen2.5-14b": (48, 5120, 40, 8, 128, 13824, 152064, 32768, False),
    "qwen2.5-32b": (64, 5120, 40, 8, 128, 27648, 152064, 32768, False),
    "qwen2.5-72b": (80, 8192, 64, 8, 128, 29568, 152064, 32768, False),
    "qwen3-8b": (36, 4096, 32, 8, 128, 12288, 151936, 40960, False),
    "qwen3-14b": (40, 5120, 40, 8, 128, 17408, 151936, 40960, False),
    "qwen3-32b": (64, 5120, 64, 8, 128, 25600, 151936, 40960, False),
    "deepseek-r1-distill-qwen-1.5b": (28, 1536, 12, 2, 128, 8960, 151936, 131072, False),
    "deepseek-r1-distill-qwen-7b": (28, 3584, 28, 4, 128, 18944, 152064, 131072, False),
    "deepseek-r1-distill-qwen-14b": (48, 5120, 40, 8, 128, 13824, 152064, 131072, False),
    "deepseek-r1-distill-qwen-32b": (64, 5120, 40, 8, 128, 27648, 152064, 131072, False),
    "smollm2-135m": (30, 576, 9, 3, 64, 1536, 49152, 8192, True),
}
_EXPERTS: dict[str, dict[str, Any]] = {
    "mixtral-8x7b": {
        **dict(zip(_FIELDS, (32, 4096, 32, 8, 128, 14336, 32000, 32768, False), strict=True)),
        "num_local_experts": 8,
    },
    "qwen3-30b-a3b": {
        **dict(zip(_FIELDS, (48, 2048, 32, 4, 128, 6144, 151936, 40960, False), strict=True)),
        "num_experts": 128,
        "moe_intermediate_size": 768,
    },
    "deepseek-v3": {
        **dict(zip(_FIELDS, (61, 7168, 128, 128, 0, 18432, 129280, 163840, False), strict=True)),
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "quantization_config": {"quant_method": "fp8"},
    },
}
_ALIASES = {
    "llama-3.3-70b": "llama-3.1-70b",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.1-70b",
    "deepseek-r1": "deepseek-v3",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
}
_NOISE = re.compile(r"^(meta-|mistralai-)|-(instruct|chat|it|base)(?=$|-v\d)")


def find_shape(model: str) -> ModelShape | None:
    """Return the shape by published name, with or without organisation and "-Instruct"."""
    name = model.rsplit("/", 1)[-1].lower()
    name = _NOISE.sub("", name)
    name = _ALIASES.get(name, name)
    if name in _DENSE:
        config: dict[str, Any] = dict(zip(_FIELDS, _DENSE[name], strict=True))
    elif name in _EXPERTS:
        config = _EXPERTS[name]
    else:
        return None
    return from_config({**config, "torch_dtype": "bfloat16"}, name)


def names() -> tuple[str, ...]:
    return tuple(sorted((*_DENSE, *_EXPERTS, *_ALIASES)))


APACHE, MIT = "Apache 2.0", "MIT"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Model of the catalogue. `gated`: a download needs a Hugging Face token with access granted by
    the publisher.
    """

    name: str
    licence: str
    gated: bool = False

    @property
    def shape(self) -> ModelShape | None:
        return find_shape(self.name)


def _llama(version: str, *sizes: str) -> list[KnownModel]:
    licence = f"Llama {version} Community"
    return [
        KnownModel(f"meta-llama/Llama-{version}-{size}-Instruct", licence, gated=True)
        for size in sizes
    ]


def _distilled(*bases: str) -> list[KnownModel]:
    return [KnownModel(f"deepseek-ai/DeepSeek-R1-Distill-{base}", MIT) for base in bases]


KNOWN_MODELS = (
    *_llama("3.1", "8B", "70B", "405B"),
    *_llama("3.2", "1B", "3B"),
    *_llama("3.3", "70B"),
    KnownModel("mistralai/Mistral-7B-Instruct-v0.3", APACHE),
    KnownModel("mistralai/Mixtral-8x7B-Instruct-v0.1", APACHE),
    *(
        KnownModel(f"Qwen/Qwen2.5-{size}-Instruct", licence)
        for size, licence in (
            ("0.5B", APACHE),
            ("1.5B", APACHE),
            ("3B", "Qwen Research"),
            ("7B", APACHE),
            ("14B", APACHE),
            ("32B", APACHE),
            ("72B", "Qwen"),
        )
    ),
    *(KnownModel(f"Qwen/Qwen3-{size}", APACHE) for size in ("8B", "14B", "32B", "30B-A3B")),
    *_distilled("Qwen-1.5B", "Qwen-7B", "Qwen-14B", "Qwen-32B", "Llama-8B", "Llama-70B"),
    KnownModel("deepseek-ai/DeepSeek-V3", "DeepSeek"),
    KnownModel("deepseek-ai/DeepSeek-R1", MIT),
    KnownModel("HuggingFaceTB/SmolLM2-135M-Instruct", APACHE),
)
BY_NAME = {model.name.lower(): model for model in KNOWN_MODELS}
