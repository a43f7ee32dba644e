"""PromQL of the cost page. Names of metrics are those of `queries`, with three of its own. Pure.

Seconds are counted in steps of a grid of our own (a subquery), so that they are right whatever the
scrape interval: a step counts when the target was known at it, up or not, for a starting worker
holds its machine, too.
"""

from __future__ import annotations

from dashboards.queries import CACHED, PROMPT

GENERATED = "vllm:generation_tokens_total"
FINISHED = "vllm:request_success_total"
RUNNING = "vllm:num_requests_running"
LOADED_S = "vllm:kv_offload_load_time_total"
READ = "vllm:kv_offload_tiering_read_bytes_total"
STEPS = 600
SHORTEST_STEP_S = 15
COVERED_STEP_S = 60

_SOURCES = {"device": "device", "l1": "host", "l2": "disk|p2p|external_unspecified"}


def all_of(range_s: int) -> dict[str, str]:
    """Every question of the page, by name, for a range that ends now."""
    step = max(SHORTEST_STEP_S, range_s // STEPS)
    over = f"[{range_s}s:{step}s]"
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
    return found


def _grown(metric: str, braces: str, range_s: int) -> str:
    return f"sum by (endpoint_name) (increase({metric}{{{braces}}}[{range_s}s]))"


def covered(range_s: int) -> str:
    """Seconds of the range in which anything at all was scraped."""
    return f"count_over_time((count(up))[{range_s}s:{COVERED_STEP_S}s]) * {COVERED_STEP_S}"
