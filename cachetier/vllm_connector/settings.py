"""vLLM settings that enable the cache tier. Pure, importable without vLLM.

The result contains no secret (vLLM logs this JSON): the password is passed in the environment
variable `L2Target.password_env`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

POLICIES = ("lru", "arc")
PLATFORMS = ("cpu", "cuda")
# vLLM's CPU platform has no copy to and from L1, so it needs this package's spec.
_SPEC: dict[str, dict[str, object]] = {
    "cpu": {
        "spec_name": "EmberlineTieringSpec",
        "spec_module_path": "cachetier.vllm_connector.cpu_spec",
    },
    "cuda": {"spec_name": "TieringOffloadingSpec"},
}
PASSWORD_ENV = "EMBERLINE_L2_PASSWORD"  # noqa: S105  (a variable's name)
# Batch deadlines, far above a healthy L2's latency; a slower reply counts as a miss.
LOOKUP_TIMEOUT_MS = 500
LOAD_TIMEOUT_MS = 2000


@dataclass(frozen=True, slots=True)
class L2Target:
    """L2 cache that a worker connects to. `model_id` names the model and what else changes its KV;
    the worker adds the weights by content (see `weights_identity`), those of a hub's model at
    `revision`. `ttl_s` 0 keeps values until eviction. `model_arguments` of vLLM change the KV of
    some models only; `adapters` are paths of LoRA adapters, whose weights are not in vLLM's block
    hashes.
    """

    url: str
    model_id: str
    ttl_s: int = 0
    password_env: str = PASSWORD_ENV
    model_arguments: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    revision: str = ""


def kv_transfer_config(
    l1_bytes: int, policy: str, l2: L2Target | None, platform: str, *, chunk_tokens: int = 0
) -> dict[str, object]:
    """Return vLLM's `--kv-transfer-config` for L1 of `l1_bytes` (all ranks together).

    `chunk_tokens`, a multiple of vLLM's block size, is the storage unit of L1 and L2; 0 means one
    block.
    """
    if l1_bytes <= 0:
        raise ValueError(f"L1 needs a positive size, not {l1_bytes} bytes")
    if policy not in POLICIES:
        raise ValueError(f"L1 policy must be one of {', '.join(POLICIES)}, not {policy!r}")
    if platform not in PLATFORMS:
        raise ValueError(f"platform must be one of {', '.join(PLATFORMS)}, not {platform!r}")
    extra: dict[str, object] = {
        **_SPEC[platform],
        "cpu_bytes_to_use": l1_bytes,
        "eviction_policy": policy,
        "self_describing_kv_events": True,
        "secondary_tiers": [] if l2 is None else [_tier_config(l2)],
    }
    if chunk_tokens:
        extra["block_size"] = chunk_tokens
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": extra,
    }


def _tier_config(l2: L2Target) -> dict[str, object]:
    if urlsplit(l2.url).password or urlsplit(l2.url).username:
        raise ValueError("the L2 URL must not contain credentials: vLLM prints it in its log")
    if not l2.model_id:
        raise ValueError("the L2 namespace needs the model's identity")
    config: dict[str, object] = {
        "type": "EmberlineL2Tier",
        "module_path": "cachetier.vllm_connector.tier",
        "url": l2.url,
        "model_id": l2.model_id,
        "ttl_s": l2.ttl_s,
        "password_env": l2.password_env,
        "lookup_timeout_ms": LOOKUP_TIMEOUT_MS,
        "load_timeout_ms": LOAD_TIMEOUT_MS,
    }
    for name, values in (("model_arguments", l2.model_arguments), ("adapters", l2.adapters)):
        if values:
            config[name] = list(values)
    if l2.revision:
        config["revision"] = l2.revision
    return config
