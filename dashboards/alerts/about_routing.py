"""Alert rules about routers and what they know. Pure; names of metrics stand in queries.py.

Two rules of the usual set are made differently. A prompt nobody has seen (`fallback_no_match`) is
no fault, so RoutingFallback counts only what kvaware could not place. And a queue without a limit
is no full queue.
"""

from __future__ import annotations

from dashboards import queries as q
from dashboards.alerts.rule import PAGE, TICKET, Rule, rate
from routing import fallbacks

_ENDPOINT = "namespace, endpoint"
_WORKER = f"{_ENDPOINT}, worker"
# A tenth of a request a second: fewer say nothing about a share.
_TRAFFIC = 0.1


def _fallback() -> str:
    ignored = "|".join(sorted(fallbacks.IGNORED))
    braces = f'{{reason!~"{ignored}"}}'
    guessed = rate(q.KV_FALLBACKS, _ENDPOINT, "10m", braces)
    every = rate(q.DECISIONS, _ENDPOINT, "10m", '{strategy="kvaware"}')
    return f"{guessed} / ({every} > {fallbacks.FEWEST / 600:.4f}) > {fallbacks.SHARE}"


def _imbalance() -> str:
    share = rate(q.DECISIONS, _WORKER, "10m")
    most, mean = f"max by ({_ENDPOINT}) ({share})", f"avg by ({_ENDPOINT}) ({share})"
    return f"{most} / ({mean} > {_TRAFFIC}) > 2"


def _errors() -> str:
    bad = rate(q.REQUESTS, _ENDPOINT, "5m", '{code=~"5.."}')
    return f"{bad} / ({rate(q.REQUESTS, _ENDPOINT, '5m')} > 0) > 0.02"


def _dishonest() -> str:
    """Predicted tokens are tens or hundreds a request: one a second is hardly any traffic."""
    reported = rate(q.ROUTER_CACHED, _ENDPOINT, "15m")
    return f"{reported} / ({rate(q.ROUTER_PREDICTED, _ENDPOINT, '15m')} > 1) < 0.5"


def _lost() -> str:
    braces = '{reason=~"gap_lost|rebuild_useless|held_overflow"}'
    return f"sum by ({_ENDPOINT}) (increase({q.KV_RECOVERIES}{braces}[15m])) > 0"


RULES: tuple[Rule, ...] = (
    Rule(
        "EndpointNoHealthyWorker",
        f"sum by ({_ENDPOINT}) ({q.WORKER_UP}) == 0",
        "1m",
        PAGE,
        "no worker passes its health checks, so every request fails",
        "Look at the endpoint's workers and at the end of their logs; they are started again by "
        "themselves.",
    ),
    Rule(
        "RouterDown",
        'up{job="router"} == 0',
        "1m",
        PAGE,
        "its router cannot be scraped, and probably not be reached either",
        "Look at the endpoint's page and at the router's log; it is started again by itself.",
        about="endpoint_name",
    ),
    Rule(
        "EngineTargetDown",
        'up{job="vllm"} == 0',
        "2m",
        TICKET,
        "the metrics of a worker cannot be scraped",
        "If the worker serves, see what answers /metrics on its port; else read its log.",
        about="endpoint_name",
    ),
    Rule(
        "RouterErrorRatio",
        _errors(),
        "5m",
        PAGE,
        "more than 2 % of its requests end as errors of ours",
        "See emberline_router_request_errors_total by reason, and the workers' logs.",
    ),
    Rule(
        "RouterQueueNearLimit",
        f"{q.QUEUE_DEPTH} / ({q.QUEUE_LIMIT} > 0) > 0.8",
        "2m",
        TICKET,
        "the queue in front of its workers is nearly full; soon callers are refused",
        "Scale the endpoint up, or raise its limits if the workers are not busy.",
    ),
    Rule(
        "RoutingFallback",
        _fallback(),
        "5m",
        TICKET,
        "kvaware places most requests by a guess: it is on and does not work",
        "Run the doctor (emberline endpoint doctor NAME, or the tab of its routing page): it names "
        "the cause. Callers are served all the same.",
    ),
    Rule(
        "RoutingImbalance",
        _imbalance(),
        "15m",
        TICKET,
        "one worker gets more than twice its share",
        "A hot prefix or session may be the reason: see the decisions on its routing page. "
        "A worker that came back is warm again after a while.",
    ),
    Rule(
        "IndexStale",
        f"max by ({_WORKER}) ({q.INDEX_LAG}) > 30",
        "5m",
        TICKET,
        "what is known of a worker's cache is more than 30 s old",
        "Compare the clocks of router and worker, then the router's CPU; run the doctor.",
    ),
    Rule(
        "KvEventsNotFollowed",
        f"max by ({_WORKER}) ({q.KV_EVENTS_UP}) == 0 "
        f"and on ({_WORKER}) max by ({_WORKER}) ({q.WORKER_UP}) == 1",
        "5m",
        TICKET,
        "a worker serves, and the router does not follow what its cache holds",
        "Run the doctor: mostly --kv-events-config is missing, or its port is not reachable.",
    ),
    Rule(
        "KvEventsLost",
        _lost(),
        "0m",
        TICKET,
        "events were lost for good, and a worker's index was built anew",
        "Set replay_endpoint and a larger buffer_steps in --kv-events-config if it repeats.",
    ),
    Rule(
        "KvIndexNotBelieved",
        f"max by ({_WORKER}) ({q.KV_BELIEVED}) == 0",
        "5m",
        TICKET,
        "the index of a worker keeps promising what its engine does not have",
        "Look for who empties its cache, or for two workers behind one address; run the doctor.",
    ),
    Rule(
        "KvPredictionsMissed",
        _dishonest(),
        "15m",
        TICKET,
        "less than half of the tokens expected in caches were there",
        "Caches may be too small for the load (evictions), or the tokens differ: run the doctor.",
    ),
    Rule(
        "KvProbeFailing",
        f"max by ({_WORKER}) ({q.KV_PROBE}) == 0",
        "5m",
        TICKET,
        "a prompt sent twice to a worker was not found the second time",
        "The KV index page of its routing shows what the probe saw, and what to do.",
    ),
    Rule(
        "RouterConfigRefused",
        f'sum by ({_ENDPOINT}) (increase({q.CONFIG_RELOADS}{{result="refused"}}[10m])) > 0',
        "0m",
        TICKET,
        "its router refused a new configuration and works with the old one",
        "The endpoint's page and the router's log name the field.",
    ),
)
