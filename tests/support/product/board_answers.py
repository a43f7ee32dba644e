"""What every panel of every board says on the real product, and what it may say there."""

from __future__ import annotations

import httpx

from dashboards.boards.panels import BOARDS, Panel

HAS_DATA = {"ok", "zero"}
# Of the demo endpoint on one machine. All else but these, what costs money where nobody is paid,
# and what needs the exporters of GPUs and of a cluster, must have data. Those are proved on
# recorded metrics: tests/dashboards/recorded. Data in one of these is no fault.
WITHOUT = {
    "cache/fleet/blocks": "absent",  # vLLM tells of them with --kv-cache-metrics only
    "cache/one/blocks": "absent",
    "routing/one/index-lag": "absent",  # of kvaware only
}
# What did not happen, in a run in which all goes well and nobody waits.
NOTHING_HAPPENED = {
    *("errors", "kv-fallbacks", "kv-recoveries", "l2-evicted", "l2-trouble", "preemptions"),
    *("queued", "rejected", "retries", "tier-failures", "tier-read"),
    "flops",  # vLLM counts them with --enable-mfu-metrics only, and tells 0 without
}


def without_data(client: httpx.Client, endpoint: str) -> dict[str, str]:
    """Panels which should have data and have none: board/fleet|one/panel -> its state."""
    found = {}
    for key, board in BOARDS.items():
        views = {"fleet": f"/dashboards/{key}", "one": f"/dashboards/endpoints/{endpoint}/{key}"}
        for what, path in views.items():
            panels = {panel.id: panel for panel in board.panels(one=what == "one")}
            if not panels:
                continue
            data = client.get(f"{path}/data?range=15m").raise_for_status().json()
            for told in data["panels"]:
                name = f"{key}/{what}/{told['id']}"
                if not _as_expected(name, panels[told["id"]], told["state"]):
                    found[name] = told["state"]
    return found


def _as_expected(name: str, panel: Panel, state: str) -> bool:
    if panel.needs:
        return state == "needs"
    if any(line.factor for line in panel.lines):
        return state in HAS_DATA | {"unpriced"}
    if state == "quiet":
        return panel.id in NOTHING_HAPPENED
    return state in HAS_DATA or state == WITHOUT.get(name)
