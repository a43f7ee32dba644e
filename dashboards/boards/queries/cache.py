"""Queries of cache tiers: device, L1 and L2 as the worker reports them, and our L2 engine.

vLLM has no label for our L2: its tier is "disk"; "p2p" is outside the worker, too. A connector
without tier information (LMCache) is shown under its own name, never as a tier.
"""

from __future__ import annotations

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    Scope,
    Times,
    busiest,
    join_labels,
    quantile,
    rate,
    rate_by,
    rates,
    ratio,
    register_query,
    share,
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
        _label(_label(sum_by(by, vector), "tier", tier), "part", str(place))
        for place, (tier, vector) in enumerate(parts)
    ]
    return sum_by(f"{by}, tier" if by else "tier", " or ".join(sums))


def _label(vector: str, name: str, value: str) -> str:
    return f'label_replace({vector}, "{name}", "{value}", "", "")'


@register_query("prompt_share_by_source")
def prompt_share_by_source(scope: Scope, times: Times) -> str:
    """Prompt tokens by source as shares of 1, with the finest source labels of the workers'
    version: by tier since 0.32, L1 and L2 together since 0.16, lookup hits before. The
    denominator is `prompt_tokens_total`, which includes cached tokens.
    """
    parts = [*_by_tier(scope, times), *_by_source(scope, times), *_by_hits(scope, times)]
    every = f"sum({rate(n.PROMPT, scope.engines(), times)}) > 0"
    return f"{sum_by_tier('', parts)} / on () group_left () ({every})"


def _by_tier(scope: Scope, times: Times) -> Parts:
    sources = {
        "device": {"source": "device"},
        "l1": {"source": "host"},
        "l2": {"source_re": "disk|p2p"},
        "beyond": {"source": "external_unspecified"},
    }
    parts = [
        (tier, rate(n.CACHED, scope.engines(**labels), times)) for tier, labels in sources.items()
    ]
    computed = rate(n.BY_SOURCE, scope.engines(source="local_compute"), times)
    return [*parts, ("computed", computed)]


def _by_source(scope: Scope, times: Times) -> Parts:
    sources = {"device": "local_cache_hit", "beyond": "external_kv_transfer"}
    newer = f"unless on (pod) {rate(n.CACHED, scope.engines(), times)}"
    return [
        (tier, f"{rate(n.BY_SOURCE, scope.engines(source=source), times)} {newer}")
        for tier, source in sources.items()
    ]


def _by_hits(scope: Scope, times: Times) -> Parts:
    hits, asked = (rates(metrics, scope.engines(), times) for metrics in (_HITS, _QUERIES))
    beyond = rate(n.EXTERNAL_HITS, scope.engines(), times)
    newer = f"unless on (pod) {rate(n.BY_SOURCE, scope.engines(), times)}"
    # Excluded first: in a new fleet nothing is left to join.
    computed = f"({asked} {newer}) - {hits} - ({beyond} or {hits} * 0)"
    return [
        ("device", f"{hits} {newer}"),
        ("beyond", f"{beyond} {newer}"),
        ("computed", computed),
    ]


def _reuse(by: str, scope: Scope, times: Times) -> str:
    """Share of cached prompt tokens: by source since 0.16, by hits before."""
    computed = rate_by(by, n.BY_SOURCE, scope.engines(source="local_compute"), times)
    every = rate_by(by, n.PROMPT, scope.engines(), times)
    return f"(1 - {ratio(computed, every)} or {_overall(by, scope, times)})"


def _overall(by: str, scope: Scope, times: Times) -> str:
    hits, asked = (
        sum_by(by, rates(metrics, scope.engines(), times)) for metrics in (_HITS, _QUERIES)
    )
    beyond = rate_by(by, n.EXTERNAL_HITS, scope.engines(), times)
    return ratio(f"({hits} + ({beyond} or {hits} * 0))", asked)


@register_query("reuse")
def reuse(scope: Scope, times: Times) -> str:
    return _reuse("", scope, times)


