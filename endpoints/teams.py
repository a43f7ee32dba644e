"""Whose an endpoint is, and who may change it.

Promises that another team's endpoint is refused as one which is not there.
"""

from __future__ import annotations

from typing import Any

from console.accounts import selectors as accounts
from console.accounts.gate import Thing
from console.accounts.models import Team
from console.accounts.permissions import (
    Somebody,
    allows,
    require,
    require_somewhere,
    teams_where,
    visible,
)
from endpoints.models import Endpoint
from endpoints.owners import System
from endpoints.refusals import no_endpoint
from endpoints.spec import FieldError, SpecErrors


def find(name: str) -> Thing | None:
    """For the gate; None when there is no endpoint of that name."""
    found = Endpoint.objects.filter(name=name).values_list("team_id").first()
    return Thing(found[0]) if found else None


def names(user: Somebody) -> frozenset[str]:
    """Of all endpoints the user may look at."""
    return frozenset(visible(Endpoint.objects.order_by(), user).values_list("name", flat=True))


def sees(actor: Any, endpoint: Endpoint) -> bool:
    return isinstance(actor, System) or allows(actor, "viewer", of=endpoint)


def allow(actor: Any, endpoint: Endpoint | str) -> None:
    """Let through who may change it; `NotFoundError` for who may not know of it."""
    if isinstance(actor, System):
        return
    require_somewhere(actor, "viewer")
    name = endpoint if isinstance(endpoint, str) else endpoint.name
    thing = find(name) if isinstance(endpoint, str) else endpoint
    if not allows(actor, "viewer", of=thing) or thing is None:
        raise no_endpoint(name)
    require(actor, "operator", of=thing)


def allow_somewhere(actor: Any) -> None:
    """Who may have endpoints at all."""
    if not isinstance(actor, System):
        require_somewhere(actor, "operator")


def for_new(actor: Any, slug: str | None) -> Team | None:
    """The team which a new endpoint is to belong to. Without a slug nobody's, for who may change
    those; for others their team, where there is one alone; "" is nobody's, expressly."""
    allow_somewhere(actor)
    if slug:
        return team_for(actor, slug)
    mine = frozenset() if isinstance(actor, System) else teams_where(actor, "operator")
    if mine is None or isinstance(actor, System):
        return None
    if slug is None and len(mine) == 1:
        return Team.objects.get(pk__in=mine)
    raise SpecErrors([_choose(slug, actor)])


def team_for(actor: Any, slug: str) -> Team:
    """The team of that slug, for who may change what is its."""
    team = accounts.team(slug)
    if team is None or not (isinstance(actor, System) or allows(actor, "viewer", of=team)):
        raise SpecErrors([_choose(slug, actor)])
    if not isinstance(actor, System):
        require(actor, "operator", of=team)
    return team


def choices(actor: Any) -> list[Team]:
    """The teams whose endpoints the actor may make."""
    return list(accounts.teams_with(None if isinstance(actor, System) else actor, "operator"))


def _choose(slug: str | None, actor: Any) -> FieldError:
    names = ", ".join(team.slug for team in choices(actor)) or "none yet"
    return FieldError(
        "team",
        slug,
        f"There is no team {slug} here for you." if slug else "Whose endpoint is it?",
        f"Name one of your teams: {names}.",
        "unknown_team" if slug else "required",
    )
