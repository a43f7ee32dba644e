"""What a worker must be told so that it uses the cache tier: pure, and importable without vLLM.

Promises that no secret appears in what it returns (vLLM prints this JSON in its log): the password
travels in the environment variable that `L2Target.password_env` names.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

POLICIES = ("lru", "arc")
PLATFORMS = ("cpu", "cuda")
# On a GPU vLLM's own spec; its CPU platform has no copy to and from L1, so there it is ours.
_SPEC: dict[str, dict[str, object]] = {
    "cpu": {
        "spec_name": "EmberlineTieringSpec",
        "spec_module_path": "cachetier.vllm_connector.cpu_spec",
    },
    "cuda": {"spec_name": "TieringOffloadingSpec"},
}
PASSWORD_ENV = "EMBERLINE_L2_PASSWORD"  # noqa: S105  (a variable's name)
# Deadlines of one batch, at rest far above what a healthy L2 needs; a slow one is then a miss.
LOOKUP_TIMEOUT_MS = 500
LOAD_TIMEOUT_MS = 2000


@dataclass(frozen=True, slots=True)
class L2Target:
    """Where L2 is and what the values in it are about.

    `model_id` names the weights themselves (see `model_identity`): two models served under one
    path must not share a namespace, one model under two paths should. `ttl_s` 0 means that values
    stay until they are evicted.
    """

    url: str
    model_id: str
    ttl_s: int = 0
    password_env: str = PASSWORD_ENV


def kv_transfer_config(
    l1_bytes: int,
    policy: str,
    l2: L2Target | None,
    platform: str,
    *,
    chunk_tokens: int = 0,
) -> dict[str, object]:
    """The value of vLLM's `--kv-transfer-config` for L1 of `l1_bytes` (all ranks together).

    `chunk_tokens` is the unit L1 and L2 store, a multiple of vLLM's block size; 0 means one block.
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
        "secondary_tiers": [] if l2 is None else [_tier(l2)],
    }
    if chunk_tokens:
        extra["block_size"] = chunk_tokens
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": extra,
    }


def _tier(l2: L2Target) -> dict[str, object]:
    if urlsplit(l2.url).password or urlsplit(l2.url).username:
        raise ValueError("the L2 URL must not hold credentials: vLLM prints it in its log")
    if not l2.model_id:
        raise ValueError("the L2 namespace needs the model's identity")
    return {
        "type": "EmberlineL2Tier",
        "module_path": "cachetier.vllm_connector.tier",
        "url": l2.url,
        "model_id": l2.model_id,
        "ttl_s": l2.ttl_s,
        "password_env": l2.password_env,
        "lookup_timeout_ms": LOOKUP_TIMEOUT_MS,
        "load_timeout_ms": LOAD_TIMEOUT_MS,
    }


_EDGE_BYTES = 1 << 20


def model_identity(model: str, revision: str = "") -> str:
    """A name for the weights behind `model`: a digest for a folder, repo@revision otherwise.

    A folder's digest covers its configuration and, of each weights file, the size and the first
    and last MiB: a safetensors header lists every tensor, and reading 140 GB to start a worker
    would cost minutes.
    """
    folder = Path(model)
    if not folder.is_dir():
        return f"{model}@{revision or 'main'}"
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".safetensors", ".bin", ".gguf") and path.name != "config.json":
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_EDGE_BYTES))
            if size > _EDGE_BYTES:
                file.seek(max(size - _EDGE_BYTES, _EDGE_BYTES))
                digest.update(file.read(_EDGE_BYTES))
    return f"sha256:{digest.hexdigest()[:32]}"
