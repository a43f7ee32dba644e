"""Access settings for admins: providers, group mappings and locked logins.

Read-only: the settings come from the environment. Secrets are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from console.accounts.gate import role_required
from console.accounts.models import Role, Team, User
from console.audit.record import record
from console.signon import factors, flow, oidc
from console.signon.core.configuration import ROLES, Provider
from console.signon.flow import BREAK_GLASS
from console.signon.models import Identity
from console.web.shell.cards import Card, Fact
from console.web.templatetags.emberline import duration


@role_required("admin")
@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    team_slugs = set(Team.objects.values_list("slug", flat=True))
    counted = Identity.objects.order_by().values_list("provider").annotate(Count("pk"))
    people = dict(counted)
    context = {
        "policy": settings.SIGNON,
        "times": {
            name: getattr(settings.SIGNON, name).total_seconds()
            for name in ("idle", "longest", "confirm")
        },
        "providers": [
            _shown(request, provider, team_slugs, people) for provider in settings.OIDC_PROVIDERS
        ],
        "break_glass": _break_glass(),
        "without_factor": _admins_without_factor(),
        "roles": ROLES,
    }
    return render(request, "console/signon/settings.html", context)


@role_required("admin")
@require_POST
def test(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Fetch the provider's metadata as a login would."""
    provider = oidc.find_provider(provider_id)
    if provider is None:
        raise Http404
    try:
        oidc.load_metadata(oidc.Adapter(request, provider.id), provider)
    except (oidc.ProviderUnavailable, oidc.Rejected) as error:
        messages.error(request, f"{provider.name} is not usable: {error}.")
    else:
        messages.success(
            request, f"{provider.name} is reachable and its issuer matches the configuration."
        )
    return redirect("signon:settings")


def _shown(
    request: HttpRequest, provider: Provider, teams: set[str], people: dict[str, int]
) -> dict[str, Any]:
    callback = reverse("signon:callback", args=[provider.id])
    return {
        "provider": provider,
        "callback": request.build_absolute_uri(callback),
        "secret": oidc.secret_source(provider),
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
    """Return each break-glass user with its problem, found before the provider fails."""
    break_glass = []
    for name in settings.SIGNON.break_glass:
        user = User.objects.filter(username__iexact=name).first()
        wrong = ""
        if user is None:
            wrong = "account does not exist"
        elif not user.is_active or user.role != Role.ADMIN:
            wrong = "not an active admin"
        elif not user.has_usable_password():
            wrong = "no password set"
        break_glass.append((name, wrong))
    return break_glass


def _admins_without_factor() -> list[str]:
    admins = User.objects.filter(role=Role.ADMIN, is_active=True)
    enabled = Authenticator.objects.filter(type__in=factors.FACTORS)
    bare = admins.exclude(pk__in=enabled.values("user"))
    return list(bare.order_by("username").values_list("username", flat=True)[:50])


@role_required("admin")
@require_POST
def factor_reset(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove the second factor and end the sessions, since the device may be stolen."""
    person = get_object_or_404(User, pk=pk)
    if factors.turn_off(cast(User, request.user), person):
        flow.end_sessions(person)
        text = f"Second factor of {person.username} reset. All sessions ended; API"
        messages.success(request, f"{text} tokens stay valid.")
    else:
        messages.info(request, f"{person.username} has no second factor.")
    return redirect("accounts:people")


@role_required("admin")
@require_POST
def sessions_end(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    ended = flow.end_sessions(person)
    record(cast(User, request.user), "user.session.end", flow.target(person), {"all": ended})
    text = f"All sessions of {person.username} ended. API tokens stay valid."
    messages.success(request, text)
    return redirect("accounts:people")


_FACTOR = {
    "optional": "optional",
    "admins": "required for admins",
    "everybody": "required for all users",
}


def facts(_viewer: Any) -> Sequence[Fact]:
    policy = settings.SIGNON
    only = policy.local_login == BREAK_GLASS
    names = ", ".join(provider.name for provider in settings.OIDC_PROVIDERS)
    return (
        Fact("Providers", names or "none"),
        Fact("Password login", "break-glass admins only" if only else "all users"),
        Fact("Second factor", _FACTOR[policy.second_factor]),
        Fact("Session lifetime", duration(policy.longest.total_seconds())),
    )


CARD = Card(
    "signon", "Single sign-on", "Identity providers and login policy.", 60, facts,
    "signon:settings", "Groups and policy",
    role="admin",
)  # fmt: skip
