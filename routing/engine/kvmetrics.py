"""What kvaware counts, as metrics; read from its parts when somebody asks for them.

Promises that the fallbacks' children exist from the start, whatever the strategy, so that an alert
on a silent fallback sees zero and not nothing. Must not know how anything is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routing.engine.kv.recovery import REASONS as RECOVERIES
from routing.engine.kvrouting import FALLBACKS

if TYPE_CHECKING:
    from routing.engine.counters import Registry
    from routing.engine.kvlistening import Kvaware

_GAPS = ("gap", "gap_lost", "replay_hole", "replay_truncated")


class KvMetrics:
    def __init__(self, registry: Registry, kvaware: Kvaware) -> None:
        self._kvaware = kvaware
        self._fallbacks = registry.counter(
            "emberline_router_kv_fallbacks_total",
            "Requests kvaware placed without knowing their blocks.",
            ("reason",),
        )
        for reason in FALLBACKS:
            self._fallbacks.child(reason)
        self._recoveries = registry.counter(
            "emberline_router_kv_recoveries_total",
            "What happened while following KV events: connections, gaps, replays, restarts.",
            ("reason",),
        )
        for reason in RECOVERIES:
            self._recoveries.child(reason)
        worker = ("worker",)
        self._up = registry.gauge(
            "emberline_router_kv_events_up", "1 while a worker's KV events are followed.", worker
        )
        self._believed = registry.gauge(
            "emberline_router_kv_index_believed",
            "0 while what is known of a worker's cache was found wrong.",
            worker,
        )
        self._lag = registry.gauge(
            "emberline_router_index_event_lag_seconds",
            "Between an engine's step and our knowing of it, for the last event.",
            worker,
        )
        self._gaps = registry.counter(
            "emberline_router_index_sequence_gaps_total", "KV events which were missing.", worker
        )
        self._per_worker = (self._up, self._believed, self._lag, self._gaps)
        registry.before_render.append(self._refresh)

    def _refresh(self) -> None:
        listening = self._kvaware.listening
        for family in self._per_worker:
            family.children.clear()
        if listening is None:
            return
        for reason, count in listening.routing.fallbacks.items():
            self._fallbacks.child(reason).value = count
        recoveries = dict.fromkeys(RECOVERIES, 0)
        for source in listening.subscriber.status():
            worker = source["worker"]
            counts = source.get("counts", {})
            for reason, count in counts.items():
                recoveries[reason] += count
            up = self._up.child(worker)
            up.value = max(up.value, int(source["state"] == "following"))
            lag = self._lag.child(worker)
            lag.value = max(lag.value, source.get("lag_s", 0.0))
            self._gaps.child(worker).value += sum(counts.get(reason, 0) for reason in _GAPS)
            meter = listening.routing.meters.get(worker)
            self._believed.child(worker).value = int(meter is None or not meter.lying)
        for reason, count in recoveries.items():
            self._recoveries.child(reason).value = max(count, self._recoveries.child(reason).value)
