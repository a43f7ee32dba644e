"""Alert rules for routers: fallbacks, load imbalance, errors and predictions.

A prompt without cached blocks (`fallback_no_match`) is no fault, so RoutingFallback counts only
requests that kvaware could not route. Queues without a limit are never full.
"""

from __future__ import annotations

from functools import partial

from dashboards.alerts.rules.parameter import Parameter
from dashboards.alerts.rules.rule import (
    PAGE,
    Rule,
    rate,
    relabelled,
    select,
    threshold,
    unless_expected,
    unless_starting,
    window,
)
from dashboards.boards.queries import metric_names as q
from routing.analysis import fallbacks

_ENDPOINT = "namespace, endpoint"
_WORKER = f"{_ENDPOINT}, worker"
_ERRORS = rate(q.REQUESTS, _ENDPOINT, "<window>", 'code=~"5.."')
_FEWEST = f"{fallbacks.MIN_REQUESTS / 600:.4f}"  # minimum decisions/s for a meaningful share


def _part(label: str, default: float) -> Parameter:
    return threshold(label, default, 0.0, 1.0, "share")


def _fallback() -> str:
    ignored = "|".join(sorted(fallbacks.IGNORED))
    guessed = rate(q.KV_FALLBACKS, _ENDPOINT, "<window>", f'reason!~"{ignored}"')
    every = rate(q.DECISIONS, _ENDPOINT, "<window>", 'strategy="kvaware"')
    return f"{guessed} / ({every} > {_FEWEST})"


def _imbalance() -> str:
    share = rate(q.DECISIONS, _WORKER, "<window>")
    most, mean = f"max by ({_ENDPOINT}) ({share})", f"avg by ({_ENDPOINT}) ({share})"
    return f"{most} / ({mean} > <traffic>)"


def _queued() -> str:
    """Without a queue, prompts of few prefixes rightly go to few workers."""
    queue = f"avg_over_time({q.WAITING}[<window>])"
    return relabelled(f"max by (namespace, endpoint_name) ({queue})", "endpoint_name", "endpoint")


def _dishonest() -> str:
    """Predicted tokens are tens or hundreds a request, so 1 token/s is almost no traffic."""
    reported = rate(q.ROUTER_CACHED, _ENDPOINT, "<window>")
    return f"{reported} / ({rate(q.ROUTER_PREDICTED, _ENDPOINT, '<window>')} > 1)"


def _of_worker(metric: str) -> str:
    return f"max by ({_WORKER}) ({select(metric)})"


def _counted(metric: str, inner: str, span: str) -> str:
    return f"sum by ({_ENDPOINT}) (increase({select(metric, inner)}[{span}]))"


def _phase(inner: str) -> str:
    return f"sum by ({_ENDPOINT}) ({select(q.ENDPOINT_PHASE, inner)})"


_phase_rule = partial(Rule, condition="<measured> == 1", severity=PAGE)

