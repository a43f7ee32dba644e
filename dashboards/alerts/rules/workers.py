"""Alert rules for workers: latency, queues and cache hit rate.

Thresholds suit interactive endpoints; batch endpoints exceed some of them by design. A missing
series (other vLLM version, no traffic) fires nothing: separate rules report missing metrics.
"""

from __future__ import annotations

from functools import partial

from dashboards.alerts.rules.parameter import Parameter
from dashboards.alerts.rules.rule import PAGE, Rule, quantile, rate, select, threshold, window
from dashboards.boards.queries import metric_names as q

_ENDPOINT = "namespace, endpoint_name"
_WORKER = f"{_ENDPOINT}, pod"
# Bucket bounds of vLLM's TTFT histogram: a share is exact only at a bound.
_EDGES = (0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
_REQUESTS = rate(f"{q.TTFT}_count", _ENDPOINT, "<window>")

_TRAFFIC = Parameter(
    # With fewer requests a quantile reflects single requests.
    "traffic",
    "While there are more requests than",
    0.1,
    0.0,
    1000.0,
    "a second",
)
_BURN = (
    Parameter("target", "A first token is late after", 1.0, 0.1, 40.0, "edge", _EDGES),
    Parameter("allowed", "Of a month's requests may be late", 0.05, 0.001, 0.5, "share"),
    # Consumes a month's error budget in two days (Site Reliability Workbook, chapter 5).
    Parameter("burn", "Times faster than the allowance lasts", 14.4, 1.0, 1000.0),
)


def _slower(span: str) -> str:
    """Return the share of requests with TTFT above the target."""
    good = rate(f"{q.TTFT}_bucket", _ENDPOINT, span, 'le=~"<target>"')
    return f"(1 - {good} / {rate(f'{q.TTFT}_count', _ENDPOINT, span)})"


def _reused(offset: str = "") -> str:
    """Return the share of prompt tokens not computed (prefix cache hit rate)."""
    computed = rate(q.BY_SOURCE, _ENDPOINT, "<window>", 'source="local_compute"', offset)
    return f"(1 - {computed} / ({rate(q.PROMPT, _ENDPOINT, '<window>', '', offset)} > 1))"


_worker_rule = partial(Rule, about="endpoint_name")

RULES: tuple[Rule, ...] = (
    _worker_rule(
        "HighTTFT",
        quantile(0.95, q.TTFT, _ENDPOINT, "<window>"),
        "10m",
        "one first token in twenty takes longer than <threshold>",
        "See its dashboard: do requests wait (scale up), or is more computed than before (the "
        "caches: a fallback, an eviction, a new prompt layout)?",
        condition=f"<measured> > <threshold> and on ({_ENDPOINT}) {_REQUESTS} > <traffic>",
        parameters=(threshold("Slower than", 2.0, 0.001, 600.0, "seconds"), window("5m"), _TRAFFIC),
    ),
    _worker_rule(
        "TTFTBudgetBurnFast",
        _slower("1h"),
        "2m",
        "first tokens are so late (<target>) that a month's allowance would soon be gone",
        "Look at the workers and the queue first, then at what changed on its Revisions tab; "
        "going back is one button there.",
        condition=f"<measured> > <burn> * <allowed> and {_slower('5m')} > <burn> * <allowed>",
        severity=PAGE,
        parameters=_BURN,
        measured_in="share",
    ),
    _worker_rule(
        "HighITL",
        quantile(0.95, q.ITL, _ENDPOINT, "<window>"),
        "10m",
        "one token in twenty comes more than <threshold> after the one before",
        "Long prompts of others may be computed between tokens: more workers, or prefill in chunks "
        "(--max-num-batched-tokens).",
        parameters=(threshold("Slower than", 0.2, 0.001, 60.0, "seconds"), window("5m")),
    ),
    _worker_rule(
        "EngineQueueBacklog",
        f"sum by ({_ENDPOINT}) ({select(q.WAITING)}) / count by ({_ENDPOINT}) "
        f"({select(q.WAITING)})",
        "5m",
        "more than <threshold> requests wait at each of its workers",
        "Scale it up, or set worker_max_in_flight so that requests wait in the router, which can "
        "still choose.",
        parameters=(threshold("More waiting at a worker than", 5.0, 0.0, 100_000.0),),
    ),
    _worker_rule(
        "AdmissionRejections",
        rate(q.REJECTED, _ENDPOINT, "<window>"),
        "5m",
        "its workers refuse requests because their own queues are full",
        "Scale it up; limits of the router refuse with a Retry-After instead.",
        parameters=(threshold("More refusals than", 0.0, 0.0, 1e6, "a second"), window("5m")),
    ),
    _worker_rule(
        "KVCacheSaturated",
        f"max by ({_WORKER}) ({select(q.KV_USAGE)} or {select(q.KV_USAGE_OLD)})",
        "10m",
        "a worker's device memory for attention state is full of running requests",
        "Fewer requests at a time, shorter contexts, or more workers. What is evicted goes to L1.",
        parameters=(threshold("Fuller than", 0.95, 0.1, 1.0, "share"),),
    ),
    _worker_rule(
        "Preemptions",
        rate(q.PREEMPTIONS, _WORKER, "<window>"),
        "10m",
        "a worker stops running requests to make room, and computes them again",
        "Lower --max-num-seqs, or give it more device memory.",
        parameters=(threshold("More often than", 0.1, 0.0, 1e6, "a second"), window("5m")),
    ),
    _worker_rule(
        "CacheHitCollapse",
        f"{_reused()} / ({_reused(' offset 1d')} > 0)",
        "30m",
        "the caches save less than <threshold> of what they saved a day ago at this hour",
        "Run the doctor; compare revisions; look whether prompts begin otherwise than yesterday "
        "(a timestamp in front of everything is the classic).",
        condition="<measured> < <threshold>",
        parameters=(
            threshold("Of yesterday's saving, less than", 0.5, 0.01, 1.0, "share"),
            window("30m", "5m"),
        ),
    ),
    Rule(
        "MetricsAbsent",
        f"absent({q.RUNNING})",
        "10m",
        "workers are scraped and say nothing which a vLLM says",
        "Their version may call its metrics otherwise, or another program answers on their port.",
        condition='<measured> and on () count(up{job="vllm"} == 1) > 0',
        about="",
    ),
)
