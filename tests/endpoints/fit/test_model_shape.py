"""Published parameters, KV size as in vLLM, and unknown shapes."""

from __future__ import annotations

import json

import pytest

from endpoints.fit.model_catalogue import find_shape, names
from endpoints.fit.model_shape import ModelShape, from_config

# Billions, from the models' cards.
PUBLISHED = {
    "meta-llama/Llama-3.1-8B-Instruct": 8.03,
    "Llama-3.1-70B": 70.55,
    "meta-llama/Llama-3.1-405B": 405.85,
    "meta-llama/Llama-3.2-1B-Instruct": 1.236,
    "meta-llama/Llama-3.2-3B": 3.213,
    "Qwen/Qwen2.5-7B-Instruct": 7.616,
    "Qwen/Qwen2.5-72B": 72.71,
    "Qwen/Qwen3-32B": 32.76,
    "mistralai/Mistral-7B-Instruct-v0.3": 7.248,
    "mistralai/Mixtral-8x7B": 46.70,
    "Qwen/Qwen3-30B-A3B": 30.53,
    "deepseek-ai/DeepSeek-R1": 671.0,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1.777,
}


def found(model: str) -> ModelShape:
    shape = find_shape(model)
    assert shape is not None, model
    return shape


@pytest.mark.parametrize("model", PUBLISHED)
def test_parameters_equal_those_of_the_model_card(model: str) -> None:
    assert found(model).params / 1e9 == pytest.approx(PUBLISHED[model], rel=0.005)


def test_every_known_name_has_a_shape() -> None:
    assert all(find_shape(name) is not None for name in names())


@pytest.mark.parametrize("model", ["llama-3.1-9b", "some/llama-3.1-8b-abliterated", "", "gpt-2"])
def test_similar_name_is_unknown(model: str) -> None:
    assert find_shape(model) is None


def test_kv_bytes_of_a_token_by_tensor_parallel_rank() -> None:
    shape = found("llama-3.1-70b")
    assert shape.kv_token_bytes(2) == 327_680  # 2 x 80 layers x 8 heads x 128 x 2 bytes
    assert shape.kv_token_bytes(2, 8) == 40_960
    assert shape.kv_token_bytes(2, 16) == 40_960, "a head cannot be cut: it is repeated"
    assert shape.whole_kv_token_bytes(1) == 163_840


def test_latent_vector_is_stored_on_every_gpu() -> None:
    shape = found("deepseek-v3")
    assert shape.kv_token_bytes(2) == shape.kv_token_bytes(2, 8) == 61 * 576 * 2


def test_quantized_weights_are_smaller_and_embeddings_are_not() -> None:
    shape = found("llama-3.1-8b")
    assert shape.weights() == shape.params * 2
    assert shape.weights(quantization="fp8") == shape.linear_params + shape.other_params * 2
    assert shape.weights(quantization="awq") / 1e9 == pytest.approx(5.7, rel=0.02)
    assert shape.weights(dtype="float32") == shape.params * 4


def test_size_on_disk_counts_unless_quantization_changes() -> None:
    config = {**json.loads(CONFIG), "torch_dtype": "float32"}
    shape = from_config(config, weight_bytes=538_091_000)
    assert shape is not None
    assert shape.weights() == 538_091_000
    assert shape.weights(dtype="float32") == 538_091_000
    assert shape.weights(dtype="bfloat16") == shape.params * 2


def test_only_full_attention_grows_with_the_context() -> None:
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    shape = from_config({**json.loads(CONFIG), "layer_types": kinds * 5})
    assert shape is not None
    assert shape.kv_layers == 5


@pytest.mark.parametrize(
    "config", [{}, {"hidden_size": "x"}, {"hidden_size": 8, "num_hidden_layers": None}, {"d": 1}]
)
def test_unknown_shape_is_none(config: dict[str, object]) -> None:
    assert from_config(config) is None


def test_language_part_of_a_vision_model() -> None:
    shape = from_config({"model_type": "x", "text_config": json.loads(CONFIG)})
    assert shape is not None
    assert shape.layers == 30


CONFIG = json.dumps(
    {
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
)


def test_demo_model_has_the_size_of_its_file() -> None:
    """Its config as published, against the parameters its card names."""
    shape = from_config(json.loads(CONFIG))
    assert shape is not None
    assert shape.params == 134_515_008
