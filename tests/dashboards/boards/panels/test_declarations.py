"""Every query of the metrics reference has a panel, and every panel is described."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import Panel
from dashboards.boards.panels.exporters import EXPORTERS
from dashboards.boards.queries import QUERIES
from dashboards.boards.queries.cost import USAGE
from dashboards.boards.results import evidence

# The reference's expressions, by their numbers there -> the panel which asks the same, as
# board/all|one/panel: line, or in brackets why none does.
ASKED = {
    "F1 endpoints up": "overview/all/now: endpoints_up",
    "F2 pods up/down": "workers/all/workers-up-endpoints: workers_up_by_endpoint",
    "F3 req/s": "overview/all/finished: finished_by_endpoint",
    "F4 prompt tok/s": "overview/all/prompt-tokens: prompt_tokens_by_endpoint",
    "F5 gen tok/s": "overview/all/generated-tokens: generated_tokens_by_endpoint",
    "F6 TTFT p95": "overview/all/ttft-endpoints: ttft_p95_by_endpoint",
    "F7 hit rate": "overview/all/reuse: reuse_by_endpoint",
    "F8 queue": "overview/all/waiting: waiting_by_endpoint",
    "F9 error ratio": "overview/all/failed: failed_share_by_endpoint",
    "F10 GPUs allocated vs allocatable": "workers/all/gpus-allocated-share: gpu_allocated_share",
    "F11 GPU busy": "workers/all/gpu-util-nodes: gpu_util_by_node",
    "F12 $/h": "cost/all/usd-hour: workers_by_endpoint",
    "F13 SLO attainment TTFT<=1s": "overview/all/on-time: on_time_by_endpoint",
    "F13b SLO regex": "overview/one/on-time: on_time",
    "E1 TTFT p0.5": "overview/one/ttft: ttft_p50",
    "E1 TTFT p0.95": "overview/one/ttft: ttft_p95",
    "E1 TTFT p0.99": "overview/one/ttft: ttft_p99",
    "E2 ITL p95 (both names)": "overview/one/itl: itl_p95",
    "E3 E2E p95": "overview/one/e2e: e2e_p95",
    "E4 phase means queue": "overview/one/phases: phase_queue",
    "E4 prefill": "overview/one/phases: phase_prefill",
    "E4 decode": "overview/one/phases: phase_decode",
    "E5 running per pod": "workers/one/running: running_by_worker",
    "E5 waiting by reason": "workers/one/waiting-reasons: waiting_by_reason",
    "E6 KV usage": "workers/one/kv-usage-engines: kv_usage_by_engine",
    "E7 preemptions/s": "workers/one/preemptions: preemptions_by_worker",
    "E8 tok/s per pod": "workers/one/generated-workers: generated_tokens_by_worker",
    "E9 finish reasons": "overview/one/finished: finished_by_reason",
    "E10 admission rejects": "workers/one/rejected: rejected_by_reason",
    "E11 prompt length p50": "workers/one/prompt-length: prompt_length_p50",
    "E11 heat": "workers/one/prompt-lengths: prompt_lengths",
    "E12 batch tokens/step": "workers/one/step-tokens: step_tokens",
    "E13 GPU util per pod": "workers/one/gpu-util: gpu_util_by_worker",
    "E13 FB used %": "workers/one/gpu-memory: gpu_memory_by_worker",
    "E13 tensor active": "workers/one/gpu-tensor: gpu_tensor_by_worker",
    # By pods: our workers are a Deployment or a StatefulSet, and never called as their endpoint.
    "E14 replicas ready": "workers/one/pods-ready: pods_ready",
    "E14 restarts": "workers/one/restarts: restarts_by_worker",
    "E15 MFU proxy flops/s": "workers/one/flops: flops_by_worker",
    "E16 http 5xx at engine": "workers/one/http: http_by_status",
    "C1 token share by tier": "cache/one/sources: prompt_share_by_source",
    "C1 computed share": "cache/one/sources: prompt_share_by_source",
    "C2 GPU hit (HyperPod)": "cache/one/hits: hits_device",
    "C3 L1+L2 conditional": "cache/one/hits: hits_beyond",
    "C4 L1 host": "cache/one/hits: hits_l1",
    "C4 L2": "cache/one/hits: hits_l2",
    "C5 overall portable": "cache/one/hits: hits_overall",
    "C6 chunk hit by tier": "cache/one/chunks: chunk_hits_by_tier",
    "C7 load GB/s": "cache/one/load-speed: load_speed",
    "C7 store B/s": "cache/one/moved: stored_bytes",
    "C8 L2 read B/s": "cache/one/tier-read: tier_read_bytes",
    "C8 L2 write B/s": "cache/one/tier-written: tier_written_bytes",
    "C9 lookup p95 by tier": "cache/one/tier-lookup: tier_lookup_p95",
    "C10 failures": "cache/one/tier-failures: offload_failures",
    "C10 promo alloc failures": "cache/one/tier-failures: offload_failures",
    "C10 store alloc failures": "cache/one/tier-failures: offload_failures",
    "C11 block lifetime p50": "cache/one/blocks: block_lifetime_p50",
    "C11 idle before evict": "cache/one/blocks: block_idle_p50",
    "C12 lmcache lookup hit (HyperPod)": "cache/one/lmcache-hits: lm_lookup_hits",
    "C12 lmcache req hit p50": "cache/one/lmcache-hits: lm_request_rate_p50",
    "C13 L2 engine hit": "cache/all/l2-found: l2_hit_share_by_pool",
    "C13 L2 fill": "cache/all/l2-fill: l2_fill_by_medium",
    "C13 L2 get p99": "cache/all/l2-time: l2_p99_by_operation",
    "C13 L2 evict/s": "cache/all/l2-evicted: l2_evicted_by_reason",
    # vLLM says the capacity in a label, which PromQL cannot read as a number; the router did.
    "C14 GPU KV capacity tokens": "cache/one/kv-capacity: kv_capacity_by_worker",
    "R1 decisions by reason": "routing/one/strategies: decisions_by_strategy_reason",
    "R2 share per worker": "routing/one/share: share_by_worker",
    "R3 imbalance": "routing/one/imbalance: imbalance",
    "R4 fallback ratio": "routing/one/fallbacks: fallback_share",
    "R5 prefix match p50": "routing/one/match: match_ratio_by_strategy",
    "R6 predicted vs actual": "routing/one/kept-promises: kept_promises",
    "R7 overhead p99": "routing/one/overhead: overhead_p99_by_strategy",
    "R8 queue p95": "routing/one/queued: queued_p95",
    "R8 depth": "routing/one/queue: queue_depth",
    "R9 TTFT by cache state": "routing/one/ttft-cache-p95: ttft_p95_by_cache",
    "R10 errors by reason": "routing/one/errors: errors_by_reason",
    "R11 workers up": "routing/all/healthy-endpoints: workers_healthy_by_endpoint",
    "R12 index lag": "routing/one/index-lag: index_lag_by_worker",
    "R13 engine-side balance": "routing/one/prompt-skew: prompt_skew",
    # Costs: the console has the price (Line.factor); the reference prefers that too.
    "$1 endpoint $/h": "cost/one/usd-hour: workers_by_endpoint",
    "$2 $/1M output": "cost/one/usd-per-output: worker_hours_per_million_output",
    "$3 $/1M total": "cost/one/usd-per-token: worker_hours_per_million_tokens",
    "$3b $/1k requests": "cost/one/usd-per-request: worker_hours_per_thousand_requests",
    "$4 prefill s per computed token": "cost/one/prefill-seconds: prefill_seconds_per_token",
    "$5 prefill seconds avoided /s": "cost/one/prefill-avoided: prefill_seconds_avoided",
    "$6 MFU-FLOP method": "workers/one/flops-token: flops_per_token",
    "$7 idle cost share": "cost/one/gpu-idle-share: gpu_idle_share",
    "$8 tokens saved by tier 24h": "cost/one/tokens-reused-day: reused_tokens_day_by_tier",
    "T1 old/new usage": "cache/one/kv-usage: kv_usage_by_worker",
    "T2 queue absent-safe": "cache/one/tier-failures: offload_failures",
}


# Used by lists and tiles.
ELSEWHERE = {*("requests_each", "requests_total", "reuse_each", "ttft_p90_each")}


def placed() -> Iterator[tuple[str, Panel]]:
    for key, board in BOARDS.items():
        for one in (False, True):
            for panel in board.panels(one=one):
                yield f"{key}/{'one' if one else 'all'}/{panel.id}", panel


def test_every_reference_query_is_in_a_panel() -> None:
    requested = {f"{place}: {line.query}" for place, panel in placed() for line in panel.lines}
    assert set(ASKED.values()) - requested == set()
    assert len(ASKED) == 89


def test_every_declaration_is_complete() -> None:
    for place, panel in placed():
        assert {line.query for line in panel.lines} <= set(QUERIES), place
        assert panel.lines, place
        assert all(bool(line.by) != bool(line.name) for line in panel.lines), place
        assert bool(panel.needs) != bool(panel.job), place
        assert not panel.needs or panel.needs in EXPORTERS, place
        assert bool(panel.since) == bool(panel.job), place
        assert panel.about.endswith("."), place
        assert not panel.empty or panel.empty.endswith("."), place
        counted = any(evidence.is_counted(line) for line in panel.lines)
        assert not panel.job or counted == (panel.cause is not None), place
        named = {line.name for line in panel.lines if line.name}
        assert not panel.styles or named <= set(panel.styles), place


def test_panel_titles_are_unique_in_a_board() -> None:
    for board in BOARDS.values():
        for one in (False, True):
            shown = board.panels(one=one)
            assert len({panel.id for panel in shown}) == len(shown), board.key
            assert len({panel.title for panel in shown}) == len(shown), board.key


def test_every_query_is_used() -> None:
    requested = {line.query for _, panel in placed() for line in panel.lines}
    requested |= {panel.cause.query for _, panel in placed() if panel.cause is not None}
    assert {name for name in QUERIES if name not in requested} == ELSEWHERE | {
        *USAGE,
        "usage_misses",
    }


def test_documented_names_link_to_panels() -> None:
    titles = {panel.title for _, panel in placed()}
    for board in BOARDS.values():
        for one in board.documented:
            assert one.panel.partition(": Device")[0] in titles
