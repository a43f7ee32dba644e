"""From a provider's claims to a role and teams here. Knows no Django.

Promises that a claim of another shape gives nobody anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.signon.core.configuration import REFUSE, ROLES, Groups, Provider


@dataclass(frozen=True, slots=True)
class Rights:
    role: str  # "" refuses
    teams: Mapping[str, str]
    groups: Groups
    claimed: bool  # whether the claim was there at all


def rights(provider: Provider, claims: Mapping[str, Any]) -> Rights:
    """The highest role that any group gives; without any, the provider's default."""
    value = claim(claims, provider.groups_claim)
    groups = _words(value)
    teams = {team: _highest(roles, groups) for team, roles in provider.teams.items()}
    held = {team: role for team, role in teams.items() if role}
    role = _highest(provider.roles, groups)
    if not role:
        by_default = "" if provider.default_role == REFUSE else provider.default_role
        role = by_default or ("member" if held else "")
    return Rights(role, held, groups, value is not None)


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """By its name, or by a path of names with dots, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _words(value: Any) -> Groups:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        return ()
    return tuple(sorted({word for word in value if isinstance(word, str)}))


def _highest(roles: Mapping[str, Groups], groups: Groups) -> str:
    held = set(groups)
    return next((role for role in reversed(ROLES) if held & set(roles.get(role, ()))), "")
