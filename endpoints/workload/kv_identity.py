"""What a worker's KV cache entries depend on beside weights and layout: its arguments.

Two endpoints on one cache tier, or two revisions of one, may differ in arguments only. All are
taken to change KV but those listed here, so that an unknown one separates caches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.validators import flag_of

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
        *("--generation-config", "--gpu-memory-utilization", "--kv-cache-memory-bytes"),
        *("--load-format", "--lora-modules", "--max-cpu-loras", "--max-logprobs"),
        *("--max-lora-rank", "--max-loras", "--max-model-len", "--max-num-batched-tokens"),
        *("--max-num-seqs", "--num-gpu-blocks-override", "--otlp-traces-endpoint"),
        *("--override-generation-config", "--pipeline-parallel-size", "--reasoning-parser"),
        *("--return-tokens-as-token-ids", "--scheduling-policy", "--seed", "--shutdown-timeout"),
        *("--swap-space", "--tensor-parallel-size", "--tool-call-parser", "--tool-parser-plugin"),
        *("--trust-remote-code", "--uvicorn-log-level"),
    )
)


def kv_identity(spec: EndpointSpec, weights: str) -> str:
    """Return the identity of the weights and, behind `#`, of what else changes KV, if anything."""
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
    options: list[str] = []
    for argument in arguments:
        flag = flag_of(argument)
        if not flag and options:
            options[-1] = f"{options[-1]}={argument}"
        else:
            _, is_joined, value = argument.partition("=")
            options.append(f"{flag}={value}" if is_joined else flag)
    return sorted(option for option in options if option.partition("=")[0] not in _WITHOUT_EFFECT)
