"""The user's own security page: password, second factors, provider accounts, sessions."""

from __future__ import annotations

from typing import Any, cast

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts.models import User
from console.audit.record import record
from console.people import actions
from console.signon import factors, flow, models
from console.signon.models import Session
from console.signon.pages.forms import ChangePasswordForm


@never_cache
@require_http_methods(["GET", "POST"])
def security(request: HttpRequest) -> HttpResponse:
    """Show the page; POST changes the password."""
    user = cast(User, request.user)
    form = ChangePasswordForm(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and user.has_usable_password() and form.is_valid():
        form.save()
        update_session_auth_hash(request, user)
        ended = actions.record_password_change(
            user,
            flow.end_sessions(user, but=models.own_session(request)),
            with_tokens=form.cleaned_data["revoke_tokens"],
        )
        messages.success(request, f"Password changed. {ended}")
        return redirect("signon:security")
    return _render_page(request, form, status=400 if form.errors else 200)


@require_POST
def session_end(request: HttpRequest, key: str) -> HttpResponse:
    user = cast(User, request.user)
    session = get_object_or_404(Session, pk=key, user=user)
    if session.pk == models.own_session(request):
        flow.log_out(request)
        return redirect("signon:login")
    session.delete()
    record(user, "user.session.end", flow.target(user), {"address": session.address})
    messages.success(request, "Session ended.")
    return redirect("signon:security")


@require_POST
def sessions_end(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    ended = flow.end_sessions(user, but=models.own_session(request))
    record(user, "user.session.end", flow.target(user), {"others": ended})
    messages.success(request, f"{ended} other session{'' if ended == 1 else 's'} ended.")
    return redirect("signon:security")


def _render_page(request: HttpRequest, form: ChangePasswordForm, status: int = 200) -> HttpResponse:
    user = cast(User, request.user)
    live = models.live_sessions(user).order_by("-last_seen_at")
    identities = list(user.identities.all())
    linked = {identity.provider for identity in identities}
    context: dict[str, Any] = {
        "password_form": form,
        "has_password": user.has_usable_password(),
        "factors": _list_factors(user),
        "passkeys_usable": factors.are_passkeys_usable(request),
        "demanded": flow.must_have_factor(request, user),
        "identities": identities,
        "linkable": [provider for provider in settings.OIDC_PROVIDERS if provider.id not in linked],
        "sessions": live[:50],
        "own": models.own_session(request),
        "idle": settings.SIGNON.idle.total_seconds(),
        "longest": settings.SIGNON.longest.total_seconds(),
    }
    return render(request, "console/signon/security.html", context, status=status)


def _list_factors(user: User) -> dict[str, Any]:
    """Return the authenticator app, the passkeys and the number of unused recovery codes."""
    by_type: dict[str, list[Authenticator]] = {}
    for row in Authenticator.objects.filter(user=user).order_by("pk"):
        by_type.setdefault(row.type, []).append(row)
    codes = by_type.get(Authenticator.Type.RECOVERY_CODES)
    return {
        "totp": next(iter(by_type.get(Authenticator.Type.TOTP, ())), None),
        "passkeys": by_type.get(Authenticator.Type.WEBAUTHN, []),
        "recovery_left": len(codes[0].wrap().get_unused_codes()) if codes else None,
    }
