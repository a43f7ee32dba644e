"""Why an action on a cache tier is refused."""

from __future__ import annotations

from console.core.errors import Problem, Refused

__all__ = ["Problem", "Refused"]
