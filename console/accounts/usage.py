"""What a team owns, asked of those who know: this room knows no endpoint."""

from __future__ import annotations

from console.core.registry import Users

_owned = Users()
register = _owned.register
owned_by = _owned.of
by_team = _owned.by_name
