"""How people get in here, for an admin's eyes: providers, what groups give, and who is locked out.

Shows settings, changes none: they come from the environment. No secret is on the page.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from console.accounts.models import Role, Team, User
from console.accounts.permissions import role_required
from console.signon import oidc, secret_store
from console.signon.core.configuration import ROLES, Provider
from console.signon.models import Factor, Identity


@role_required("admin")
@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    known = set(Team.objects.values_list("slug", flat=True))
    counted = Identity.objects.order_by().values_list("provider").annotate(Count("pk"))
    people = dict(counted)
    context = {
        "policy": settings.SIGNON,
        "times": {
            name: getattr(settings.SIGNON, name).total_seconds()
            for name in ("idle", "longest", "confirm")
        },
        "providers": [_shown(request, one, known, people) for one in settings.OIDC_PROVIDERS],
        "break_glass": _break_glass(),
        "without_factor": _admins_without_factor(),
        "roles": ROLES,
    }
    return render(request, "console/signon/settings.html", context)


@role_required("admin")
@require_POST
def test(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Asks the provider for its metadata, as a login would."""
    provider = oidc.find(provider_id)
    if provider is None:
        raise Http404
    try:
        oidc.metadata(oidc.Adapter(request, provider.id), provider)
    except (oidc.Away, oidc.Rejected) as error:
        messages.error(request, f"{provider.name} cannot be used: {error}.")
    else:
        messages.success(request, f"{provider.name} answers, and is the issuer written down.")
    return redirect("signon:settings")


def _shown(
    request: HttpRequest, provider: Provider, teams: set[str], people: dict[str, int]
) -> dict[str, Any]:
    callback = reverse("signon:callback", args=[provider.id])
    return {
        "provider": provider,
        "callback": request.build_absolute_uri(callback),
        "secret": secret_store.where(provider),
        "people": people.get(provider.id, 0),
        "given": [
            *((role, "", groups) for role, groups in provider.roles.items()),
            *(
                (role, team, groups)
                for team, roles in provider.teams.items()
                for role, groups in roles.items()
            ),
        ],
        "missing_teams": sorted(set(provider.teams) - teams),
    }


def _break_glass() -> list[tuple[str, str]]:
    """Each name with what is wrong with it: found out now, not when the provider is away."""
    found = []
    for name in settings.SIGNON.break_glass:
        user = User.objects.filter(username__iexact=name).first()
        wrong = ""
        if user is None:
            wrong = "there is no such account"
        elif not user.is_active or user.role != Role.ADMIN:
            wrong = "is no active admin"
        elif not user.has_usable_password():
            wrong = "has no password"
        found.append((name, wrong))
    return found


def _admins_without_factor() -> list[str]:
    admins = User.objects.filter(role=Role.ADMIN, is_active=True)
    bare = admins.exclude(pk__in=Factor.objects.values("user"))
    return list(bare.order_by("username").values_list("username", flat=True)[:50])
