"""Alert rules for routers: fallbacks, load imbalance, errors and predictions.

A prompt without cached blocks (`fallback_no_match`) is no fault, so RoutingFallback counts only
requests that kvaware could not route. Queues without a limit are never full.
"""

from __future__ import annotations

from dashboards.alerts.rules.parameter import Parameter
from dashboards.alerts.rules.rule import (
    PAGE,
    Rule,
    rate,
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


def _dishonest() -> str:
    """Predicted tokens are tens or hundreds a request, so 1 token/s is almost no traffic."""
    reported = rate(q.ROUTER_CACHED, _ENDPOINT, "<window>")
    return f"{reported} / ({rate(q.ROUTER_PREDICTED, _ENDPOINT, '<window>')} > 1)"


def _of_worker(metric: str) -> str:
    return f"max by ({_WORKER}) ({select(metric)})"


def _counted(metric: str, inner: str, span: str) -> str:
    return f"sum by ({_ENDPOINT}) (increase({select(metric, inner)}[{span}]))"


RULES: tuple[Rule, ...] = (
    Rule(
        "EndpointNoHealthyWorker",
        f"sum by ({_ENDPOINT}) ({select(q.WORKER_UP)})",
        "1m",
        "no worker passes its health checks, so every request fails",
        "Open the endpoint's workers and the end of their logs. Workers are restarted "
        "automatically.",
        condition=f"<measured> == 0 {unless_expected('endpoint')}",
        severity=PAGE,
    ),
    Rule(
        "RouterDown",
        select("up", 'job="router"'),
        "1m",
        "the router cannot be scraped and is probably unreachable",
        "Open the endpoint and the router's log. The router is restarted automatically.",
        condition=f"<measured> == 0 {unless_expected('endpoint_name', 'start|stop')}",
        severity=PAGE,
        about="endpoint_name",
    ),
    Rule(
        "EngineTargetDown",
        select("up", 'job="vllm"'),
        "2m",
        "the metrics of a worker cannot be scraped",
        "If the worker serves requests, check what answers /metrics on its port; otherwise read "
        "its log.",
        condition=f"<measured> == 0 {unless_starting()}",
        about="endpoint_name",
    ),
    Rule(
        "RouterErrorRatio",
        f"{_ERRORS} / ({rate(q.REQUESTS, _ENDPOINT, '<window>')} > 0)",
        "5m",
        "more than <threshold> of its requests end as errors of ours",
        "See emberline_router_request_errors_total by reason, and the workers' logs.",
        severity=PAGE,
        parameters=(_part("More than", 0.02), window("5m")),
    ),
    Rule(
        "RouterQueueNearLimit",
        f"{select(q.QUEUE_DEPTH)} / ({select(q.QUEUE_LIMIT)} > 0)",
        "2m",
        "the queue in front of its workers is nearly full; soon callers are refused",
        "Scale the endpoint up, or raise its limits if the workers are not busy.",
        parameters=(_part("Fuller than", 0.8),),
    ),
    Rule(
        "RoutingFallback",
        _fallback(),
        "5m",
        "kvaware places most requests by a guess: it is on and does not work",
        "Run the doctor (emberline endpoint doctor NAME, or the tab of its routing page): it names "
        "the cause. Callers are served all the same.",
        parameters=(_part("More than", fallbacks.TOLERATED_SHARE), window("10m")),
    ),
    Rule(
        "RoutingImbalance",
        _imbalance(),
        "15m",
        "one worker gets more than <threshold> times its share",
        "A hot prefix or session may be the reason: see the decisions on its routing page. "
        "A worker that came back is warm again after a while.",
        parameters=(
            threshold("More times its share than", 2.0, 1.0, 1000.0),
            window("10m"),
            # Fewer give no meaningful share.
            Parameter("traffic", "While a worker gets more than", 0.1, 0.0, 1000.0, "a second"),
        ),
    ),
    Rule(
        "IndexStale",
        _of_worker(q.INDEX_LAG),
        "5m",
        "what is known of a worker's cache is more than <threshold> old",
        "Compare the clocks of router and worker, then the router's CPU; run the doctor.",
        parameters=(threshold("Older than", 30.0, 1.0, 3600.0, "seconds"),),
    ),
    Rule(
        "KvEventsNotFollowed",
        _of_worker(q.KV_EVENTS_UP),
        "5m",
        "a worker serves, and the router does not follow what its cache holds",
        "Run the doctor: mostly --kv-events-config is missing, or its port is not reachable.",
        condition=f"<measured> == 0 and on ({_WORKER}) {_of_worker(q.WORKER_UP)} == 1",
    ),
    Rule(
        "KvEventsLost",
        _counted(q.KV_RECOVERIES, 'reason=~"gap_lost|rebuild_useless|held_overflow"', "15m"),
        "0m",
        "events were lost for good, and a worker's index was built anew",
        "Set replay_endpoint and a larger buffer_steps in --kv-events-config if it repeats.",
        condition="<measured> > 0",
    ),
    Rule(
        "KvIndexNotBelieved",
        _of_worker(q.KV_BELIEVED),
        "5m",
        "the index of a worker keeps promising what its engine does not have",
        "Look for who empties its cache, or for two workers behind one address; run the doctor.",
        condition="<measured> == 0",
    ),
    Rule(
        "KvPredictionsMissed",
        _dishonest(),
        "15m",
        "less than <threshold> of the tokens expected in caches were there",
        "Caches may be too small for the load (evictions), or the tokens differ: run the doctor.",
        condition="<measured> < <threshold>",
        parameters=(_part("Less than", 0.5), window("15m")),
    ),
    Rule(
        "KvProbeFailing",
        _of_worker(q.KV_PROBE),
        "5m",
        "a prompt sent twice to a worker was not found the second time",
        "The KV index page of its routing shows what the probe saw, and what to do.",
        condition="<measured> == 0",
    ),
    Rule(
        "RouterConfigRefused",
        _counted(q.CONFIG_RELOADS, 'result="refused"', "10m"),
        "0m",
        "its router refused a new configuration and works with the old one",
        "The endpoint's page and the router's log name the field.",
        condition="<measured> > 0",
    ),
)
