"""Metric names of the queried exporters as of vLLM 0.32; names that end in OLD are former ones.

LMCache's names contain a colon, or an underscore in OpenMetrics.
"""

TTFT = "vllm:time_to_first_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
ITL_OLD = "vllm:time_per_output_token_seconds"  # both in 0.11, removed by 0.16
E2E = "vllm:e2e_request_latency_seconds"
QUEUE_TIME = "vllm:request_queue_time_seconds"
PREFILL_TIME = "vllm:request_prefill_time_seconds"
DECODE_TIME = "vllm:request_decode_time_seconds"
FINISHED = "vllm:request_success_total"
GENERATED = "vllm:generation_tokens_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
WAITING_WHY = "vllm:num_requests_waiting_by_reason"
REJECTED = "vllm:admission_rejections_total"
PREEMPTIONS = "vllm:num_preemptions_total"
PREEMPTED = "vllm:request_num_preemptions"
PROMPT_LENGTH = "vllm:request_prompt_tokens"
ANSWER_LENGTH = "vllm:request_generation_tokens"
STEP_TOKENS = "vllm:iteration_tokens_total"  # a histogram despite its name
COMPUTED_TOKENS = "vllm:request_prefill_kv_computed_tokens"
FLOPS = "vllm:estimated_flops_per_gpu_total"
HTTP_REQUESTS = "http_requests_total"

# Workers: prompt tokens by source, and the device cache.
PROMPT = "vllm:prompt_tokens_total"
BY_SOURCE = "vllm:prompt_tokens_by_source_total"
CACHED_ALL = "vllm:prompt_tokens_cached_total"
CACHED = "vllm:prompt_tokens_cached_by_source_total"
KV_USAGE = "vllm:kv_cache_usage_perc"
KV_USAGE_OLD = "vllm:gpu_cache_usage_perc"  # until 0.11
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
PREFIX_QUERIES_OLD = "vllm:gpu_prefix_cache_queries_total"  # until 0.11
PREFIX_HITS_OLD = "vllm:gpu_prefix_cache_hits_total"
EXTERNAL_QUERIES = "vllm:external_prefix_cache_queries_total"
EXTERNAL_HITS = "vllm:external_prefix_cache_hits_total"
BLOCK_LIFETIME = "vllm:kv_block_lifetime_seconds"
BLOCK_IDLE = "vllm:kv_block_idle_before_evict_seconds"
BLOCK_REUSE = "vllm:kv_block_reuse_gap_seconds"

# Workers: offloading to host memory (L1) and L2.
LOAD_BYTES = "vllm:kv_offload_load_bytes_total"
LOAD_TIME = "vllm:kv_offload_load_time_total"
STORE_BYTES = "vllm:kv_offload_store_bytes_total"
OFFLOADED_OLD = "vllm:kv_offload_total_bytes_total"  # before 0.24, by transfer_type
OFFLOAD_TIME_OLD = "vllm:kv_offload_total_time_total"
STORE_REFUSED = "vllm:kv_offload_allocation_failure_total"
CHUNK_QUERIES = "vllm:kv_offload_tiering_chunk_queries_total"
CHUNK_HITS = "vllm:kv_offload_tiering_chunk_hits_total"
READ = "vllm:kv_offload_tiering_read_bytes_total"
WRITTEN = "vllm:kv_offload_tiering_write_bytes_total"
TIER_LOOKUP = "vllm:kv_offload_tiering_lookup_async_delay_seconds"
PROMOTIONS_FAILED = "vllm:kv_offload_tiering_promotion_job_failures_total"
PROMOTIONS_REFUSED = "vllm:kv_offload_tiering_promotion_allocation_failures_total"
CASCADES_FAILED = "vllm:kv_offload_tiering_cascade_job_failures_total"
BLOCKS_DROPPED = "vllm:kv_offload_tiering_backpressure_blocks_dropped_total"

# LMCache, in process (without its prefix) and multi-process.
LM_LOOKUP_HITS = "num_lookup_hits_total"
LM_LOOKUP_TOKENS = "num_lookup_tokens_total"
LM_HIT_TOKENS = "num_hit_tokens_total"
LM_VLLM_HITS = "num_vllm_hit_tokens_total"
LM_REQUEST_RATE = "request_cache_hit_rate"
LM_LOCAL_USAGE = "local_cache_usage"
LM_REMOTE_USAGE = "remote_cache_usage"
LM_EVICTED = "local_cpu_evict_keys_count_total"
LM_RETRIEVE = "time_to_retrieve"
LMS_REQUESTED = "lmcache_mp_lookup_requested_tokens_total"
LMS_HITS = "lmcache_mp_lookup_hit_tokens_total"
LMS_HITS_L1 = "lmcache_mp_lookup_hit_l1_tokens_total"
LMS_HITS_L2 = "lmcache_mp_lookup_hit_l2_tokens_total"
LMS_L1_BYTES = "lmcache_mp_l1_memory_usage_bytes"
LMS_L2_BYTES = "lmcache_mp_l2_usage_bytes"
LMS_L2_EVICTED = "lmcache_mp_l2_evicted_objects_chunks_total"

