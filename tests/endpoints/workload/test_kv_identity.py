"""Arguments that may change KV give an endpoint a namespace of its own."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints.spec.endpoint_spec import merge, parse
from endpoints.workload.kv_identity import adapter_paths, kv_identity, model_arguments


def identity(data: dict[str, Any], *arguments: str, **patch: Any) -> str:
    return kv_identity(parse(merge(data, {"worker_args": list(arguments), **patch})), "w")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--hf-overrides", '{"rope_theta": 1}'),
        ('--hf-overrides={"rope_theta": 1}',),
        ("--quantization", "fp8"),
        ("--kv-cache-dtype=fp8",),
        ("--dtype", "bfloat16"),
        ("--revision", "abc"),
        ("--rope-scaling", "{}"),
        ("--load-format", "dummy"),
        ("--an-option-of-tomorrow",),
    ],
)
def test_argument_changes_the_identity(data: dict[str, Any], arguments: tuple[str, ...]) -> None:
    assert identity(data, *arguments) != identity(data)
    assert identity(data, *arguments).startswith("w#")


def test_values_and_spelling(data: dict[str, Any]) -> None:
    assert identity(data, "--quantization=fp8") == identity(data, "--quantization", "fp8")
    assert identity(data, "--quantization=fp8") != identity(data, "--quantization=awq")
    assert identity(data, "--xx", "--yy") == identity(data, "--yy", "--xx")
    assert identity(data, "--load-format=safetensors", "--max-num-seqs", "4", "--seed=1") == "w"


def test_variables_and_version(data: dict[str, Any]) -> None:
    pod = {"placement.cluster": "east"}
    assert identity(data, **pod, **{"pod.env": {"VLLM_ATTENTION_BACKEND": "X"}}) != "w"
    assert identity(data, **pod, **{"pod.env": {"HTTP_PROXY": "X"}}) == "w"
    one, two = (identity(data, **pod, **{"source.weights_version": v}) for v in ("1", "2"))
    assert len({one, two, "w"}) == 3


def test_what_the_worker_decides_is_no_part_of_the_identity(data: dict[str, Any]) -> None:
    arguments = (
        *("--max-model-len", "9", "--lora_modules", "a=/adapters/b", '{"name": "c", "path": "/d"}'),
        '--override-generation-config={"attn_temperature_tuning": false}',
    )
    assert identity(data, *arguments) == "w"
    assert model_arguments(arguments) == [
        "--max-model-len=9",
        '--override-generation-config={"attn_temperature_tuning": false}',
    ]
    assert adapter_paths(arguments) == ["/adapters/b", "/d"]
    assert adapter_paths(("--lora-modules=a=/x", "--lora-modules", "nonsense", "[1]")) == [
        "/x",
        "[1]",
        "nonsense",
    ]
    assert adapter_paths(("--max-loras", "2")) == model_arguments(("--seed=1",)) == []
