"""The namespace of blocks in L2: a digest over everything that makes two workers' bytes alike.

vLLM's block hash covers tokens, LoRA, images and salt; it covers neither the model nor how KV bytes
are laid out. Whatever could make bytes under one hash differ is therefore in here, so that unlike
workers miss each other's blocks instead of reading them. Must not import vLLM: facts come in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FORMAT_VERSION = 1


def facts(
    config: Any, *, row_bytes: int, replicated: bool, model_id: str, tenant: str, vllm: str
) -> dict[str, object]:
    """From vLLM's OffloadingConfig. Topology stays in even where bytes might agree without it."""
    parallel = config.parallel
    return {
        "format": FORMAT_VERSION,
        "vllm": vllm,
        "model": model_id,
        "tenant": tenant,
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


def digest(facts: Mapping[str, object]) -> str:
    """32 hex digits; equal facts in any order give equal digests."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