# Routers: a label `traffic` tells the console's own requests from those of callers.
REQUESTS = "emberline_router_requests_total"
ERRORS = "emberline_router_request_errors_total"
RETRIES = "emberline_router_retries_total"
DECISIONS = "emberline_router_routing_decisions_total"
ROUTER_TTFT = "emberline_router_time_to_first_token_seconds"
ROUTER_CACHED = "emberline_router_cached_prompt_tokens_total"
ROUTER_COMPLETION = "emberline_router_completion_tokens_total"
ROUTER_PREDICTED = "emberline_router_predicted_cached_tokens_total"
MATCH_RATIO = "emberline_router_prefix_match_ratio"
OVERHEAD = "emberline_router_overhead_seconds"
QUEUED_FOR = "emberline_router_queue_duration_seconds"
QUEUE_DEPTH = "emberline_router_queue_depth"
QUEUE_LIMIT = "emberline_router_queue_limit"
WORKER_UP = "emberline_router_worker_up"
IN_FLIGHT = "emberline_router_in_flight_requests"
CIRCUIT = "emberline_router_worker_circuit_state"
WORKER_STUCK = "emberline_router_worker_stuck"
CACHE_TOKENS = "emberline_router_worker_cache_tokens"
CONFIG_RELOADS = "emberline_router_config_reloads_total"
INDEX_BLOCKS = "emberline_router_index_blocks"
INDEX_LAG = "emberline_router_index_event_lag_seconds"
KV_FALLBACKS = "emberline_router_kv_fallbacks_total"
ROUTER_COMPUTED = "emberline_router_computed_prompt_tokens_total"
KV_RECOVERIES = "emberline_router_kv_recoveries_total"
STATE_STORE_UP = "emberline_router_state_store_up"
KV_EVENTS_UP = "emberline_router_kv_events_up"
KV_BELIEVED = "emberline_router_kv_index_believed"
KV_PROBE = "emberline_router_kv_probe_success"

L2_LOOKUPS = "emberline_l2_lookup_blocks_total"
L2_HITS = "emberline_l2_hit_blocks_total"
L2_USED = "emberline_l2_used_bytes"
L2_CAPACITY = "emberline_l2_capacity_bytes"
L2_READ = "emberline_l2_read_bytes_total"
L2_STORED = "emberline_l2_written_bytes_total"
L2_OPERATIONS = "emberline_l2_operations_total"
L2_DURATION = "emberline_l2_operation_duration_seconds"
L2_EVICTED = "emberline_l2_evicted_blocks_total"
L2_REJECTED = "emberline_l2_rejected_writes_total"
L2_INTEGRITY = "emberline_l2_integrity_failures_total"
L2_NODE_UP = "emberline_l2_node_up"

GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
GPU_ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
GPU_TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
GPU_DRAM = "DCGM_FI_PROF_DRAM_ACTIVE"
GPU_USED = "DCGM_FI_DEV_FB_USED"
GPU_FREE = "DCGM_FI_DEV_FB_FREE"
GPU_TEMP = "DCGM_FI_DEV_GPU_TEMP"
GPU_POWER = "DCGM_FI_DEV_POWER_USAGE"
GPU_XID = "DCGM_FI_DEV_XID_ERRORS"

POD_REQUESTS = "kube_pod_container_resource_requests"
NODE_ALLOCATABLE = "kube_node_status_allocatable"
POD_READY = "kube_pod_status_ready"
POD_PHASE = "kube_pod_status_phase"
RESTARTS = "kube_pod_container_status_restarts_total"
POD_MEMORY = "container_memory_working_set_bytes"
POD_CPU = "container_cpu_usage_seconds_total"

# Copied by recording rules: between the points of a week, a gauge's samples are many blocks of
# which one value is read.
COPIED = (
    *("up", RUNNING, WAITING, WAITING_WHY, KV_USAGE, KV_USAGE_OLD),
    *(QUEUE_DEPTH, QUEUE_LIMIT, WORKER_UP, IN_FLIGHT, CIRCUIT, CACHE_TOKENS),
    *(INDEX_BLOCKS, INDEX_LAG, L2_USED, L2_CAPACITY, L2_NODE_UP),
    *(GPU_UTIL, GPU_ENGINE, GPU_TENSOR, GPU_DRAM, GPU_USED, GPU_FREE),
    *(GPU_TEMP, GPU_POWER, POD_REQUESTS, NODE_ALLOCATABLE, POD_READY),
    *(POD_PHASE, POD_MEMORY),
)

# The console: phases of endpoints, and expected absences, which are excluded from alerts.
ENDPOINT_PHASE = "emberline_endpoint_phase"
ENDPOINT_TRANSITION = "emberline_endpoint_transition"
WORKER_STARTING = "emberline_worker_starting"
