"""Runbook steps of each alert, for the rule's page and docs/reference/alert-rules.md.

Every built-in rule has steps. A step states what to check and what follows from the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_DOCTOR: Final = "Run the doctor (`emberline endpoint doctor NAME`): it names the cause it finds."
_LOGS: Final = "Read the end of the workers' logs (`emberline endpoint logs NAME`)."
_REVISIONS: Final = "Compare with the last revision that was well; going back is one button there."

STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "EndpointNoHealthyWorker": (
        "Open the endpoint: its phase and its events say whether workers run at all.",
        _LOGS,
        "If they run and answer /health, the router cannot reach them: look at network policies.",
        _REVISIONS,
    ),
    "RouterDown": (
        "Open the endpoint and read its router's log; the console starts it again by itself.",
        "If it runs, nothing but the scrape fails: see which address Prometheus asks.",
        "Killed for memory? Raise the router's memory; its index grows with the prefixes it knows.",
    ),
    "EngineTargetDown": (
        "Send the worker a request: if it serves, only its /metrics is away.",
        "See what Prometheus says of the target (its page Targets): a wrong path, port or network.",
        _LOGS,
    ),
    "RouterErrorRatio": (
        "See emberline_router_request_errors_total by reason, or the board Routing.",
        "upstream errors: the workers' logs. timeouts: their queue. no worker: their health.",
        _REVISIONS,
    ),
    "RouterQueueNearLimit": (
        "See whether workers are busy (board Workers): if they are, scale up.",
        "If they are not, worker_max_in_flight is too low for what they can do.",
        "Callers who may not wait are better refused early: lower the queue's limit.",
    ),
    "RoutingFallback": (
        _DOCTOR,
        "See the reasons on the routing page: no_events, timeout and mismatch each have a section "
        "in the page Router failures of these documents.",
        "Until it is mended requests are placed by prefix; nobody is refused.",
    ),
    "RoutingImbalance": (
        "See decisions by worker and reason on the routing page.",
        "One hot prefix or one session: that is caching at work; more replicas of it do not help "
        "before its worker is full. Lower the weight of matches if it is.",
        "A worker that came back is cold, and gets its share after a while.",
    ),
    "IndexStale": (
        "Compare the clocks of router and worker (`date -u` on both).",
        "See the router's CPU: one that is always busy reads events late. Give it more.",
        _DOCTOR,
    ),
    "KvEventsNotFollowed": (
        _DOCTOR,
        "Mostly the worker lacks --kv-events-config, or its port is closed to the router.",
    ),
    "KvEventsLost": (
        "Nothing is broken: the worker's index was built anew and is right again.",
        "If it repeats, set replay_endpoint and a larger buffer_steps in --kv-events-config.",
    ),
    "KvIndexNotBelieved": (
        "Look for who empties the worker's cache (its log says reset), or for two workers behind "
        "one address.",
        _DOCTOR,
    ),
    "KvPredictionsMissed": (
        "See evictions on the board Cache: caches too small for the load lose what was promised.",
        "See whether the tokenizer and chat template of router and worker are the same files.",
        _DOCTOR,
    ),
    "KvProbeFailing": (
        "Open the page KV index of the endpoint's routing: it shows what the probe saw.",
        "Prefix caching may be off in the worker (--no-enable-prefix-caching).",
    ),
    "RouterConfigRefused": (
        "The endpoint's page and the router's log name the field and the value.",
        "Correct it; until then the router works with the configuration before.",
    ),
    "HighTTFT": (
        "Board Overview of the endpoint, Where time goes: queue, prefill or decode?",
        "Queue: scale up. Prefill: see whether more is computed than before (board Cache).",
        "More is computed: a fallback, an eviction, or prompts that begin otherwise than they did.",
        "Is the threshold right for it? Long prompts take longer by nature: set its own.",
    ),
    "TTFTBudgetBurnFast": (
        "Look at workers up and at the queue: one missing worker is the usual reason.",
        _REVISIONS,
        "Scale up now, look for the reason afterwards.",
    ),
    "HighITL": (
        "Board Workers: batch size and preemptions. Large batches trade this time for throughput.",
        "Long prompts of others are computed in between: lower --max-num-batched-tokens.",
        "More workers, or fewer requests at each (worker_max_in_flight).",
    ),
    "EngineQueueBacklog": (
        "Scale up, if the load is real: compare requests a second with yesterday's.",
        "Set worker_max_in_flight, so that requests wait in the router, which can still choose.",
    ),
    "AdmissionRejections": (
        "See the reason (board Workers): queue full, or requests too long for the model.",
        "Scale up, or set limits in the router: it refuses with a Retry-After.",
    ),
    "KVCacheSaturated": (
        "Fewer requests at a time (--max-num-seqs), shorter contexts, or more workers.",
        "See whether requests are preempted: until they are, full is what one pays for.",
    ),
    "Preemptions": (
        "Lower --max-num-seqs, or give it more device memory (--gpu-memory-utilization).",
        "See which requests are long: one of 100,000 tokens evicts a hundred short ones.",
    ),
    "CacheHitCollapse": (
        _DOCTOR,
        "Compare revisions: another model, another block size or another hash empties every cache.",
        "Look at a few prompts: a timestamp or an id in front of everything makes each one new.",
        "See L2 and evictions on the board Cache.",
    ),
    "MetricsAbsent": (
        "Open /metrics of a worker: names with vllm_ instead of vllm: come of a slash at its end.",
        "Another version of vLLM may call them otherwise; the boards know 0.11 to 0.32.",
    ),
    "L2Unavailable": (
        "Open the tier's page: which node, since when, and its log.",
        "It is started again by itself. What memory held is computed again; disk is read again.",
        "Workers go on without it: first tokens are later, no request fails.",
    ),
    "L2ErrorRatio": (
        "See emberline_l2_operations_total by result: timeout is the network, error the node.",
        "Read the nodes' logs.",
    ),
    "L2SlowGet": (
        "See bytes a second of the tier against its network's limit, and its disk's wait.",
        "More nodes share the load; more in memory spares the disk.",
        "Slower than computing? Then the tier harms: the page Costs says by its negative saving.",
    ),
    "L2NearFull": (
        "The tier's page draws what more memory or disk would bring; the knee is marked.",
        "If nothing would be found more often, full is no fault: turn it off.",
    ),
    "L2Integrity": (
        "No answer was wrong: the value was refused and computed again.",
        "Look for another writer under its keys (another console on the same nodes).",
        "Test the node's memory, then its disk.",
    ),
    "OffloadFailures": (
        _LOGS,
        "The label tier says which: host memory that cannot be pinned, or a tier that is away.",
    ),
    "OffloadBackpressure": (
        "A larger L1 holds bursts; more nodes of L2 or a quicker network take them.",
        "What is dropped is computed again later; no request fails.",
    ),
    "EngineTargetsMissing": (
        "The endpoint's page has the cluster's own reasons and events.",
        "Pending: see PodUnschedulable. Restarting: see PodCrashLoop.",
    ),
    "PodCrashLoop": (
        "Its log, also of its former life, is on the endpoint's tab Logs.",
        "OOMKilled: more memory. ImagePull: the image's name and its pull secret.",
        _REVISIONS,
    ),
    "PodUnschedulable": (
        "The endpoint's events say what the scheduler lacks: mostly a GPU, or a tolerated taint.",
        "Add a node, free one, or let the endpoint use another instance type.",
    ),
    "GPUXid": (
        "Look the number up in NVIDIA's Xid catalogue.",
        "79 (fallen off the bus) and 95 (uncontained): drain the node and replace the GPU.",
        "13, 31 and 43 are mostly faults of the program: read the worker's log first.",
    ),
    "GPURowRemapFailure": (
        "Drain the node, then reset the GPU.",
        "If it stays, have it replaced: the memory has a row that cannot be mended.",
    ),
    "GPUHot": (
        "Look at the node's fans, its neighbours and the room.",
        "It slows itself down before it is harmed; see its clocks on the board Workers and GPU.",
    ),
    "GPUAllocatedIdle": (
        "Pause the endpoint, or let it scale to fewer workers.",
        "The page Costs says what it costs an hour.",
        "Is it kept warm on purpose? Then turn this off for that endpoint.",
    ),
    "BudgetExceeded": (
        "The page Costs says which endpoints spent it, and what is idle.",
        "Pause or scale down what is idle, or raise the budget with a note on why.",
    ),
    "BudgetForecast": (
        "The page Costs says what costs most now; the forecast takes the month so far.",
        "An endpoint started for a test and forgotten is the usual reason.",
    ),
    "DiskAlmostFull": (
        "See the page System for the path, what is free and the forecast.",
        "Find what uses it: `du -xh PATH | sort -h | tail`. Under EMBERLINE_VAR mostly prometheus "
        "(EMBERLINE_PROMETHEUS_RETENTION_SIZE), models, or the disk tier of a cache node.",
        "Delete or move it, or enlarge the file system. Nothing needs a restart.",
    ),
    "DiskFullSoon": (
        "See the page System for the forecast, and the board of what changed in the last hour.",
        "Find what grows: `du -xh PATH | sort -h | tail`, twice a few minutes apart.",
        "Stop it or make room before the disk is full: then changes fail.",
    ),
    "DiskFull": (
        "Endpoints serve on; log lines are dropped and counted, changes answer 503.",
        "Free space: `du -xh PATH | sort -h | tail`. Read-only: `dmesg` has the cause; remount.",
        "Nothing needs a restart: the console, Prometheus and the logs go on by themselves.",
    ),
}
