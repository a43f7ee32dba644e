"""Who uses a tier, asked of those who know: this room knows no endpoint."""

from __future__ import annotations

from console.core.registry import Users

_users = Users()
register = _users.register
unregister = _users.unregister
by_tier = _users.by_name
users = _users.of
