"""Who uses a tier, asked of those who know: this room knows no endpoint.

An app registers a check in its `AppConfig.ready`; a tier with users is not deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

# Everybody who uses a tier, by the tier's name, such as {"default": ["endpoint demo"]}.
Check = Callable[[], Mapping[str, Sequence[str]]]
_checks: list[Check] = []


def register(check: Check) -> None:
    if check not in _checks:
        _checks.append(check)


def unregister(check: Check) -> None:
    if check in _checks:
        _checks.remove(check)


def by_tier() -> dict[str, list[str]]:
    """Everybody, in as many questions as there are checks. A check that fails is not "nobody": its
    error is the caller's."""
    found: dict[str, list[str]] = {}
    for check in _checks:
        for tier, names in check().items():
            found.setdefault(tier, []).extend(names)
    return {tier: sorted(names) for tier, names in found.items()}


def users(tier_name: str) -> list[str]:
    return by_tier().get(tier_name, [])
