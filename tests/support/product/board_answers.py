"""Allowed states of every board panel on the running product."""

from __future__ import annotations

import httpx

from dashboards.boards.panels import BOARDS, Panel

HAS_DATA = {"ok", "zero"}
# For the demo endpoint on one machine. All other panels must have data, except cost without prices
# and those that need GPU or cluster exporters, which recorded metrics cover
# (tests/dashboards/recorded). Data in a listed panel is no error.
WITHOUT = {
    "cache/fleet/blocks": "absent",  # needs vLLM's --kv-cache-metrics
    "cache/one/blocks": "absent",
    "routing/one/index-lag": "absent",  # kvaware only
}
# No such events without errors or queueing.
NOTHING_HAPPENED = {
    *("errors", "kv-fallbacks", "kv-recoveries", "l2-evicted", "l2-trouble", "preemptions"),
    *("queued", "rejected", "retries", "tier-failures", "tier-read"),
    "flops",  # needs vLLM's --enable-mfu-metrics, 0 otherwise
}


def without_data(client: httpx.Client, endpoint: str) -> dict[str, str]:
    """Return panels that lack expected data: board/fleet|one/panel -> state."""
    found = {}
    for key, board in BOARDS.items():
        views = {"fleet": f"/dashboards/{key}", "one": f"/dashboards/endpoints/{endpoint}/{key}"}
        for what, path in views.items():
            panels = {panel.id: panel for panel in board.panels(one=what == "one")}
            if not panels:
                continue
            data = client.get(f"{path}/data?range=15m").raise_for_status().json()
            for reported in data["panels"]:
                name = f"{key}/{what}/{reported['id']}"
                if not _as_expected(name, panels[reported["id"]], reported["state"]):
                    found[name] = reported["state"]
    return found


def _as_expected(name: str, panel: Panel, state: str) -> bool:
    if panel.needs:
        return state == "needs"
    if any(line.factor for line in panel.lines):
        return state in HAS_DATA | {"unpriced"}
    if state == "quiet":
        return panel.id in NOTHING_HAPPENED
    return state in HAS_DATA or state == WITHOUT.get(name)
