"""Every panel of every board on recorded metrics, evaluated by a real Prometheus.

A panel without data in any recording fails.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.boards import queries
from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import Range
from dashboards.boards.results import board as results_board
from dashboards.prometheus.http.client import Prometheus
from tests.dashboards.boards.panels.recorded.recordings_prometheus import (
    ENDPOINTS,
    LMCACHE,
    NEWEST,
    VERSIONS,
)
from tests.dashboards.boards.panels.recorded.replay import recorded, text_of

RECENT = Range("recent", "a minute", 60, queries.SCRAPE_S, 5)
PRICES = dict.fromkeys(ENDPOINTS, 1.5)
FACTORS = {"worker_usd_hour": PRICES, "saved_usd_token": PRICES}
FAULTS = {"bad_query", "too_slow", "prometheus"}
FLEET = "the fleet"
KEPT = Path(__file__).parent / "recorded" / "where.json"

Found = dict[str, dict[str, str]]
"""Panel (board/one|fleet/id) -> where -> its state there."""


@pytest.fixture(scope="module")
def panel_states(replayed: Prometheus) -> Found:
    states: Found = {}
    for where, board, one in _views():
        panels = BOARDS[board].panels(one=one)
        scope = queries.Scope(endpoint=where) if one else queries.Scope()
        data = results_board.collect(replayed, panels, scope, RECENT, time.time(), FACTORS)
        for panel in data["panels"]:
            key = f"{board}/{'one' if one else 'fleet'}/{panel['id']}"
            states.setdefault(key, {})[where] = panel["state"]
    return states


def _views() -> Iterator[tuple[str, str, bool]]:
    for key, board in BOARDS.items():
        if board.fleet:
            yield FLEET, key, False
        if board.one:
            yield from ((endpoint, key, True) for endpoint in ENDPOINTS)


def test_every_panel_has_data_in_a_recording(panel_states: Found) -> None:
    """Zeros are data: nothing failed in what was recorded."""
    without = {
        key: where
        for key, where in panel_states.items()
        if not {"ok", "zero", "quiet"} & {*where.values()}
    }
    assert not without, "\n".join(f"{key}: {where}" for key, where in without.items())


def test_panels_with_data_match_the_recorded_list(panel_states: Found) -> None:
    """where.json keeps, for each panel, what it says over each recording; a panel which says
    something else now fails. UPDATE_RECORDED=1 writes it anew: read the difference."""
    reported = {key: _by_state(where) for key, where in sorted(panel_states.items())}
    if os.environ.get("UPDATE_RECORDED"):
        KEPT.write_text(json.dumps(reported, indent=1) + "\n")
    kept = json.loads(KEPT.read_text())
    changed = {
        key: (kept[key], reported[key])
        for key in kept.keys() & reported
        if kept[key] != reported[key]
    }
    assert not changed, changed


def _by_state(where: dict[str, str]) -> dict[str, str]:
    """As few words as say it: `all`, or the names."""
    states = sorted(set(where.values()))
    names = {
        state: [name for name, reported in where.items() if reported == state] for state in states
    }
    return {s: "all" if len(n) == len(where) else " ".join(n) for s, n in names.items()}


def test_no_query_is_rejected(panel_states: Found) -> None:
    faults = {key for key, where in panel_states.items() if FAULTS & {*where.values()}}
    assert not faults


def test_only_the_newest_vllm_exports_its_tiers(panel_states: Found) -> None:
    states = panel_states["cost/one/tokens-reused-day"]
    assert states[NEWEST] == "ok"
    assert {states[name] for name in VERSIONS if name != NEWEST} == {"absent"}


def test_every_vllm_exports_its_cached_tokens(panel_states: Found) -> None:
    states = panel_states["cache/one/reuse-workers"]
    assert {states[name] for name in VERSIONS} == {"ok"}


def test_exporter_metrics_stay_with_their_endpoint(panel_states: Found) -> None:
    """Endpoints without a GPU, a pod or LMCache must not look idle because others have them."""
    for panel, have in {
        "workers/one/gpu-util": {NEWEST, "v0-28"},
        "workers/one/pod-memory": {NEWEST},
        "cache/one/lmcache-hits": set(LMCACHE),
    }.items():
        states = panel_states[panel]
        assert {where for where, state in states.items() if state == "ok"} == have, panel
        assert {states[where] for where in ENDPOINTS if where not in have} == {"needs"}, panel


def test_every_recording_states_its_origin() -> None:
    for name in recorded():
        first = text_of(name).splitlines()[0]
        assert first.startswith(("# recorded", "# made by", "# written by hand", "# a real")), name


def test_pods_and_gpus_are_those_of_the_selected_endpoints(replayed: Prometheus) -> None:
    """Cluster exporters have pod labels only; a user sees those of permitted endpoints."""
    panels = BOARDS["workers"].panels(one=False)
    mine = [panel for panel in panels if panel.needs and panel.drill != "endpoint"]

    def rows(*names: str) -> dict[str, list[list[str]]]:
        scope = queries.Scope(among=names)
        data = results_board.collect(replayed, mine, scope, RECENT, time.time())
        return {panel["id"]: panel["table"]["rows"] for panel in data["panels"]}

    assert rows(NEWEST)["gpu-util-nodes"]
    assert rows(NEWEST)["restarts"]
    # v0-14 has no GPU; v0-2 is how v0-28 begins, which has one.
    for names in (("v0-14",), ("v0-2",), ()):
        assert rows(*names)["gpu-util-nodes"] == []
        assert rows(*names)["restarts"] == []
