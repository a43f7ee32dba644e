"""Parameter count, weight size and KV size per token from a model's `config.json`.

Parameters are computed from the layer shapes as transformers builds them; unsupported
architectures give None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DTYPE_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "float": 4.0}
# 4 bits per weight plus, per group of 128, a 16-bit scale and a 4-bit zero point.
_FOUR_BITS = 0.5 + 20 / 8 / 128
_QUANTIZED_BYTES = {
    "fp8": 1.0,
    "compressed-tensors-8": 1.0,
    "awq": _FOUR_BITS,
    "gptq": _FOUR_BITS,
    "mxfp4": 0.5 + 1 / 32,
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Shape of a model that determines its memory. `kv_layers`: layers that keep KV of every token.
    `latent_dim`: size of the compressed vector kept instead of keys and values (MLA), else 0.
    `linear_params` are quantized; `other_params` (embeddings, head, norms) are not. `weight_bytes`:
    measured on disk, 0 if unknown.
    """

    name: str
    layers: int
    kv_layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    latent_dim: int
    max_context: int
    linear_params: int
    other_params: int
    dtype: str
    quantization: str = ""
    weight_bytes: int = 0

    @property
    def params(self) -> int:
        return self.linear_params + self.other_params

    def weights(self, dtype: str = "", quantization: str = "") -> int:
        packed = _QUANTIZED_BYTES.get(quantization or self.quantization)
        each = _DTYPE_BYTES.get(dtype or self.dtype, 2.0)
        unchanged = not quantization and each == _DTYPE_BYTES.get(self.dtype, 2.0)
        if self.weight_bytes and unchanged:
            return self.weight_bytes
        return int(self.linear_params * (packed or each) + self.other_params * each)

    def kv_token_bytes(self, each: float, ranks: int = 1) -> float:
        """Return the KV bytes of one token on one of `ranks` tensor-parallel GPUs. Heads are split,
        and replicated where there are fewer than GPUs; a latent vector is on every GPU.
        """
        if self.latent_dim:
            return self.kv_layers * self.latent_dim * each
        return 2 * self.kv_layers * max(1, self.kv_heads // ranks) * self.head_dim * each

    def whole_kv_token_bytes(self, each: float) -> float:
        """Return the KV bytes of one token, each head once, as a cache tier stores it."""
        return self.kv_token_bytes(each)


def from_config(
    config: Mapping[str, Any], name: str = "", weight_bytes: int = 0
) -> ModelShape | None:
    """Return the shape, None for an unsupported architecture."""
    text = config.get("text_config")
    if isinstance(text, Mapping):  # multimodal: the language model keeps the KV
        config = {**config, **text}
    try:
        return _shape(config, name, weight_bytes)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _shape(config: Mapping[str, Any], name: str, weight_bytes: int) -> ModelShape:
    hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_dim = int(config.get("head_dim") or hidden // heads)
    lora = int(config.get("kv_lora_rank") or 0)
    latent = lora + int(config["qk_rope_head_dim"]) if lora else 0
    attention = _latent_attention(config) if lora else _attention(hidden, heads, kv_heads, head_dim)
    mlp = _feed_forward(config, hidden, layers)
    vocab = int(config["vocab_size"]) * hidden
    tied = bool(config.get("tie_word_embeddings", False))
    return ModelShape(
        name=name,
        layers=layers,
        kv_layers=_kv_layers(config, layers),
        hidden=hidden,
        intermediate=int(config.get("intermediate_size") or config["moe_intermediate_size"]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        latent_dim=latent,
        max_context=int(config.get("max_position_embeddings") or 0),
        linear_params=layers * attention + mlp,
        other_params=vocab * (1 if tied else 2) + (2 * layers + 1) * hidden,
        dtype=str(config.get("torch_dtype") or config.get("dtype") or "bfloat16"),
        quantization=_quantization(config.get("quantization_config")),
        weight_bytes=weight_bytes,
    )


def _attention(hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    return hidden * head_dim * (2 * heads + 2 * kv_heads)


def _latent_attention(config: Mapping[str, Any]) -> int:
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    rope, nope = int(config["qk_rope_head_dim"]), int(config["qk_nope_head_dim"])
    value, rank = int(config["v_head_dim"]), int(config["kv_lora_rank"])
    query_rank = int(config.get("q_lora_rank") or 0)
    query = heads * (rope + nope)
    query_weights = hidden * query_rank + query_rank * query if query_rank else hidden * query
    return (
        query_weights
        + hidden * (rank + rope)
        + rank * heads * (nope + value)
        + heads * value * hidden
    )


def _feed_forward(config: Mapping[str, Any], hidden: int, layers: int) -> int:
    """Return the MLP parameters of all layers, dense and MoE (experts, router, shared expert)."""
    experts = int(config.get("n_routed_experts") or config.get("num_local_experts") or 0)
    experts = experts or int(config.get("num_experts") or 0)
    dense_size = int(config.get("intermediate_size") or 0)
    if not experts:
        return layers * 3 * hidden * dense_size
    size = int(config.get("moe_intermediate_size") or dense_size)
    shared = int(config.get("n_shared_experts") or 0) * size
    shared = shared or int(config.get("shared_expert_intermediate_size") or 0)
    first_dense = int(config.get("first_k_dense_replace") or 0)
    each = 3 * hidden * (experts * size + shared) + hidden * experts
    return first_dense * 3 * hidden * dense_size + (layers - first_dense) * each


def _kv_layers(config: Mapping[str, Any], layers: int) -> int:
    """Return the number of layers with full attention. Sliding-window and fixed-state layers are
    not counted: exact for long contexts, slightly optimistic for short ones.
    """
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        return sum(kind == "full_attention" for kind in kinds) or layers
    return layers


def _quantization(config: Any) -> str:
    if not isinstance(config, Mapping):
        return ""
    method = str(config.get("quant_method") or "")
    if method == "compressed-tensors":
        bits = [
            (group.get("weights") or {}).get("num_bits")
            for group in (config.get("config_groups") or {}).values()
        ]
        return "compressed-tensors-8" if 8 in bits else "gptq" if 4 in bits else ""
    if method in ("gptq", "awq") and config.get("bits") == 8:
        return "compressed-tensors-8"
    return method if method in _QUANTIZED_BYTES else ""
