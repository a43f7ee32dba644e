"""The names of metrics in the documentation of managed tiered KV caches, and what they truly count.

Read in LMCache 0.5.6 and vLLM 0.32. Pure.
"""

from __future__ import annotations

from dashboards.boards.panels.declarations import Documented

DOCUMENTED: tuple[Documented, ...] = (
    Documented(
        "vllm:prefix_cache_hits_total / vllm:prefix_cache_queries_total",
        "Hit rate of the L1 cache.",
        "Tokens found in the worker's own device cache, of all prompt tokens. L1 and L2 are not "
        "in it: they are asked only for what is left.",
        "Hit rates: Device",
    ),
    Documented(
        "lmcache:num_lookup_hits_total / lmcache:num_lookup_tokens_total",
        "Hit rate of the L2 cache.",
        "Tokens LMCache found in any of its tiers (host memory, too), of those it was asked for.",
        "LMCache: tokens found of those looked up",
        "lmcache_mp_lookup_hit_tokens_total / lmcache_mp_lookup_requested_tokens_total",
    ),
    Documented(
        "lmcache:num_vllm_hit_tokens_total",
        "Tokens served from LMCache.",
        "Tokens the worker had in its device cache already, so that LMCache had nothing to do. "
        "What LMCache supplied is lmcache:num_hit_tokens_total.",
        "LMCache: tokens supplied",
        "lmcache_mp_lookup_hit_tokens_total",
    ),
    Documented(
        "lmcache:request_cache_hit_rate",
        "Hit rate of requests.",
        "A histogram, one entry a lookup, in steps of a tenth; a lookup which found nothing is "
        "counted as up to a tenth.",
        "LMCache: tokens found of those looked up",
        "None: the server has no such metric.",
    ),
)
