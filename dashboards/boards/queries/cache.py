"""Queries of cache tiers: device, L1 and L2 as the worker reports them, our L2 engine, LMCache.

vLLM has no label for our L2: its tier is "disk"; "p2p" is outside the worker, too. A connector
without tier information (LMCache) is shown under its own name, never as a tier.

LMCache's names begin with `lmcache:` in process, or with `lmcache_` in OpenMetrics; those of its
server in multi-process mode begin with `lmcache_mp_` and exclude the others.
"""

from __future__ import annotations

from dashboards.boards.queries import growth
from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    QUERIES,
    Query,
    Scope,
    Times,
    busiest,
    counter_query,
    everywhere,
    first_present,
    gauge_query,
    growth_query,
    join_labels,
    label_vector,
    quantile_query,
    rate,
    rate_by,
    rates,
    ratio,
    register_query,
    share,
    share_query,
    sum_by,
)

_QUERIES = (n.PREFIX_QUERIES, n.PREFIX_QUERIES_OLD)
_HITS = (n.PREFIX_HITS, n.PREFIX_HITS_OLD)
_L2_SOURCES = "disk|p2p|external_unspecified"
Parts = list[tuple[str, str]]  # tier, and tokens/s from it


def sum_by_tier(by: str, parts: Parts) -> str:
    """Sum each part before joining: joining the workers' raw series with all labels was the most
    expensive query of a large fleet's board.
    """
    sums = [
        label_vector(label_vector(sum_by(by, vector), "tier", tier), "part", str(place))
        for place, (tier, vector) in enumerate(parts)
    ]
    return sum_by(f"{by}, tier" if by else "tier", " or ".join(sums))


def share_by_source(scope: Scope, times: Times) -> str:
    """Prompt tokens of a worker by source as shares of 1, with the finest source labels of its
    version: by tier since 0.32, L1 and L2 together since 0.16, lookup hits before.

    The denominator is the sum of the sources: hits are counted at admission and
    `prompt_tokens_total` after prefill, so that the hits of a long prompt, or of one that is
    aborted or preempted, would exceed 1.
    """
    computed = rate(n.BY_SOURCE, scope.engines(source="local_compute"), times)
    hits, queried = (rates(metrics, scope.engines(), times) for metrics in (_HITS, _QUERIES))
    beyond = rate(n.EXTERNAL_HITS, scope.engines(), times)
    # Excluded first: in a new fleet nothing is left to join.
    older = f"({queried} {_without(n.BY_SOURCE, scope, times)}) - {hits} - ({beyond} or {hits} * 0)"
    parts = [*_cached_parts(scope, times), ("computed", computed), ("computed", older)]
    tokens = sum_by_tier("", parts)
    return f"{tokens} / on () group_left () (sum({tokens}) > 0)"


# Recorded only: sums over an endpoint's workers, which may be of several versions.
TIER_TOKENS = "emberline_prompt_tokens_by_tier"
_CACHED_TIERS = {"tier_re": "device|l1|l2|beyond"}


def _has_tiers(scope: Scope, times: Times) -> bool:
    return not scope.worker and growth.serves_steps(times)


def tokens_by_tier(times: Times) -> str:
    """Cached prompt tokens/s by endpoint and tier, to be recorded."""
    return sum_by_tier("namespace, endpoint_name", _cached_parts(Scope(), times))


def cached_by_tier(by: str, scope: Scope, times: Times) -> str:
    """Cached tokens/s by tier; of workers that do not report sources, by lookup hits."""
    if _has_tiers(scope, times):
        labels = f"{by}, tier" if by else "tier"
        return rate_by(labels, TIER_TOKENS, scope.engines(**_CACHED_TIERS), times)
    return sum_by_tier(by, _cached_parts(scope, times))


def cached_total(by: str, scope: Scope, times: Times) -> str:
    """Sum of `cached_by_tier`, from fewer queries."""
    if _has_tiers(scope, times):
        return rate_by(by, TIER_TOKENS, scope.engines(**_CACHED_TIERS), times)
    sources = (
        (n.CACHED, f"device|host|{_L2_SOURCES}", ""),
        (n.BY_SOURCE, "local_cache_hit|external_kv_transfer", _without(n.CACHED, scope, times)),
    )
    vectors = [
        f"{rate(metric, scope.engines(source_re=source), times)} {newer}"
        for metric, source, newer in sources
    ]
    vectors += [vector for _, vector in _by_hits(scope, times)]
    sums = (
        label_vector(sum_by(by, vector), "part", str(place)) for place, vector in enumerate(vectors)
    )
    return sum_by(by, " or ".join(sums))


def _cached_parts(scope: Scope, times: Times) -> Parts:
    sources = {
        "device": {"source": "device"},
        "l1": {"source": "host"},
        "l2": {"source_re": "disk|p2p"},
        "beyond": {"source": "external_unspecified"},
    }
    older = {"device": "local_cache_hit", "beyond": "external_kv_transfer"}
    newer = _without(n.CACHED, scope, times)
    return [
        *((tier, rate(n.CACHED, scope.engines(**of), times)) for tier, of in sources.items()),
        *(
            (tier, f"{rate(n.BY_SOURCE, scope.engines(source=source), times)} {newer}")
            for tier, source in older.items()
        ),
        *_by_hits(scope, times),
    ]


