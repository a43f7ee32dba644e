"""Metrics of kvaware, collected on scrape.

Children used by alerts exist from the start with 0; counters survive strategy changes; children of
removed workers are dropped.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from routing.engine.kv.recovery import REASONS as RECOVERIES
from routing.engine.kvaware.request_state import FALLBACKS
from routing.engine.kvaware.twin_probe import RESULTS as PROBES
from routing.engine.tokens.outcomes import REASONS as OUTCOMES

if TYPE_CHECKING:
    from routing.engine.kvaware.service import KvAwareRun, KvAwareService
    from routing.engine.observe.metric_types import MetricFamily, Registry

_GAP_REASONS = ("gap", "gap_lost", "replay_hole", "replay_truncated")


class KvMetrics:
    def __init__(self, registry: Registry, kvaware: KvAwareService) -> None:
        self._kvaware = kvaware
        self._declare_sums(registry)
        self._declare_workers(registry)
        registry.before_render.append(self._refresh)

    def _declare_sums(self, registry: Registry) -> None:
        counter = registry.counter
        self._fallbacks = counter(
            "emberline_router_kv_fallbacks_total",
            "Requests placed by kvaware without their blocks (fallback), by reason.",
            ("reason",),
        )
        self._recoveries = counter(
            "emberline_router_kv_recoveries_total",
            "KV event stream incidents: connections, gaps, replays, restarts.",
            ("reason",),
        )
        self._prompts = counter(
            "emberline_router_kv_prompts_total",
            "Prompts tokenized for kvaware, by source or failure reason.",
            ("outcome",),
        )
        self._relearned = counter(
            "emberline_router_kv_relearned_total",
            "Requests after which the worker was asked to repeat its KV events.",
        )
        self._waiting = registry.gauge(
            "emberline_router_kv_prompts_waiting", "Prompts being tokenized."
        )
        for family, names in (
            (self._fallbacks, FALLBACKS),
            (self._recoveries, RECOVERIES),
            (self._prompts, OUTCOMES),
        ):
            for name in names:
                family.child(name)

    def _declare_workers(self, registry: Registry) -> None:
        worker = ("worker",)
        self._up = registry.gauge(
            "emberline_router_kv_events_up", "1 while a worker's KV events are followed.", worker
        )
        self._partial = registry.gauge(
            "emberline_router_kv_index_partial",
            "1 while part of a worker's event history is missing, so that its "
            "cache is underestimated.",
            worker,
        )
        self._believed = registry.gauge(
            "emberline_router_kv_index_believed",
            "0 while the index of a worker's cache is known to be wrong.",
            worker,
        )
        self._lag = registry.gauge(
            "emberline_router_index_event_lag_seconds",
            "Delay from engine step to index update, for the last event (s).",
            worker,
        )
        self._gaps = registry.counter(
            "emberline_router_index_sequence_gaps_total", "KV events missed.", worker
        )
        self._probes = registry.counter(
            "emberline_router_kv_probes_total",
            "Probe prompts, each sent twice to verify that the second is predicted and cached.",
            ("worker", "result"),
        )
        self._probe_ok = registry.gauge(
            "emberline_router_kv_probe_success",
            "1 if a worker's last probe was a hit, else 0; absent before the first probe.",
            worker,
        )
        self._probe_time = registry.gauge(
            "emberline_router_kv_probe_timestamp_seconds",
            "Time of the last probe (Unix time, s).",
            worker,
        )

    def _refresh(self) -> None:
        totals = self._kvaware.totals()
        none: Counter[Any] = Counter()
        _set_counters(self._fallbacks, totals.get("fallbacks", none))
        _set_counters(self._recoveries, totals.get("recoveries", none))
        _set_counters(self._prompts, totals.get("prompts", none))
        self._relearned.child().value = totals.get("relearned", none)[""]
        of_workers = (self._up, self._partial, self._believed, self._lag, self._gaps)
        for family in (*of_workers, self._probes, self._probe_ok, self._probe_time):
            family.children.clear()
        listening = self._kvaware.listening
        if listening is None:
            self._waiting.child().value = 0
            return
        service = listening.routing.tokens
        self._waiting.child().value = 0 if service is None else service.waiting
        self._show_sources(listening)
        self._show_probes(listening)

    def _show_sources(self, listening: KvAwareRun) -> None:
        for source in listening.subscriber.status():
            worker = source["worker"]
            counts = source.get("counts", {})
            up = self._up.child(worker)
            up.value = max(up.value, int(source["state"] == "following"))
            partial = self._partial.child(worker)
            partial.value = max(partial.value, int(source.get("partial", False)))
            lag = self._lag.child(worker)
            lag.value = max(lag.value, source.get("lag_s", 0.0))
            self._gaps.child(worker).value += sum(counts.get(reason, 0) for reason in _GAP_REASONS)
            meter = listening.routing.meters.get(worker)
            self._believed.child(worker).value = int(meter is None or not meter.lying)

    def _show_probes(self, listening: KvAwareRun) -> None:
        counts = listening.prober.counts
        for (worker,) in self._up.children:
            for result in PROBES:
                self._probes.child(worker, result).value = counts[worker, result]
        for name, verdict in listening.prober.last.items():
            if (name,) in self._up.children:
                self._probe_ok.child(name).value = int(not verdict.failed)
                self._probe_time.child(name).value = verdict.at


def _set_counters(family: MetricFamily, counts: Counter[Any]) -> None:
    for name, count in counts.items():
        family.child(name).value = count
