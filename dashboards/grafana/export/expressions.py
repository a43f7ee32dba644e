"""PromQL with Grafana variables in place of the console's values.

Each query is rendered with placeholder values, which are then replaced by variables. Rendering
twice with different times detects values computed from the times: such a query is rejected, because
Grafana could not follow.
"""

from __future__ import annotations

import re
from typing import Final

from dashboards.boards import queries
from dashboards.boards.panels.declarations import PanelLine
from dashboards.boards.queries import Scope, Times
from dashboards.boards.queries.metric_names import TTFT
from dashboards.prometheus.config import recording_rules

NAMESPACE, ENDPOINT, WORKER = "grafana-namespace", "grafana-endpoint", "grafana-worker"
ONE: Final = Scope(ENDPOINT, NAMESPACE, worker=WORKER)
FLEET: Final = Scope(among=(ENDPOINT,))
# Two sets of placeholder times; no board has such a step or range.
_PROBES: Final = (Times(1_000_003, 7_000_009), Times(2_000_003, 9_000_011))
FACTORS: Final = {
    "worker_usd_hour": "emberline_worker_usd_hour",
    "saved_usd_token": "emberline_saved_usd_per_token",
}


class NotExportable(ValueError):
    """The query has no Grafana equivalent."""


# Metric of the recording rule for large fleets; all labels of the selector are kept. The last
# bucket contains all observations: a share needs equal windows above and below the line.
_BUCKETS: Final = re.compile(rf"rate\({TTFT}_bucket\{{([^}}]*)\}}\[\$__rate_interval\]\)")
_COUNT: Final = re.compile(rf"rate\({TTFT}_count\{{([^}}]*)\}}\[\$__rate_interval\]\)")


def export_line(line: PanelLine, *, one: bool, recorded: bool = False) -> str:
    """Return the line's expression for Grafana. `recorded`: read recording rules for many
    endpoints.
    """
    expression = make_template(line.query, one=one)
    if recorded and not one:
        expression = _BUCKETS.sub(rf"{recording_rules.TTFT_RECORDED}{{\1}}", expression)
        expression = _COUNT.sub(rf'{recording_rules.TTFT_RECORDED}{{\1,le="+Inf"}}', expression)
    if not line.factor:
        return expression
    factor = f"max by (endpoint_name) ({FACTORS[line.factor]})"
    return f"({expression}) * on (endpoint_name) group_left () {factor}"


def make_template(query: str, *, one: bool) -> str:
    scope = ONE if one else FLEET
    found = {_with_variables(queries.render_plain(query, scope, times), times) for times in _PROBES}
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
    # A multi-value variable is a pattern. Only series that name their endpoint have a namespace.
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