@register_query("reuse_each")
def reuse_each(scope: Scope, times: Times) -> str:
    return _reuse("endpoint_name", scope, times)


@register_query("reuse_by_endpoint")
def reuse_by_endpoint(scope: Scope, times: Times) -> str:
    top = busiest("endpoint_name", n.PROMPT, scope.engines(), times)
    return f"{reuse_each(scope, times)} {top}"


@register_query("reuse_by_worker")
def reuse_by_worker(scope: Scope, times: Times) -> str:
    return f"{_reuse('pod', scope, times)} {busiest('pod', n.PROMPT, scope.engines(), times)}"


@register_query("hits_device")
def hits_device(scope: Scope, times: Times) -> str:
    hits, asked = (sum_by("", rates(names, scope.engines(), times)) for names in (_HITS, _QUERIES))
    return ratio(hits, asked)


@register_query("hits_beyond")
def hits_beyond(scope: Scope, times: Times) -> str:
    """Share of the tokens that missed the device cache."""
    hits, asked = (
        rate_by("", metric, scope.engines(), times)
        for metric in (n.EXTERNAL_HITS, n.EXTERNAL_QUERIES)
    )
    return ratio(hits, asked)


@register_query("hits_l1")
def hits_l1(scope: Scope, times: Times) -> str:
    return _of_asked(scope.engines(source="host"), scope, times)


@register_query("hits_l2")
def hits_l2(scope: Scope, times: Times) -> str:
    return _of_asked(scope.engines(source_re=_L2_SOURCES), scope, times)


def _of_asked(braces: str, scope: Scope, times: Times) -> str:
    asked = sum_by("", rates(_QUERIES, scope.engines(), times))
    return ratio(rate_by("", n.CACHED, braces, times), asked)


@register_query("hits_overall")
def hits_overall(scope: Scope, times: Times) -> str:
    return _overall("", scope, times)


@register_query("reused_tokens_by_tier")
def reused_tokens_by_tier(scope: Scope, times: Times) -> str:
    return sum_by_tier("", reused_parts(scope, times))


def reused_parts(scope: Scope, times: Times) -> Parts:
    return [*_by_tier(scope, times)[:-1], *_by_source(scope, times)]


def _l1_l2(vector: str) -> str:
    """Map vLLM's tier numbers: 0 is host memory, higher ones are outside the worker. Type labels
    differ between vLLM and our tiers, which would split one tier into several colours.
    """
    l1 = f'label_replace({vector}, "tier", "l1", "tier", "0:.*")'
    return f'label_replace({l1}, "tier", "l2", "tier", "[1-9].*")'


def _tier_rate(metric: str, scope: Scope, times: Times) -> str:
    return f"sum by (tier) ({_l1_l2(rate(metric, scope.engines(), times))})"


@register_query("chunk_hits_by_tier")
def chunk_hits_by_tier(scope: Scope, times: Times) -> str:
    hits, asked = (_tier_rate(metric, scope, times) for metric in (n.CHUNK_HITS, n.CHUNK_QUERIES))
    return share(hits, asked)


@register_query("load_speed")
def load_speed(scope: Scope, times: Times) -> str:
    new = [rate_by("", m, scope.engines(), times) for m in (n.LOAD_BYTES, n.LOAD_TIME)]
    to_device = scope.engines(transfer_type="CPU_to_GPU")
    old = [rate_by("", m, to_device, times) for m in (n.OFFLOADED_OLD, n.OFFLOAD_TIME_OLD)]
    return f"{ratio(*new)} or {ratio(*old)}"


@register_query("loaded_bytes")
def loaded_bytes(scope: Scope, times: Times) -> str:
    old = rate_by("", n.OFFLOADED_OLD, scope.engines(transfer_type="CPU_to_GPU"), times)
    return f"{rate_by('', n.LOAD_BYTES, scope.engines(), times)} or {old}"


@register_query("stored_bytes")
def stored_bytes(scope: Scope, times: Times) -> str:
    old = rate_by("", n.OFFLOADED_OLD, scope.engines(transfer_type="GPU_to_CPU"), times)
    return f"{rate_by('', n.STORE_BYTES, scope.engines(), times)} or {old}"


