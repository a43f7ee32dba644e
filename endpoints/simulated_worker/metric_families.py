"""Metric families of vLLM 0.32: names, help texts, labels and buckets, exactly as exposed.

Source: `vllm/v1/metrics/{loggers,buckets}.py` and `vllm/v1/kv_offload`.
"""

from __future__ import annotations

TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
LATENCY = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
ITERATION = tuple(float(n) for n in (1, *(2**power for power in range(3, 15))))
PARAMS_N = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
TRANSFER = (1e6, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6, 150e6, 200e6)
LOOKUP_SYNC = (1e-05, 5e-05, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
LOOKUP_ASYNC = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)


def one_two_five(most: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, ... up to and including `most`."""
    steps = []
    power = 1
    while power <= most:
        steps += [float(digit * power) for digit in (1, 2, 5) if digit * power <= most]
        power *= 10
    return tuple(steps)


GAUGES = {
    "vllm:num_requests_running": "Number of requests in model execution batches.",
    "vllm:num_requests_waiting": "Number of requests waiting to be processed.",
    "vllm:kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
WAITING_BY_REASON = (
    "vllm:num_requests_waiting_by_reason",
    "Number of waiting requests by reason. "
    "Reason labels: 'capacity' = waiting for scheduling capacity; "
    "'deferred' = deferred by transient constraints "
    "(LoRA budget, KV transfer, blocked status). "
    "Sum of all reasons equals vllm:num_requests_waiting.",
)
KV_FETCH = (
    "vllm:num_requests_kv_fetch_by_stage",
    "Number of waiting requests by async KV load stage. "
    "Stage labels: 'waiting_to_start' = needs an async KV load that has not started; "
    "'in_progress' = load started and not yet reported finished; "
    "'completed_waiting' = load finished, request not running yet.",
)
SLEEP = (
    "vllm:engine_sleep_state",
    "Engine sleep state; awake = 0 means engine is sleeping; "
    "awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; "
    "discard_all = 1 means sleep level 2.",
)
COUNTERS = {
    "vllm:prefix_cache_queries_total": (
        "Prefix cache queries, in terms of number of queried tokens."
    ),
    "vllm:prefix_cache_hits_total": "Prefix cache hits, in terms of number of cached tokens.",
    "vllm:external_prefix_cache_queries_total": (
        "External prefix cache queries from KV connector cross-instance cache sharing, in terms of "
        "number of queried tokens."
    ),
    "vllm:external_prefix_cache_hits_total": (
        "External prefix cache hits from KV connector cross-instance cache sharing, in terms of "
        "number of cached tokens."
    ),
    "vllm:mm_cache_queries_total": (
        "Multi-modal cache queries, in terms of number of queried items."
    ),
    "vllm:mm_cache_hits_total": "Multi-modal cache hits, in terms of number of cached items.",
    "vllm:num_preemptions_total": "Cumulative number of preemption from the engine.",
    "vllm:prompt_tokens_total": "Number of prefill tokens processed.",
    "vllm:prompt_tokens_cached_total": "Number of cached prompt tokens (local + external).",
    "vllm:generation_tokens_total": "Number of generation tokens processed.",
}
LABELLED_COUNTERS = {
    "vllm:prompt_tokens_by_source_total": (
        "Number of prompt tokens by source.",
        "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    "vllm:prompt_tokens_cached_by_source_total": (
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host "
        "(offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or "
        "external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + "
        "vllm:external_prefix_cache_hits.",
        "source",
        ("device", "host", "p2p", "disk", "external_unspecified"),
    ),
    "vllm:request_success_total": (
        "Count of successfully processed requests.",
        "finished_reason",
        ("stop", "length", "abort", "error", "repetition"),
    ),
}
REJECTIONS = (
    "vllm:admission_rejections_total",
    "Number of admission attempts rejected by a queue limit, by reason.",
    ("max_num_queued_reqs", "max_num_queued_tokens"),
)
# None: the 1-2-5 series up to the maximum context length.
HISTOGRAMS: dict[str, tuple[str, tuple[float, ...] | None]] = {
    "vllm:request_prompt_tokens": ("Number of prefill tokens processed.", None),
    "vllm:request_generation_tokens": ("Number of generation tokens processed.", None),
    "vllm:iteration_tokens_total": ("Histogram of number of tokens per engine_step.", ITERATION),
    "vllm:request_max_num_generation_tokens": (
        "Histogram of maximum number of requested generation tokens.",
        None,
    ),
    "vllm:request_params_n": ("Histogram of the n request parameter.", PARAMS_N),
    "vllm:request_params_max_tokens": ("Histogram of the max_tokens request parameter.", None),
    "vllm:time_to_first_token_seconds": ("Histogram of time to first token in seconds.", TTFT),
    "vllm:inter_token_latency_seconds": ("Histogram of inter-token latency in seconds.", ITL),
    "vllm:request_time_per_output_token_seconds": (
        "Histogram of time_per_output_token_seconds per request.",
        ITL,
    ),
    "vllm:e2e_request_latency_seconds": ("Histogram of e2e request latency in seconds.", LATENCY),
    "vllm:request_queue_time_seconds": (
        "Histogram of time spent in WAITING phase for request.",
        LATENCY,
    ),
    "vllm:request_inference_time_seconds": (
        "Histogram of time spent in RUNNING phase for request.",
        LATENCY,
    ),
    "vllm:request_prefill_time_seconds": (
        "Histogram of time spent in PREFILL phase for request.",
        LATENCY,
    ),
    "vllm:request_decode_time_seconds": (
        "Histogram of time spent in DECODE phase for request.",
        LATENCY,
    ),
    "vllm:request_num_preemptions": (
        "Histogram of the number of times a request was preempted.",
        PREEMPTIONS,
    ),
    "vllm:request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        None,
    ),
}
# Only with a KV connector.
OFFLOAD_COUNTERS = {
    "vllm:kv_offload_load_bytes_total": "Total bytes loaded from offload storage to GPU.",
    "vllm:kv_offload_load_time_total": "Total load time from offload storage to GPU, in seconds.",
    "vllm:kv_offload_store_bytes_total": "Total bytes stored from GPU to offload storage.",
    "vllm:kv_offload_store_time_total": "Total store time from GPU to offload storage, in seconds.",
}
OFFLOAD_HISTOGRAMS = {
    "vllm:kv_offload_load_size": (
        "Histogram of KV offload load operation size, in bytes.",
        TRANSFER,
    ),
    "vllm:kv_offload_store_size": (
        "Histogram of KV offload store operation size, in bytes.",
        TRANSFER,
    ),
    "vllm:kv_offload_lookup_sync_delay_seconds": (
        "Histogram of the time spent in a single offload lookup call, in seconds.",
        LOOKUP_SYNC,
    ),
    "vllm:kv_offload_lookup_async_delay_seconds": (
        "Histogram of time between a request's offload lookup first deferring and the following "
        "lookup resolving, or request finish, in seconds.",
        LOOKUP_ASYNC,
    ),
}
TIER_COUNTERS = {
    "vllm:kv_offload_tiering_chunk_queries_total": (
        "Number of chunk lookup queries sent to a tier, labeled by tier."
    ),
    "vllm:kv_offload_tiering_chunk_hits_total": (
        "Number of chunk lookup hits in a tier, labeled by tier."
    ),
}
SECONDARY_COUNTERS = {
    "vllm:kv_offload_tiering_read_bytes_total": (
        "Total bytes read from secondary tiers into the primary tier, labeled by tier."
    ),
    "vllm:kv_offload_tiering_read_time_total": (
        "Total time spent reading from secondary tiers into the primary tier, in seconds, labeled "
        "by tier."
    ),
    "vllm:kv_offload_tiering_write_bytes_total": (
        "Total bytes written from the primary tier to secondary tiers, labeled by tier."
    ),
}
# From our plug-in (cachetier/vllm_connector/stats.py).
L2_OPERATIONS = (
    "emberline_l2_client_operations_total",
    "L2 block operations, by operation and result.",
)
L2_BREAKER = ("emberline_l2_client_breaker_open", "1 while the circuit breaker of L2 is open.")
L2_DROPPED = (
    "emberline_l2_client_stores_dropped_total",
    "Blocks not stored in L2 because the queue was full.",
)
PRIMARY, SECONDARY = "0:primary", "1:EmberlineL2Tier"
