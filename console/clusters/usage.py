"""Who uses a cluster, which of its namespaces are followed, and which groups of rights are needed
there beside what workloads need, asked of those who know: this room
knows neither endpoints nor tiers."""

from __future__ import annotations

from console.core.registry import Users

_users = Users()
register = _users.register
unregister = _users.unregister
by_cluster = _users.by_name
users = _users.of

_follows = Users()
register_follows = _follows.register
followed = _follows.of

_parts = Users()
register_parts = _parts.register
parts = _parts.of