@register_query("tier_read_bytes")
def tier_read_bytes(scope: Scope, times: Times) -> str:
    return _tier_rate(n.READ, scope, times)


@register_query("tier_written_bytes")
def tier_written_bytes(scope: Scope, times: Times) -> str:
    return _tier_rate(n.WRITTEN, scope, times)


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
    """By kind; 0 if the tiers are queried and no failure was counted."""
    zero = f"sum({rate(n.CHUNK_QUERIES, scope.engines(), times)}) * 0"
    parts = [
        f"label_replace({rate_by('', metric, scope.engines(), times)} or {zero}, "
        f'"kind", "{kind}", "", "")'
        for kind, metric in FAILURES.items()
    ]
    return " or ".join(parts)


for _name, _metric in {
    "block_lifetime": n.BLOCK_LIFETIME,
    "block_idle": n.BLOCK_IDLE,
    "block_reuse": n.BLOCK_REUSE,
}.items():

    @register_query(f"{_name}_p50")
    def _block(scope: Scope, times: Times, metric: str = _metric) -> str:
        return quantile(0.5, "", (metric,), scope.engines(), times)


@register_query("l2_hit_share")
def l2_hit_share(_scope: Scope, times: Times) -> str:
    return share(rate_by("", n.L2_HITS, "", times), rate_by("", n.L2_LOOKUPS, "", times))


@register_query("l2_hit_share_by_pool")
def l2_hit_share_by_pool(_scope: Scope, times: Times) -> str:
    return share(rate_by("pool", n.L2_HITS, "", times), rate_by("pool", n.L2_LOOKUPS, "", times))


@register_query("l2_fill")
def l2_fill(_scope: Scope, _times: Times) -> str:
    return ratio(f"sum({n.L2_USED})", f"sum({n.L2_CAPACITY})")


@register_query("l2_fill_by_medium")
def l2_fill_by_medium(_scope: Scope, _times: Times) -> str:
    by = "pool, medium"
    filled = ratio(f"sum by ({by}) ({n.L2_USED})", f"sum by ({by}) ({n.L2_CAPACITY})")
    return join_labels(filled, "pool_medium", "pool", "medium")


@register_query("l2_p99_by_operation")
def l2_p99_by_operation(_scope: Scope, times: Times) -> str:
    return quantile(0.99, "op", (n.L2_DURATION,), "", times)


@register_query("l2_evicted_by_reason")
def l2_evicted_by_reason(_scope: Scope, times: Times) -> str:
    return join_labels(
        rate_by("pool, reason", n.L2_EVICTED, "", times), "pool_reason", "pool", "reason"
    )


@register_query("l2_rejected_by_reason")
def l2_rejected_by_reason(_scope: Scope, times: Times) -> str:
    return rate_by("reason", n.L2_REJECTED, "", times)


@register_query("l2_results")
def l2_results(_scope: Scope, times: Times) -> str:
    return rate_by("result", n.L2_OPERATIONS, "", times)


@register_query("l2_read_bytes")
def l2_read_bytes(_scope: Scope, times: Times) -> str:
    return rate_by("", n.L2_READ, "", times)


@register_query("l2_written_bytes")
def l2_written_bytes(_scope: Scope, times: Times) -> str:
    return rate_by("", n.L2_STORED, "", times)


@register_query("l2_integrity_failures")
def l2_integrity_failures(_scope: Scope, times: Times) -> str:
    return rate_by("", n.L2_INTEGRITY, "", times)


@register_query("l2_nodes_up")
def l2_nodes_up(_scope: Scope, _times: Times) -> str:
    return f"sum by (pool) ({n.L2_NODE_UP})"


@register_query("kv_capacity_by_worker")
def kv_capacity_by_worker(scope: Scope, _times: Times) -> str:
    """In tokens. vLLM exports the value as a label only; the router parses it."""
    return f"max by (worker) ({n.CACHE_TOKENS}{scope.decisions()} > 0)"