def _by_hits(scope: Scope, times: Times) -> Parts:
    """Of workers without sources."""
    newer = _without(n.BY_SOURCE, scope, times)
    tiers = {"device": _HITS, "beyond": (n.EXTERNAL_HITS,)}
    return [
        (tier, f"{rates(metrics, scope.engines(), times)} {newer}")
        for tier, metrics in tiers.items()
    ]


def _without(metric: str, scope: Scope, times: Times) -> str:
    return f"unless on (pod) {rate(metric, scope.engines(), times)}"


def reuse(by: str, *, top: bool = False) -> Query:
    """Share of cached prompt tokens: by source since 0.16, by hits before."""

    def query(scope: Scope, times: Times) -> str:
        computed = rate_by(by, n.BY_SOURCE, scope.engines(source="local_compute"), times)
        every = rate_by(by, n.PROMPT, scope.engines(), times)
        overall = f"(1 - {ratio(computed, every)} or {_overall(by)(scope, times)})"
        return f"{overall} {busiest(by, n.PROMPT, scope.engines(), times)}" if top else overall

    return query


def _overall(by: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        hits, queried = (
            sum_by(by, rates(metrics, scope.engines(), times)) for metrics in (_HITS, _QUERIES)
        )
        beyond = rate_by(by, n.EXTERNAL_HITS, scope.engines(), times)
        parts = (
            f"{label_vector(hits, 'part', 'device')} or {label_vector(beyond, 'part', 'beyond')}"
        )
        return ratio(sum_by(by, parts), queried)

    return query


def _rates(*metrics: str) -> Query:
    """Growth of a counter by any of its names."""
    return lambda scope, times: sum_by("", rates(metrics, scope.engines(), times))


def _ratio(part: tuple[str, ...], whole: tuple[str, ...]) -> Query:
    return lambda scope, times: ratio(_rates(*part)(scope, times), _rates(*whole)(scope, times))


def _of_lookups(**labels: str) -> Query:
    """Cached tokens of a source as a share of the tokens looked up."""

    def query(scope: Scope, times: Times) -> str:
        cached = rate_by("", n.CACHED, scope.engines(**labels), times)
        return ratio(cached, _rates(*_QUERIES)(scope, times))

    return query


def _l1_l2(vector: str) -> str:
    """Map vLLM's tier numbers: 0 is host memory, higher ones are outside the worker. Type labels
    differ between vLLM and our tiers, which would split one tier into several colours.
    """
    l1 = f'label_replace({vector}, "tier", "l1", "tier", "0:.*")'
    return f'label_replace({l1}, "tier", "l2", "tier", "[1-9].*")'


def _tier_rate(metric: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        return f"sum by (tier) ({_l1_l2(rate(metric, scope.engines(), times))})"

    return query


def _moved_bytes(metric: str, transfer_type: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        old = scope.engines(transfer_type=transfer_type)
        moved = rate_by("", metric, scope.engines(), times)
        return f"{moved} or {rate_by('', n.OFFLOADED_OLD, old, times)}"

    return query


@register_query("load_speed")
def load_speed(scope: Scope, times: Times) -> str:
    new = [rate_by("", m, scope.engines(), times) for m in (n.LOAD_BYTES, n.LOAD_TIME)]
    to_device = scope.engines(transfer_type="CPU_to_GPU")
    old = [rate_by("", m, to_device, times) for m in (n.OFFLOADED_OLD, n.OFFLOAD_TIME_OLD)]
    return f"{ratio(*new)} or {ratio(*old)}"


@register_query("tier_lookup_p95")
def tier_lookup_p95(scope: Scope, times: Times) -> str:
    buckets = _l1_l2(rate(f"{n.TIER_LOOKUP}_bucket", scope.engines(), times))
    return f"histogram_quantile(0.95, sum by (le, tier) ({buckets}))"


# Failures between tiers: a series exists only after its first failure.
FAILURES = {
    "promotions": n.PROMOTIONS_FAILED,
    "promotions_refused": n.PROMOTIONS_REFUSED,
    "cascades": n.CASCADES_FAILED,
    "stores_refused": n.STORE_REFUSED,
    "dropped": n.BLOCKS_DROPPED,
}


@register_query("offload_failures")
def offload_failures(scope: Scope, times: Times) -> str:
    """Failures by kind; 0 if the tiers are queried and no failure was counted."""
    failed = " or ".join(
        label_vector(rate_by("", metric, scope.engines(), times), "kind", kind)
        for kind, metric in FAILURES.items()
    )
    none = " or ".join(label_vector("vector(0)", "kind", kind) for kind in FAILURES)
    queried = rate_by("", n.CHUNK_QUERIES, scope.engines(), times)
    return f"{failed} or ({none}) + on () group_left () {queried} * 0"


def _l2_fill(by: str = "") -> str:
    return ratio(sum_by(by, n.L2_USED), sum_by(by, n.L2_CAPACITY))


def _l2_evicted(scope: Scope, times: Times) -> str:
    evicted = rate_by("pool, reason", n.L2_EVICTED, everywhere(scope), times)
    return join_labels(evicted, "pool_reason", "pool", "reason")


QUERIES.update(
    {
        "reuse_by_worker": reuse("pod", top=True),
        "reused_tokens_by_tier": lambda scope, times: cached_by_tier("", scope, times),
        "hits_overall": _overall(""),
        "hits_device": _ratio(_HITS, _QUERIES),
        "hits_beyond": _ratio((n.EXTERNAL_HITS,), (n.EXTERNAL_QUERIES,)),  # of the rest
        "hits_l1": _of_lookups(source="host"),
        "hits_l2": _of_lookups(source_re=_L2_SOURCES),
        "loaded_bytes": _moved_bytes(n.LOAD_BYTES, "CPU_to_GPU"),
        "stored_bytes": _moved_bytes(n.STORE_BYTES, "GPU_to_CPU"),
        "tier_read_bytes": _tier_rate(n.READ),
        "tier_written_bytes": _tier_rate(n.WRITTEN),
        "block_lifetime_p50": quantile_query(50, (n.BLOCK_LIFETIME,), Scope.engines),
        "block_idle_p50": quantile_query(50, (n.BLOCK_IDLE,), Scope.engines),
        "block_reuse_p50": quantile_query(50, (n.BLOCK_REUSE,), Scope.engines),
        "l2_hit_share": share_query(n.L2_HITS, n.L2_LOOKUPS, everywhere),
        "l2_hit_share_by_pool": share_query(n.L2_HITS, n.L2_LOOKUPS, everywhere, "pool"),
        "l2_fill": lambda _scope, _times: _l2_fill(),
        "l2_fill_by_medium": lambda _scope, _times: join_labels(
            _l2_fill("pool, medium"), "pool_medium", "pool", "medium"
        ),
        "l2_p99_by_operation": quantile_query(99, (n.L2_DURATION,), everywhere, "op"),
        "l2_evicted_by_reason": _l2_evicted,
        "l2_rejected_by_reason": counter_query(n.L2_REJECTED, everywhere, "reason"),
        "l2_results": counter_query(n.L2_OPERATIONS, everywhere, "result"),
        "l2_read_bytes": counter_query(n.L2_READ, everywhere),
        "l2_written_bytes": counter_query(n.L2_STORED, everywhere),
        "l2_integrity_failures": counter_query(n.L2_INTEGRITY, everywhere),
        "l2_nodes_up": gauge_query(n.L2_NODE_UP, everywhere, "pool"),
    }
)


@register_query("chunk_hits_by_tier")
def chunk_hits_by_tier(scope: Scope, times: Times) -> str:
    return share(_tier_rate(n.CHUNK_HITS)(scope, times), _tier_rate(n.CHUNK_QUERIES)(scope, times))


@register_query("kv_capacity_by_worker")
def kv_capacity_by_worker(scope: Scope, _times: Times) -> str:
    """In tokens. vLLM exports the value as a label only; the router parses it."""
    return f"max by (worker) ({n.CACHE_TOKENS}{scope.decisions()} > 0)"


def both(name: str) -> tuple[str, str]:
    return f"lmcache:{name}", f"lmcache_{name}"


def _held(*metrics: str) -> Query:
    """Sum of a gauge by any of its names."""
    return lambda scope, _times: sum_by(
        "", first_present(*(f"{metric}{scope.engines()}" for metric in metrics))
    )


LMCACHE_LOOKUPS = (*both(n.LM_LOOKUP_TOKENS), n.LMS_REQUESTED)

QUERIES.update(
    {
        "lm_lookup_hits": _ratio((*both(n.LM_LOOKUP_HITS), n.LMS_HITS), LMCACHE_LOOKUPS),
        "lm_hits_l1": _ratio((n.LMS_HITS_L1,), (n.LMS_REQUESTED,)),
        "lm_hits_l2": _ratio((n.LMS_HITS_L2,), (n.LMS_REQUESTED,)),
        "lm_supplied_tokens": _rates(*both(n.LM_HIT_TOKENS), n.LMS_HITS),
        "lm_vllm_tokens": _rates(*both(n.LM_VLLM_HITS)),
        "lm_evicted": _rates(*both(n.LM_EVICTED), n.LMS_L2_EVICTED),
        "lm_l1_bytes": _held(*both(n.LM_LOCAL_USAGE), n.LMS_L1_BYTES),
        "lm_l2_bytes": _held(*both(n.LM_REMOTE_USAGE), n.LMS_L2_BYTES),
        # Of lookups; misses are counted as up to a tenth.
        "lm_request_rate_p50": quantile_query(50, both(n.LM_REQUEST_RATE), Scope.engines),
        "happened_tier_lookups": growth_query(Scope.engines, n.CHUNK_QUERIES),
        "happened_lmcache_lookups": growth_query(Scope.engines, *LMCACHE_LOOKUPS),
        "happened_l2_operations": growth_query(everywhere, n.L2_OPERATIONS),
        "lm_retrieve_p95": quantile_query(95, both(n.LM_RETRIEVE), Scope.engines),
    }
)
