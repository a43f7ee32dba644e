"""The console's PromQL with Grafana's variables where the console puts its own values. Pure.

Grafana asks for `rate` as it is declared, over its own interval that overlaps the one before; the
console's boards also count the first value of a new series (queries.growth).

Queries are functions of a scope and of times, and must not know that anybody else asks them. So
each is rendered for values which stand for variables, and these are then put back as variables. It
is done twice with other times: what is not the same afterwards was calculated from them in a way
that Grafana could not follow, and is refused rather than exported with a wrong number.
"""

from __future__ import annotations

import re
from typing import Final

from dashboards.boards import queries
from dashboards.boards.panels import PanelLine
from dashboards.boards.queries import Scope, Times
from dashboards.prometheus.config import recording_rules

NAMESPACE, ENDPOINT, WORKER = "grafana-namespace", "grafana-endpoint", "grafana-worker"
ONE: Final = Scope(ENDPOINT, NAMESPACE, worker=WORKER)
FLEET: Final = Scope(among=(ENDPOINT,))
# Two moments in the life of a board; no step and no range of the console is one of these.
_PROBES: Final = (Times(1_000_003, 7_000_009), Times(2_000_003, 9_000_011))
# What the console knows of an endpoint and Prometheus does not, as the console's /metrics says it.
FACTORS: Final = {
    "worker_usd_hour": "emberline_worker_usd_hour",
    "saved_usd_token": "emberline_saved_usd_per_token",
}


class NotExportable(ValueError):
    """The query cannot be asked by Grafana."""


# What the recording rule for large fleets keeps; the selector's labels are all still there. The
# last bucket counts them all: a share of them needs one window above and below the line.
_BUCKETS: Final = re.compile(rf"rate\({queries.TTFT}_bucket\{{([^}}]*)\}}\[\$__rate_interval\]\)")
_COUNT: Final = re.compile(rf"rate\({queries.TTFT}_count\{{([^}}]*)\}}\[\$__rate_interval\]\)")


def of_line(line: PanelLine, *, one: bool, recorded: bool = False) -> str:
    """What Grafana asks for the line. `recorded`: of many endpoints, what rules have added up."""
    expression = templated(line.query, one=one)
    if recorded and not one:
        expression = _BUCKETS.sub(rf"{recording_rules.TTFT_RECORDED}{{\1}}", expression)
        expression = _COUNT.sub(rf'{recording_rules.TTFT_RECORDED}{{\1,le="+Inf"}}', expression)
    if not line.factor:
        return expression
    factor = f"max by (endpoint_name) ({FACTORS[line.factor]})"
    return f"({expression}) * on (endpoint_name) group_left () {factor}"


def templated(query: str, *, one: bool) -> str:
    scope = ONE if one else FLEET
    found = {_with_variables(queries.plain(query, scope, times), times) for times in _PROBES}
    if len(found) > 1:
        raise NotExportable(f"{query}: {' is not '.join(sorted(found))}")
    return found.pop()


def _with_variables(text: str, times: Times) -> str:
    for number, lasting, bare in (
        (times.rate_s, "$__rate_interval", "($__rate_interval_ms / 1000)"),
        (times.range_s, "$__range", "$__range_s"),
    ):
        text = re.sub(rf"\b{number}s\b", lasting, text)
        text = re.sub(rf"\b{number}\b", bare, text)
    # A choice of several is a pattern. Only what names its endpoint is told apart by namespace.
    text = re.sub(rf'\b(\w+)=~?"{WORKER}"', r'\1=~"$worker"', text)
    text = re.sub(
        rf'\b(endpoint(?:_name)?)=~"{ENDPOINT}"', r'\1=~"$endpoint",namespace=~"$namespace"', text
    )
    for value, variable in (
        (NAMESPACE, "$namespace"),
        (ENDPOINT, "$endpoint"),
        (WORKER, "$worker"),
    ):
        text = text.replace(value, variable)
    return text
