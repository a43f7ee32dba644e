"""Whose an endpoint is, as a card of its settings, and the move to another team."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.http import require_POST

from console.accounts.permissions import allows, role_required
from endpoints import teams
from endpoints.models import Endpoint
from endpoints.pages.detail.context import found
from endpoints.pages.detail.views import done


@require_POST
@role_required("operator")
def move(request: HttpRequest, name: str) -> HttpResponseBase:
    endpoint = found(name)
    slug = request.POST.get("team", "")
    return done(
        request,
        endpoint,
        lambda: teams.move(request.user, name, slug),
        f"{name} belongs to {slug or 'no team'} now.",
    )


def card(request: HttpRequest, endpoint: Endpoint) -> dict[str, Any]:
    """The teams it may be moved to by who asks; `nobody`: to none, too."""
    return {
        "team_choices": teams.choices(request.user),
        "team_nobody": allows(request.user, "operator"),
        "team_now": endpoint.team.slug if endpoint.team else "",
    }
