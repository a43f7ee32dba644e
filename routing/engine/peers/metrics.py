"""Metrics of the exchange between routers."""

from __future__ import annotations

from routing.engine.observe.metric_types import Registry
from routing.engine.peers.failure import REMEDIES

RESULTS = (
    "applied",
    "too_large",
    "not_authentic",
    "other_version",
    "invalid",
    "repeated",
    "too_many",
)


class PeerMetrics:
    def __init__(self, registry: Registry) -> None:
        messages = registry.counter(
            "emberline_router_peer_messages_total",
            "Messages of other routers of the endpoint, by outcome.",
            ("result",),
        )
        self.messages = {result: messages.child(result) for result in RESULTS}
        failures = registry.counter(
            "emberline_router_state_store_failures_total",
            "Lost and failed connections to the state store, by reason; repeated attempts with the "
            "same reason count once.",
            ("reason",),
        )
        self.failures = {reason: failures.child(reason) for reason in REMEDIES}
        self.peers = registry.gauge(
            "emberline_router_peers", "Other routers of the endpoint that exchange state."
        ).child()
        self.up = registry.gauge(
            "emberline_router_state_store_up", "1 while the state store answers."
        ).child()
        self.lag = registry.gauge(
            "emberline_router_state_store_lag_seconds",
            "Time in which the router's last heartbeat came back through the state store.",
        ).child()
        placements = registry.counter(
            "emberline_router_peer_placements_lost_total",
            "Placements not exchanged: no room while the store was away (dropped), or of unknown "
            "workers or another configuration (ignored).",
            ("reason",),
        )
        self.dropped = placements.child("dropped")
        self.ignored = placements.child("ignored")
        self.budgets_alone = registry.counter(
            "emberline_router_budget_checks_alone_total",
            "Requests whose token budget was checked without the other routers, as the store was "
            "away.",
        ).child()
