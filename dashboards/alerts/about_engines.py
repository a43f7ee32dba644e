"""Alert rules about workers: how fast they answer, what waits, and whether their cache still helps.

Pure; names of metrics stand in queries.py. Thresholds are those of an endpoint for people who wait
for words; a batch endpoint breaks some of them by intent. A series that is not there (another
version of vLLM, no traffic) fires nothing: that numbers are missing is said by rules of its own.
"""

from __future__ import annotations

from dashboards import queries as q
from dashboards.alerts.rule import PAGE, TICKET, Rule, quantile, rate

_ENDPOINT = "namespace, endpoint_name"
_WORKER = f"{_ENDPOINT}, pod"
_TRAFFIC = 0.1  # requests a second; a quantile of fewer is one request's fate
TTFT_S, ITL_S = 2.0, 0.2
TTFT_TARGET_S = "1|1.0"  # the bucket, as Prometheus versions write it
_ALLOWED = 0.05  # of requests may be slower than the target
_FAST_BURN = 14.4  # a month's allowance in two days (Site Reliability Workbook, chapter 5)


def _slower(window: str) -> str:
    """Share of requests whose first token came later than the target."""
    good = rate(f"{q.TTFT}_bucket", _ENDPOINT, window, f'{{le=~"{TTFT_TARGET_S}"}}')
    return f"(1 - {good} / {rate(f'{q.TTFT}_count', _ENDPOINT, window)})"


def _ttft() -> str:
    busy = f"{rate(f'{q.TTFT}_count', _ENDPOINT, '5m')} > {_TRAFFIC}"
    return f"{quantile(0.95, q.TTFT, _ENDPOINT, '5m')} > {TTFT_S} and on ({_ENDPOINT}) {busy}"


def _burn() -> str:
    limit = f"{_FAST_BURN} * {_ALLOWED}"
    return f"{_slower('1h')} > {limit} and {_slower('5m')} > {limit}"


def _reused(offset: str = "") -> str:
    """Share of prompt tokens which were not computed."""
    computed = f'{q.BY_SOURCE}{{source="local_compute"}}[30m]{offset}'
    total = f"sum by ({_ENDPOINT}) (rate({q.PROMPT}[30m]{offset}))"
    return f"(1 - sum by ({_ENDPOINT}) (rate({computed})) / ({total} > 1))"


def _backlog() -> str:
    waiting = f"sum by ({_ENDPOINT}) ({q.WAITING})"
    return f"{waiting} > 5 * count by ({_ENDPOINT}) ({q.WAITING})"


RULES: tuple[Rule, ...] = (
    Rule(
        "HighTTFT",
        _ttft(),
        "10m",
        TICKET,
        f"one first token in twenty takes longer than {TTFT_S:g} s",
        "See its dashboard: do requests wait (scale up), or is more computed than before (the "
        "caches: a fallback, an eviction, a new prompt layout)?",
        about="endpoint_name",
    ),
    Rule(
        "TTFTBudgetBurnFast",
        _burn(),
        "2m",
        PAGE,
        "first tokens are so late that a month's allowance would be gone in two days",
        "Look at the workers and the queue first, then at what changed on its Revisions tab; "
        "going back is one button there.",
        about="endpoint_name",
    ),
    Rule(
        "HighITL",
        f"{quantile(0.95, q.ITL, _ENDPOINT, '5m')} > {ITL_S}",
        "10m",
        TICKET,
        f"one token in twenty comes more than {ITL_S * 1000:.0f} ms after the one before",
        "Long prompts of others may be computed between tokens: more workers, or prefill in chunks "
        "(--max-num-batched-tokens).",
        about="endpoint_name",
    ),
    Rule(
        "EngineQueueBacklog",
        _backlog(),
        "5m",
        TICKET,
        "more than five requests wait at each of its workers",
        "Scale it up, or set worker_max_in_flight so that requests wait in the router, which can "
        "still choose.",
        about="endpoint_name",
    ),
    Rule(
        "AdmissionRejections",
        f"{rate(q.REJECTED, _ENDPOINT, '5m')} > 0",
        "5m",
        TICKET,
        "its workers refuse requests because their own queues are full",
        "Scale it up; limits of the router refuse with a Retry-After instead.",
        about="endpoint_name",
    ),
    Rule(
        "KVCacheSaturated",
        f"max by ({_WORKER}) ({q.KV_USAGE} or {q.KV_USAGE_OLD}) > 0.95",
        "10m",
        TICKET,
        "a worker's device memory for attention state is full of running requests",
        "Fewer requests at a time, shorter contexts, or more workers. What is evicted goes to L1.",
        about="endpoint_name",
    ),
    Rule(
        "Preemptions",
        f"{rate(q.PREEMPTIONS, _WORKER, '5m')} > 0.1",
        "10m",
        TICKET,
        "a worker stops running requests to make room, and computes them again",
        "Lower --max-num-seqs, or give it more device memory.",
        about="endpoint_name",
    ),
    Rule(
        "CacheHitCollapse",
        f"{_reused()} < 0.5 * {_reused(' offset 1d')}",
        "30m",
        TICKET,
        "the caches save less than half of what they saved a day ago at this hour",
        "Run the doctor; compare revisions; look whether prompts begin otherwise than yesterday "
        "(a timestamp in front of everything is the classic).",
        about="endpoint_name",
    ),
    Rule(
        "MetricsAbsent",
        f'absent({q.RUNNING}) and on () count(up{{job="vllm"}} == 1) > 0',
        "10m",
        TICKET,
        "workers are scraped and say nothing which a vLLM says",
        "Their version may call its metrics otherwise, or another program answers on their port.",
        about="",
    ),
)
