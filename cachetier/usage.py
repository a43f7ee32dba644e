"""Who uses a tier, asked of those who know: this room knows no endpoint.

An app registers a check in its `AppConfig.ready`; a tier with users is not deleted.
"""

from __future__ import annotations

from collections.abc import Callable

Check = Callable[[str], list[str]]
_checks: list[Check] = []


def register(check: Check) -> None:
    """`check(tier_name)` names what uses the tier, such as "endpoint demo"."""
    if check not in _checks:
        _checks.append(check)


def unregister(check: Check) -> None:
    if check in _checks:
        _checks.remove(check)


def users(tier_name: str) -> list[str]:
    """Everybody who uses it. A check that fails is not "nobody": its error is the caller's."""
    return sorted(name for check in _checks for name in check(tier_name))
