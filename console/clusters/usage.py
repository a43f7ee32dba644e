"""Who uses a cluster, and which of its namespaces are followed, asked of those who know: this room
knows neither endpoints nor tiers."""

from __future__ import annotations

from console.usage import Users

_users = Users()
register = _users.register
unregister = _users.unregister
by_cluster = _users.by_name
users = _users.of

_follows = Users()
register_follows = _follows.register
followed = _follows.of
