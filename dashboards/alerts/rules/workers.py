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
# What routers measure of callers' streamed responses; workers also serve the console's benchmarks.
_ROUTED = "namespace, endpoint"
_CALLERS = 'traffic!="console"'
# Bucket bounds of the routers' TTFT histogram: a share is exact only at a bound.
_EDGES = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0)
_STREAMED = rate(f"{q.ROUTER_TTFT}_count", _ROUTED, "<window>", _CALLERS)

_TRAFFIC = Parameter(
    # With fewer requests a quantile reflects single requests.
    "traffic",
    "Minimum traffic",
    0.1,
    0.0,
    1000.0,
    "a second",
)
_BURN = (
    Parameter("target", "TTFT target", 1.0, 0.1, 60.0, "edge", _EDGES),
    Parameter("allowed", "Monthly error budget", 0.05, 0.001, 0.5, "share"),
    # Consumes a month's error budget in two days (Site Reliability Workbook, chapter 5).
    Parameter("burn", "Burn rate threshold", 14.4, 1.0, 1000.0),
)


def _slower(span: str) -> str:
    """Return the share of streamed responses with TTFT above the target."""
    good = rate(f"{q.ROUTER_TTFT}_bucket", _ROUTED, span, f'{_CALLERS},le=~"<target>"')
    return f"(1 - {good} / {rate(f'{q.ROUTER_TTFT}_count', _ROUTED, span, _CALLERS)})"


def _hit_rate(offset: str = "") -> str:
    """Return the share of callers' prompt tokens found in a cache, as routers count them."""
    cached, computed = (
        rate(metric, _ROUTED, "<window>", _CALLERS, offset)
        for metric in (q.ROUTER_CACHED, q.ROUTER_COMPUTED)
    )
    return f"({cached} / (({cached} + {computed}) > <traffic>))"


_worker_rule = partial(Rule, about="endpoint_name")

RULES: tuple[Rule, ...] = (
    Rule(
        "HighTTFT",
        quantile(0.95, q.ROUTER_TTFT, _ROUTED, "<window>", _CALLERS),
        "10m",
        "TTFT p95 is above <threshold>",
        "Check the endpoint's dashboard. Long queue: scale up. More computed prompt tokens: "
        "check fallbacks, evictions and changes of the prompt layout.",
        condition=f"<measured> > <threshold> and on ({_ROUTED}) {_STREAMED} > <traffic>",
        parameters=(
            threshold("TTFT p95 threshold", 2.0, 0.001, 600.0, "seconds"),
            window("5m"),
            _TRAFFIC,
        ),
    ),
    Rule(
        "TTFTBudgetBurnFast",
        _slower("1h"),
        "2m",
        "the TTFT error budget (target <target>) is burning more than <burn> times too fast",
        "Check workers and queue depth, then recent changes on the Revisions tab; roll back "
        "there if needed.",
        condition=f"<measured> > <burn> * <allowed> and {_slower('5m')} > <burn> * <allowed>",
        severity=PAGE,
        parameters=_BURN,
        measured_in="share",
    ),
    _worker_rule(
        "HighITL",
        quantile(0.95, q.ITL, _ENDPOINT, "<window>"),
        "10m",
        "ITL p95 is above <threshold>",
        "Prefill of long prompts may interleave with decoding: add workers, or limit prefill "
        "chunks (--max-num-batched-tokens).",
        parameters=(threshold("ITL p95 threshold", 0.2, 0.001, 60.0, "seconds"), window("5m")),
    ),
    _worker_rule(
        "EngineQueueBacklog",
        f"sum by ({_ENDPOINT}) ({select(q.WAITING)}) / count by ({_ENDPOINT}) "
        f"({select(q.WAITING)})",
        "5m",
        "more than <threshold> requests are queued per worker",
        "Scale up, or set worker_max_in_flight so that requests queue in the router, which "
        "can still choose the worker.",
        parameters=(threshold("Queue depth threshold per worker", 5.0, 0.0, 100_000.0),),
    ),
    _worker_rule(
        "AdmissionRejections",
        rate(q.REJECTED, _ENDPOINT, "<window>"),
        "5m",
        "workers reject requests because their queues are full",
        "Scale up. Router limits reject with a Retry-After header instead.",
        parameters=(threshold("Rejection rate threshold", 0.0, 0.0, 1e6, "a second"), window("3m")),
    ),
    _worker_rule(
        "KVCacheSaturated",
        f"max by ({_WORKER}) ({select(q.KV_USAGE)} or {select(q.KV_USAGE_OLD)})",
        "10m",
        "KV cache utilization of a worker is above <threshold>",
        "Reduce concurrency or context length, or add workers. Evicted blocks move to L1.",
        parameters=(threshold("Utilization threshold", 0.95, 0.1, 1.0, "share"),),
    ),
    _worker_rule(
        "Preemptions",
        rate(q.PREEMPTIONS, _WORKER, "<window>"),
        "10m",
        "a worker preempts running requests and recomputes them",
        "Lower --max-num-seqs, or give the worker more device memory.",
        parameters=(
            threshold("Preemption rate threshold", 0.1, 0.0, 1e6, "a second"),
            window("5m"),
        ),
    ),
    Rule(
        "CacheHitCollapse",
        f"{_hit_rate()} / ({_hit_rate(' offset 1d')} > 0)",
        "30m",
        "the cache hit rate is below <threshold> of its value 24 h ago",
        "Run the doctor, compare revisions, and check whether the start of prompts changed "
        "(often a timestamp in the system prompt).",
        condition="<measured> < <threshold>",
        parameters=(
            threshold("Ratio to the previous day", 0.5, 0.01, 1.0, "share"),
            window("20m", "5m"),
            # With fewer the rate reflects single requests.
            Parameter("traffic", "Minimum traffic, prompt tokens", 50.0, 0.0, 1e9, "a second"),
        ),
    ),
    Rule(
        "MetricsAbsent",
        f"absent({q.RUNNING})",
        "10m",
        "workers are scraped but expose no vLLM metrics",
        "The vLLM version may use other metric names, or another program may listen on the port.",
        condition='<measured> and on () count(up{job="vllm"} == 1) > 0',
        about="",
    ),
)