RULES: tuple[Rule, ...] = (
    Rule(
        "EndpointNoHealthyWorker",
        f"sum by ({_ENDPOINT}) ({select(q.WORKER_UP)})",
        "1m",
        "no worker passes its health checks; all requests fail",
        "Check the endpoint's workers and the end of their logs. Workers are restarted "
        "automatically.",
        condition=f"<measured> == 0 {unless_expected('endpoint')}",
        severity=PAGE,
    ),
    Rule(
        "RouterDown",
        select("up", 'job="router"'),
        "1m",
        "the router cannot be scraped and is probably unreachable",
        "Check the endpoint and the router log. The router is restarted automatically.",
        condition=f"<measured> == 0 {unless_expected('endpoint_name', 'start|stop')}",
        severity=PAGE,
        about="endpoint_name",
    ),
    Rule(
        "EngineTargetDown",
        select("up", 'job="vllm"'),
        "2m",
        "the metrics of a worker cannot be scraped",
        "If the worker serves requests, check /metrics on its port; otherwise check its log.",
        condition=f"<measured> == 0 {unless_starting()}",
        about="endpoint_name",
    ),
    _phase_rule(
        "WorkersCrashLooping",
        _phase('reason="WorkersCrashLooping"'),
        "1m",
        "workers end again and again before they are ready",
        "Check the exit code and the end of the workers' logs on the endpoint page, and correct "
        "the arguments or the model.",
    ),
    _phase_rule(
        "EndpointFailed",
        _phase('phase="Failed"'),
        "2m",
        "the endpoint is in phase Failed and serves no request",
        "The endpoint page has the reason and the remedy.",
    ),
    Rule(
        "WorkerEngineStuck",
        _of_worker(q.WORKER_STUCK),
        "0m",
        "the worker's engine makes no progress although its health check passes; its requests "
        "went to other workers",
        "Restart the worker, and check its log and its device.",
        condition="<measured> == 1",
        severity=PAGE,
    ),
    Rule(
        "RouterErrorRatio",
        f"{_ERRORS} / ({rate(q.REQUESTS, _ENDPOINT, '<window>')} > 0)",
        "5m",
        "more than <threshold> of requests fail with HTTP 5xx",
        "Check emberline_router_request_errors_total by reason, and the worker logs.",
        severity=PAGE,
        parameters=(_part("Error ratio threshold", 0.02), window("3m")),
    ),
    Rule(
        "RouterQueueNearLimit",
        f"{select(q.QUEUE_DEPTH)} / ({select(q.QUEUE_LIMIT)} > 0)",
        "2m",
        "the router queue is more than <threshold> full; at the limit requests are rejected",
        "Scale the endpoint up, or raise its limits if the workers are not busy.",
        parameters=(_part("Utilization threshold", 0.8),),
    ),
    Rule(
        "RoutingFallback",
        _fallback(),
        "5m",
        "more than <threshold> of KV-aware routing decisions are fallbacks",
        "Run the doctor (emberline endpoint doctor NAME, or the tab of its routing page) to "
        "find the cause. Requests are still served.",
        parameters=(_part("Fallback ratio threshold", fallbacks.TOLERATED_SHARE), window("10m")),
    ),
    Rule(
        "RoutingImbalance",
        _imbalance(),
        "15m",
        "one worker receives more than <threshold> times the mean load, and requests wait",
        "A hot prefix or session can be the cause: check the decisions on the routing page. A"
        " restarted worker receives less until its cache is warm.",
        condition=f"<measured> > <threshold> and on ({_ENDPOINT}) {_queued()} > <waiting>",
        parameters=(
            threshold("Load ratio threshold (max/mean)", 2.0, 1.0, 1000.0),
            window("10m"),
            # Fewer give no meaningful share.
            Parameter("traffic", "Minimum traffic per worker", 0.1, 0.0, 1000.0, "a second"),
            Parameter("waiting", "Queued requests of a worker, mean", 1.0, 0.0, 10_000.0),
        ),
    ),
    Rule(
        "IndexStale",
        _of_worker(q.INDEX_LAG),
        "5m",
        "KV event lag of a worker is above <threshold>",
        "Compare the clocks of router and worker, check the router's CPU load, and run the doctor.",
        parameters=(threshold("Lag threshold", 30.0, 1.0, 3600.0, "seconds"),),
    ),
    Rule(
        "KvEventsNotFollowed",
        _of_worker(q.KV_EVENTS_UP),
        "5m",
        "the router receives no KV events from a serving worker",
        "Run the doctor. Usually --kv-events-config is missing, or its port is not reachable.",
        condition=f"<measured> == 0 and on ({_WORKER}) {_of_worker(q.WORKER_UP)} == 1",
    ),
    Rule(
        "KvEventsLost",
        _counted(q.KV_RECOVERIES, 'reason=~"gap_lost|rebuild_useless|held_overflow"', "15m"),
        "0m",
        "KV events were lost and the index of a worker was rebuilt",
        "If it repeats, set replay_endpoint and a larger buffer_steps in --kv-events-config.",
        condition="<measured> > 0",
    ),
    Rule(
        "KvIndexNotBelieved",
        _of_worker(q.KV_BELIEVED),
        "5m",
        "the KV index of a worker repeatedly predicts blocks that the worker does not have",
        "Check for cache resets and for two workers behind one address, then run the doctor.",
        condition="<measured> == 0",
    ),
    Rule(
        "KvPredictionsMissed",
        _dishonest(),
        "15m",
        "less than <threshold> of the predicted cached tokens were hits",
        "Caches may be too small for the load (evictions), or tokenization differs: run the "
        "doctor.",
        condition="<measured> < <threshold>",
        parameters=(_part("Hit ratio threshold", 0.5), window("10m")),
    ),
    Rule(
        "KvProbeFailing",
        _of_worker(q.KV_PROBE),
        "5m",
        "the KV probe failed: a repeated prompt was a cache miss",
        "Check the probe result and its remedy on the KV index page of the endpoint's routing.",
        condition="<measured> == 0",
    ),
    Rule(
        "RouterInternalErrors",
        _counted(q.ERRORS, 'reason="internal_error"', "10m"),
        "0m",
        "a router failed at something by a fault of its own; a request ended with an error, or a "
        "step of its housekeeping is not done",
        "Read the internal_error lines of the router's log, which name the place, and report them.",
        condition="<measured> > 0",
    ),
    Rule(
        "RouterConfigRefused",
        _counted(q.CONFIG_RELOADS, 'result="refused"', "10m"),
        "0m",
        "the router rejected a new configuration and keeps the previous one",
        "Check the endpoint page or the router log for the rejected field.",
        condition="<measured> > 0",
    ),
    Rule(
        "RouterStateStoreAway",
        f"min by ({_ENDPOINT}) ({select(q.STATE_STORE_UP)})",
        "1m",
        "a router does not reach the store through which the endpoint's routers share state; "
        "it does not see the load of the others and uses an equal part of limits and budgets",
        "Check the store, the network path and the password. The Routers tab of the endpoint's "
        "routing shows which router and why; routers reconnect by themselves.",
        condition="<measured> == 0",
    ),
)
