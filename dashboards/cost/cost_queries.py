"""PromQL of the cost page. Names of metrics are those of `queries`, with three of its own. Pure.

Seconds are counted in steps of a grid of our own (a subquery), so that they are right whatever the
scrape interval: a step counts when the target was known at it, up or not, for a starting worker
holds its machine, too.
"""

from __future__ import annotations

from dashboards.boards.queries import CACHED, PROMPT
from dashboards.boards.queries import metric_names as n

GENERATED = "vllm:generation_tokens_total"
FINISHED = "vllm:request_success_total"
RUNNING = "vllm:num_requests_running"
LOADED_S = "vllm:kv_offload_load_time_total"
READ = "vllm:kv_offload_tiering_read_bytes_total"
STEPS = 600
SHORTEST_STEP_S = 15
COVERED_STEP_S = 60

_OLDER = {"device": (n.PREFIX_HITS, n.PREFIX_HITS_OLD), "l2": (n.EXTERNAL_HITS,)}
"""Of engines which do not tell the sources apart. What was found beyond the device may have been in
L1, too: it is put where the engine puts what it cannot name."""
_SOURCES = {"device": "device", "l1": "host", "l2": "disk|p2p|external_unspecified"}


def all_of(range_s: int) -> dict[str, str]:
    """Every question of the page, by name, for a range that ends now."""
    step = max(SHORTEST_STEP_S, range_s // STEPS)
    over = _steps(range_s, step)
    found = {
        "worker_s": f'sum by (endpoint_name) (count_over_time(up{{job="vllm"}}{over})) * {step}',
        "busy_s": f"sum by (endpoint_name) (count_over_time(({RUNNING} > 0){over})) * {step}",
        "prompt": _grown(PROMPT, "", range_s),
        "generated": _grown(GENERATED, "", range_s),
        "requests": _grown(FINISHED, "", range_s),
        "load": _grown(LOADED_S, "", range_s),
        "l2_bytes": _grown(READ, 'tier!~"0:.*"', range_s),
    }
    for tier, source in _SOURCES.items():
        found[f"cached_{tier}"] = _grown(CACHED, f'source=~"{source}"', range_s)
    for tier, metrics in _OLDER.items():
        older = " or ".join(_grown(metric, "", range_s) for metric in metrics)
        told = _grown(CACHED, "", range_s)
        found[f"cached_{tier}"] += f" or (({older}) unless on (endpoint_name) {told})"
    return found


def _grown(metric: str, braces: str, range_s: int) -> str:
    return f"sum by (endpoint_name) (increase({metric}{{{braces}}}[{range_s}s]))"


def covered(range_s: int) -> str:
    """Seconds of the range in which anything at all was scraped."""
    return f"count_over_time((count(up)){_steps(range_s, COVERED_STEP_S)}) * {COVERED_STEP_S}"


def _steps(range_s: int, step: int) -> str:
    """One step of the grid for each of the range: a range that has both its ends, as Prometheus 2
    reads it, would have one more."""
    return f"[{range_s - 1}s:{step}s]"
