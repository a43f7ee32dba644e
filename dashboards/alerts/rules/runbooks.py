"""Runbook steps of each alert, for the rule's page and docs/reference/alert-rules.md.

Every built-in rule has steps. A step states what to check and what follows from the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_DOCTOR: Final = (
    "Run the doctor (`emberline endpoint doctor NAME`): it reports the cause and the fix."
)
_LOGS: Final = "Check the end of the worker logs (`emberline endpoint logs NAME`)."
_REVISIONS: Final = (
    "Compare with the last healthy revision on the Revisions tab; roll back if needed."
)

STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "EndpointNoHealthyWorker": (
        "Check phase and events of the endpoint: are workers running?",
        _LOGS,
        "If workers run and respond on /health, check network policies between router and workers.",
        _REVISIONS,
    ),
    "RouterDown": (
        "Check the router log of the endpoint; the console restarts the router automatically.",
        "If the router runs, only the scrape fails: check the target address in Prometheus.",
        "OOMKilled: increase the router's memory; the index grows with the number of prefixes.",
    ),
    "EngineTargetDown": (
        "Send a request to the worker: if it is served, only /metrics fails.",
        "Check the target on Prometheus' Targets page: wrong path, port or network.",
        _LOGS,
    ),
    "WorkerEngineStuck": (
        "Workers of the endpoint's routing page: the last error names the time without progress.",
        "Check the worker's log, and on a GPU `nvidia-smi` and `dmesg` for a device error (Xid).",
        "Restart the worker. The router sends it a request of one token every second and uses it "
        "again by itself once that is answered.",
    ),
    "RouterStateStoreAway": (
        "Check state and error of each router: Routers tab of the endpoint's routing, or "
        "`emberline endpoint routers NAME`.",
        "All routers: check the Valkey or Redis itself, its memory and its password.",
        "One router: check the network path and network policies from its pod to the store.",
        "Meanwhile requests are served; cache hits drop, and each router uses an equal part of "
        "limits and token budgets.",
    ),
    "RouterInternalErrors": (
        "Router log: each `internal_error` line has the step (`where`), the exception and its "
        "place.",
        "A step of the housekeeping that fails every time is not done until the router restarts: "
        "restart it.",
        "Report the lines. They quote nothing that a caller has sent.",
    ),
    "RouterErrorRatio": (
        "Check emberline_router_request_errors_total by reason, or the Routing board.",
        "Upstream errors: worker logs. Timeouts: worker queues. No worker: worker health.",
        _REVISIONS,
    ),
    "RouterQueueNearLimit": (
        "Check worker utilization (Workers board). If workers are busy, scale up.",
        "If they are not, worker_max_in_flight is too low: raise it.",
        "For latency-critical clients, lower the queue limit so that requests are rejected early.",
    ),
    "RoutingFallback": (
        _DOCTOR,
        "Check the reasons on the routing page: no_events, timeout and mismatch are explained "
        "in the documentation page Router failures.",
        "Until it is fixed, requests are routed by prefix hash; none are rejected.",
    ),
    "RoutingImbalance": (
        "Check decisions by worker and reason on the routing page.",
        "One hot prefix or session: expected with caching. If its worker is saturated, lower the "
        "weight of cache matches.",
        "A restarted worker has a cold cache and receives less load until it is warm.",
    ),
    "IndexStale": (
        "Compare the clocks of router and worker (`date -u` on both).",
        "Check the router's CPU load: an overloaded router reads events late. Increase its CPU.",
        _DOCTOR,
    ),
    "KvEventsNotFollowed": (
        _DOCTOR,
        "Usually --kv-events-config is missing, or its port is not reachable from the router.",
    ),
    "KvEventsLost": (
        "No action is needed once: the index was rebuilt and is consistent again.",
        "If it repeats, set replay_endpoint and a larger buffer_steps in --kv-events-config.",
    ),
    "KvIndexNotBelieved": (
        "Check for cache resets (worker log: reset), and for two workers behind one address.",
        _DOCTOR,
    ),
    "KvPredictionsMissed": (
        "Check evictions on the Cache board: caches too small for the load lose predicted blocks.",
        "Check that router and worker use the same tokenizer and chat template.",
        _DOCTOR,
    ),
    "KvProbeFailing": (
        "Check the probe result on the KV index page of the endpoint's routing.",
        "Check that prefix caching is not disabled in the worker (--no-enable-prefix-caching).",
    ),
    "RouterConfigRefused": (
        "Find the rejected field and value on the endpoint page or in the router log.",
        "Correct the field. Until then the previous configuration stays active.",
    ),
    "HighTTFT": (
        "Overview board of the endpoint, latency breakdown: queue, prefill or decode.",
        "Queue: scale up. Prefill: compare computed prompt tokens with before (Cache board).",
        "More computed tokens: fallbacks, evictions, or a changed start of the prompts.",
        "Endpoints with long prompts need a higher threshold: set one for the endpoint.",
    ),
    "TTFTBudgetBurnFast": (
        "Check healthy workers and queue depth: a missing worker is the most frequent cause.",
        _REVISIONS,
        "Scale up first, then investigate.",
    ),
    "HighITL": (
        "Workers board: batch size and preemptions. Large batches trade ITL for throughput.",
        "Prefill of long prompts interleaves with decoding: lower --max-num-batched-tokens.",
        "Add workers, or lower concurrency per worker (worker_max_in_flight).",
    ),
    "EngineQueueBacklog": (
        "Compare requests/s with the previous day; scale up if the load is legitimate.",
        "Set worker_max_in_flight so that requests queue in the router instead of at a worker.",
    ),
    "AdmissionRejections": (
        "Check the reason (Workers board): queue full, or requests too long for the model.",
        "Scale up, or set router limits, which reject with a Retry-After header.",
    ),
    "KVCacheSaturated": (
        "Lower concurrency (--max-num-seqs) or context length, or add workers.",
        "Check preemptions: without them, high utilization is efficient and needs no action.",
    ),
    "WorkersCrashLooping": (
        "Read the reason of the phase on the endpoint page: it has exit code and last log line.",
        _LOGS,
        _REVISIONS,
    ),
    "EndpointFailed": (
        "Read reason and remedy of the phase on the endpoint page.",
        _LOGS,
        _REVISIONS,
    ),
    "Preemptions": (
        "Lower --max-num-seqs, or increase device memory (--gpu-memory-utilization).",
        "Check for very long requests: one of 100,000 tokens displaces many short ones.",
    ),
    "CacheHitCollapse": (
        _DOCTOR,
        "Compare revisions: a changed model, block size or hash invalidates every cache.",
        "Inspect prompts: a timestamp or id at the start prevents prefix hits.",
        "Check L2 and evictions on the Cache board.",
    ),
    "MetricsAbsent": (
        "Open /metrics of a worker: vllm_ instead of vllm: is caused by a trailing slash.",
        "Check the vLLM version: 0.11 to 0.32 are supported.",
    ),
    "L2Unavailable": (
        "Check the affected node and its log on the tier's page.",
        "The node restarts automatically. Memory contents are lost, disk contents are reloaded.",
        "Workers continue without it: TTFT rises, no request fails.",
    ),
    "L2ErrorRatio": (
        "Check emberline_l2_operations_total by result: timeout is the network, error the node.",
        "Check the node logs.",
    ),
    "L2SlowGet": (
        "Compare the tier's bytes/s with its network limit, and check disk wait.",
        "Add nodes to distribute the load; increase memory to reduce disk reads.",
        "If reads are slower than computing, the tier has negative savings on the Costs page.",
    ),
    "L2NearFull": (
        "Check the capacity curve on the tier's page for the benefit of more memory or disk.",
        "If the hit rate would not rise, disable this rule for the tier.",
    ),
    "L2Integrity": (
        "No response was affected: the value was discarded and recomputed.",
        "Check for another writer with the same keys (another console on the same nodes).",
        "Test the node's memory, then its disk.",
    ),
    "OffloadFailures": (
        _LOGS,
        "Check the label tier: host memory that cannot be pinned, or an unreachable tier.",
    ),
    "OffloadBackpressure": (
        "Increase L1 to absorb bursts; add L2 nodes or network bandwidth for sustained load.",
        "Dropped blocks are recomputed later; no request fails.",
    ),
    "EngineTargetsMissing": (
        "Check the cluster's events on the endpoint page.",
        "Pending pods: see PodUnschedulable. Restarting pods: see PodCrashLoop.",
    ),
    "PodCrashLoop": (
        "Check its log, including the previous container, on the endpoint's Logs tab.",
        "OOMKilled: increase memory. ImagePull: check image name and pull secret.",
        _REVISIONS,
    ),
    "PodUnschedulable": (
        "Check the endpoint's events for the missing resource: usually a GPU or a toleration.",
        "Add or free a node, or select another instance type for the endpoint.",
    ),
    "GPUXid": (
        "Look up the code in NVIDIA's Xid catalogue.",
        "79 (fallen off the bus) and 95 (uncontained): drain the node and replace the GPU.",
        "13, 31 and 43 are usually application errors: check the worker log first.",
    ),
    "GPURowRemapFailure": (
        "Drain the node, then reset the GPU.",
        "If the error persists, replace the GPU: the memory row cannot be repaired.",
    ),
    "GPUHot": (
        "Check fans, neighbouring load and room temperature.",
        "The GPU throttles before damage occurs: check its clocks on the Workers board.",
    ),
    "GPUAllocatedIdle": (
        "Pause the endpoint, or scale it down.",
        "Check its hourly cost on the Costs page.",
        "If it is kept warm on purpose, disable the rule for that endpoint.",
    ),
    "BudgetExceeded": (
        "Check spending by endpoint and idle endpoints on the Costs page.",
        "Pause or scale down idle endpoints, or raise the budget with a reason.",
    ),
    "BudgetForecast": (
        "Check current spending on the Costs page; the forecast extrapolates the month to date.",
        "A forgotten test endpoint is the most frequent cause.",
    ),
    "ConsoleMetricsStale": (
        "Open the System page. If it does not load, the console is down: check `/readyz` and its "
        "log; endpoints keep serving.",
        "Otherwise Prometheus stores nothing: check free space of its disk and its log for errors "
        "of the write-ahead log. No restart is needed once there is space.",
        "If only this target fails, check it on Prometheus' Targets page (token, network), and "
        "compare the clocks of both machines.",
        "Until it is resolved, rules that need new samples cannot fire and boards have a gap.",
    ),
    "BackgroundJobFailing": (
        "Background jobs on the System page, or `emberline doctor`: state, cause and remedy.",
        "Several jobs late: the worker, beat or the broker is down or hangs. Endpoints keep "
        "serving, but changes wait and nothing repairs them.",
        "`alerts`: firing alerts may not reach their receivers. `alert rules`: Prometheus has an "
        "older version of the rules. `costs`: hours are missing in reports.",
        "`audit log` fails: rows were changed outside the console. `clock`: recorded times are "
        "wrong.",
    ),
    "AlertDeliveryFailing": (
        "Send a test to each receiver of this kind (*Alerts, Receivers*): the answer names the "
        "cause, such as a revoked token, an unknown channel or a blocked network.",
        "Check the log of alertmanager under System for the error of the failed notification.",
        "Firing alerts are sent again at the next interval of their group.",
    ),
    "DiskAlmostFull": (
        "Check path, free space and forecast on the System page.",
        "Find large files: `du -xh PATH | sort -h | tail`. Under EMBERLINE_VAR usually prometheus "
        "(EMBERLINE_PROMETHEUS_RETENTION_SIZE), models, or the disk tier of a cache node.",
        "Delete or move files, or enlarge the file system. No restart is needed.",
    ),
    "DiskFullSoon": (
        "Check the forecast on the System page.",
        "Find what grows: run `du -xh PATH | sort -h | tail` twice, a few minutes apart.",
        "Stop the writer or free space before the disk is full: then changes fail.",
    ),
    "DiskFull": (
        "Endpoints keep serving; log lines are dropped and counted, changes return 503.",
        "Free space: `du -xh PATH | sort -h | tail`. Read-only: check `dmesg`, then remount.",
        "No restart is needed: console, Prometheus and logs recover automatically.",
    ),
}
