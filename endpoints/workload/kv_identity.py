"""What a worker's KV cache entries depend on beside weights and layout: its arguments.

Two endpoints on one cache tier, or two revisions of one, may differ in arguments only. All are
taken to change KV but those listed here, so that an unknown one separates caches. What depends on
files that only the worker has, it decides itself: see `model_arguments` and `adapter_paths`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.validators import split_arguments

# Limits, scheduling, logging, API and parallelism, which the layout states.
_WITHOUT_EFFECT = frozenset(
    (
        *("--allowed-origins", "--allowed-methods", "--allowed-headers", "--allow-credentials"),
        *("--allowed-media-domains", "--allowed-local-media-path", "--api-server-count"),
        *("--async-scheduling", "--no-async-scheduling", "--chat-template"),
        *("--chat-template-content-format", "--cpu-offload-gb", "--data-parallel-size"),
        *("--disable-log-requests", "--disable-log-stats", "--disable-uvicorn-access-log"),
        *("--distributed-executor-backend", "--enable-auto-tool-choice"),
        *("--enable-chunked-prefill", "--no-enable-chunked-prefill", "--enable-log-requests"),
        *("--enable-lora", "--enable-request-id-headers", "--enforce-eager"),
        *("--gpu-memory-utilization", "--kv-cache-memory-bytes", "--load-format"),
        *("--max-cpu-loras", "--max-logprobs", "--max-lora-rank", "--max-loras"),
        *("--max-num-batched-tokens", "--max-num-seqs", "--num-gpu-blocks-override"),
        *("--otlp-traces-endpoint", "--pipeline-parallel-size", "--reasoning-parser"),
        *("--return-tokens-as-token-ids", "--scheduling-policy", "--seed", "--shutdown-timeout"),
        *("--swap-space", "--tensor-parallel-size", "--tool-call-parser", "--tool-parser-plugin"),
        *("--trust-remote-code", "--uvicorn-log-level"),
    )
)
# Rope and attention of some models depend on them; the worker knows whether its own does.
_OF_SOME_MODELS = frozenset(
    ("--max-model-len", "--generation-config", "--override-generation-config")
)
_RANDOM_WEIGHTS = "--load-format=dummy"
_ADAPTERS = "--lora-modules"


def kv_identity(spec: EndpointSpec, weights: str) -> str:
    """Return the place of the weights and, behind `#`, the identity of what else changes KV."""
    inputs: dict[str, object] = {}
    arguments = kv_arguments(spec.worker_args)
    if arguments:
        inputs["arguments"] = arguments
    variables = {name: value for name, value in spec.pod.env.items() if name.startswith("VLLM_")}
    if variables:
        inputs["variables"] = variables
    if spec.source.weights_version:
        inputs["weights_version"] = spec.source.weights_version
    if not inputs:
        return weights
    text = json.dumps(inputs, sort_keys=True)
    return f"{weights}#{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def kv_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that may change KV, each as one text, in order of their flags."""
    apart = _WITHOUT_EFFECT | _OF_SOME_MODELS | {_ADAPTERS}
    options = [(flag, "=".join((flag, *values))) for flag, values in split_arguments(arguments)]
    return sorted(text for flag, text in options if flag not in apart or text == _RANDOM_WEIGHTS)


def model_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that change the KV of some models only, such as long contexts."""
    return sorted(
        "=".join((flag, *values))
        for flag, values in split_arguments(arguments)
        if flag in _OF_SOME_MODELS
    )


def adapter_paths(arguments: Sequence[str]) -> list[str]:
    """Return the paths of the LoRA adapters with which the worker starts. vLLM's block hashes
    contain the path, not the weights behind it.
    """
    lists = [values for flag, values in split_arguments(arguments) if flag == _ADAPTERS]
    return sorted({_adapter_path(item) for values in lists for item in values if item})


def _adapter_path(item: str) -> str:
    """Return the path in `name=path` or in JSON; other text as it is, which vLLM refuses."""
    if "=" in item and "," not in item:
        return item.partition("=")[2]
    try:
        document = json.loads(item)
    except ValueError:
        return item
    return str(document.get("path")) if isinstance(document, dict) else item
