"""Team ownership of endpoints and permissions on them.

An invisible endpoint is reported as not found.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from console.accounts import selectors as accounts
from console.accounts.gate import OwnedObject
from console.accounts.models import Team
from console.accounts.permissions import (
    Somebody,
    allows,
    filter_visible,
    require,
    require_in_any_team,
    team_ids_with_role,
)
from console.audit.record import record
from console.clusters import selectors as clusters
from console.core.errors import Problem
from console.core.grants import ALL_GRANTS, NAMESPACE_GRANTS, Grant, parse_grants
from endpoints.models import Endpoint
from endpoints.owners import OwningSystem, System, owner_of
from endpoints.placement import spec_context
from endpoints.refusals import no_endpoint
from endpoints.spec.endpoint_spec import EndpointSpec, SpecErrors
from endpoints.spec.rules import Context, grant_violations


def find(name: str) -> OwnedObject | None:
    row = Endpoint.objects.filter(name=name).values_list("team_id").first()
    return OwnedObject(row[0]) if row else None


def names(user: Somebody) -> frozenset[str]:
    return frozenset(
        filter_visible(Endpoint.objects.order_by(), user).values_list("name", flat=True)
    )


def is_visible(actor: Any, endpoint: Endpoint) -> bool:
    return isinstance(actor, System) or allows(actor, "viewer", of=endpoint)


def require_change(actor: Any, endpoint: Endpoint | str) -> None:
    """Require the right to change the endpoint. Raise NotFoundError if it is not visible."""
    if isinstance(actor, System):
        return
    require_in_any_team(actor, "viewer")
    name = endpoint if isinstance(endpoint, str) else endpoint.name
    thing = find(name) if isinstance(endpoint, str) else endpoint
    if not allows(actor, "viewer", of=thing) or thing is None:
        raise no_endpoint(name)
    require(actor, "operator", of=thing)


def require_any_team(actor: Any) -> None:
    if not isinstance(actor, System):
        require_in_any_team(actor, "operator")


def team_of_new(actor: Any, slug: str | None) -> Team | None:
    """Return the team of a new endpoint. Without a slug: no team for actors who may change those
    endpoints, else the actor's only team. "" is explicitly no team. A cluster object's endpoint
    gets the team of its namespace.
    """
    require_any_team(actor)
    if isinstance(actor, OwningSystem):
        return team_of_namespace(actor.owner.cluster, actor.owner.namespace)
    if slug:
        return team_for(actor, slug)
    mine = frozenset() if isinstance(actor, System) else team_ids_with_role(actor, "operator")
    if mine is None or isinstance(actor, System):
        return None
    if slug is None and len(mine) == 1:
        return Team.objects.get(pk__in=mine)
    raise SpecErrors([_choose(slug, actor)])


def team_for(actor: Any, slug: str) -> Team:
    team = accounts.team(slug)
    if team is None or not (isinstance(actor, System) or allows(actor, "viewer", of=team)):
        raise SpecErrors([_choose(slug, actor)])
    if not isinstance(actor, System):
        require(actor, "operator", of=team)
    return team


def choices(actor: Any) -> list[Team]:
    return list(
        accounts.list_teams_with_role(None if isinstance(actor, System) else actor, "operator")
    )


def _choose(slug: str | None, actor: Any) -> Problem:
    names = ", ".join(team.slug for team in choices(actor)) or "none yet"
    return Problem(
        "team",
        slug,
        f"Team {slug} not found, or not one of yours." if slug else "A team is required.",
        f"Choose one of your teams: {names}.",
        "unknown_team" if slug else "required",
    )


def endpoints_by_team() -> dict[str, list[str]]:
    endpoints: dict[str, list[str]] = {}
    rows = Endpoint.objects.exclude(team=None).order_by("name").values_list("team__slug", "name")
    for slug, name in rows:
        endpoints.setdefault(slug, []).append(f"endpoint {name}")
    return endpoints


def grants(actor: Any, team: Team | None) -> frozenset[Grant]:
    """Return the grants of the team's endpoints when written by this actor. Endpoints without a
    team get all grants, if written by an admin or the console's command line; cluster objects
    get what their namespace allows pods.
    """
    if team is None:
        if isinstance(actor, OwningSystem):
            return NAMESPACE_GRANTS
        return ALL_GRANTS if isinstance(actor, System) or allows(actor, "admin") else frozenset()
    grants = parse_grants(team.grants)
    return grants | NAMESPACE_GRANTS if isinstance(actor, OwningSystem) else grants


def context(actor: Any, team: Team | None, updating: str = "") -> Context:
    return spec_context.context(
        updating=updating, grants=grants(actor, team), team=team.name if team else ""
    )


def apply_context(endpoint: Endpoint) -> Context:
    """Return the context of `standing`; teamless endpoints were checked on write."""
    owner = owner_of(endpoint.name)
    actor = System() if owner is None else OwningSystem(owner)
    team = endpoint.team
    return spec_context.apply_context(grants(actor, team), team.name if team else "")


def context_of(actor: Any, present: Endpoint | None, slug: str = "") -> Context:
    """Return the context of a spec that is previewed: of `present`, or of a new endpoint. Without a
    `slug` a new one may be for any of the actor's teams.
    """
    if present is not None:
        return context(actor, present.team, present.name)
    mine = {team.slug: team for team in choices(actor)}
    if slug in mine:
        return context(actor, mine[slug])
    granted = [grants(actor, team) for team in mine.values()]
    return spec_context.context(grants=grants(actor, None).union(*granted))


def check_grants(actor: Any, team: Team | None, spec: EndpointSpec) -> None:
    name = team.name if team else ""
    errors = grant_violations(spec, spec_context.apply_context(grants(actor, team), name))
    if errors:
        raise SpecErrors(errors)


def check_place(team: Team | None, spec: EndpointSpec) -> None:
    if team is None or not team.namespaces or not spec.on_cluster:
        return
    cluster = spec.placement.cluster
    namespace = clusters.namespace(cluster, spec.placement.namespace)
    if not has_namespace(team, cluster, namespace):
        message = f"Team {team.name} has no endpoints in namespace {namespace} of {cluster}."
        remedy = f"Use one of its namespaces: {', '.join(team.namespaces)}."
        value = spec.placement.namespace
        error = Problem("placement.namespace", value, message, remedy, "not_of_the_team")
        raise SpecErrors([error])


def has_namespace(team: Team, cluster: str, namespace: str) -> bool:
    """Return whether the team has this namespace, for the cluster or for all clusters."""
    return namespace in team.namespaces or f"{cluster}/{namespace}" in team.namespaces


def may_take_over(endpoint: Endpoint, cluster: str, namespace: str) -> bool:
    """Return whether an object of this namespace may become the endpoint's owner. A team's endpoint
    only if the team has the namespace; otherwise any writer of objects could take it.
    """
    return endpoint.team is None or has_namespace(endpoint.team, cluster, namespace)


def team_of_namespace(cluster: str, namespace: str) -> Team | None:
    teams = [team for team in Team.objects.all() if has_namespace(team, cluster, namespace)]
    return teams[0] if len(teams) == 1 else None


def move(actor: Any, name: str, slug: str | None) -> Endpoint:
    """Move to another team ("" or None: none). Needs permissions in both."""
    require_change(actor, name)
    with transaction.atomic():
        # Only of the endpoint: it may have no team.
        rows = Endpoint.objects.select_for_update(of=("self",), no_key=True)
        endpoint = rows.select_related("team").filter(name=name).first()
        if endpoint is None:
            raise no_endpoint(name)
        require_change(actor, endpoint)
        before = endpoint.team
        if slug:
            team = team_for(actor, slug)
        else:
            team = None
            if not isinstance(actor, System):
                require(actor, "operator")
        if team == before:
            return endpoint
        check_place(team, endpoint.parsed)
        check_grants(actor, team, endpoint.parsed)
        Endpoint.objects.filter(pk=endpoint.pk).update(team=team)
        endpoint.team = team
        changes = {"team": [before.slug if before else None, team.slug if team else None]}
        user = None if isinstance(actor, System) else actor
        # Recorded for both teams.
        for owner in {before, team}:
            whose = OwnedObject(owner.pk if owner else None)
            record(user, "move", f"endpoint/{name}", changes, of=whose)
    return endpoint
