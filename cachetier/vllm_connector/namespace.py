"""L2 namespace: digest of everything that determines a worker's KV bytes.

vLLM's block hash covers tokens, LoRA, images and salt, but not the model or the KV layout. The
digest adds them, so that incompatible workers miss each other's blocks. Does not import vLLM.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FORMAT_VERSION = 1


def facts(
    config: Any, *, row_bytes: int, replicated: bool, model_id: str, vllm: str
) -> dict[str, object]:
    """Return the facts of vLLM's OffloadingConfig, always including the topology."""
    parallel = config.parallel
    return {
        "format": FORMAT_VERSION,
        "vllm": vllm,
        "model": model_id,
        "dtype": config.model.dtype,
        "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "groups": [
            [group.group_id, group.tokens_per_block, list(group.layer_names)]
            for group in config.groups
        ],
        "world": [
            parallel.world_size,
            parallel.tp_size,
            parallel.pp_size,
            parallel.pcp_size,
            parallel.dcp_size,
        ],
        "layout": [config.kv_cache_layout, config.canonical_layout, replicated],
        "row_bytes": row_bytes,
    }


def digest_facts(facts: Mapping[str, object]) -> str:
    """Return 32 hex digits, independent of the order of `facts`."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
