"""The user's own security page: password, second factor, provider accounts, sessions."""

from __future__ import annotations

from typing import Any, cast

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
from console.signon import flow, models, totp
from console.signon.models import Session, digest
from console.signon.pages.forms import ChangePasswordForm, SetupForm
from console.vault import encryption

_SETUP = "signon_setup"


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
            flow.end_sessions(user, but=_own_session(request)),
            with_tokens=form.cleaned_data["revoke_tokens"],
        )
        messages.success(request, f"Password changed. {ended}")
        return redirect("signon:security")
    return _render_page(request, form, status=400 if form.errors else 200)


@never_cache
@require_http_methods(["GET", "POST"])
def factor(request: HttpRequest) -> HttpResponse:
    """Set up TOTP: the secret is kept encrypted in the session until a code confirms it."""
    user = cast(User, request.user)
    if totp.is_on(user):
        return redirect("signon:security")
    secret = _pending_secret(request, user)
    form = SetupForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        codes = totp.turn_on(user, secret, form.cleaned_data["code"])
        if codes:
            request.session.pop(_SETUP, None)
            flow.end_sessions(user, but=_own_session(request))
            return _render_codes(request, codes)
        form.add_error("code", "Invalid code. Enter the current code of the app.")
    uri = totp.otpauth_uri(user, secret, request.get_host())
    context = {
        "form": form,
        "secret": " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        "uri": uri,
        "picture": totp.qr_code(uri),
        "demanded": flow.must_have_factor(request, user),
    }
    return render(
        request, "console/signon/factor.html", context, status=400 if form.errors else 200
    )


@never_cache
@require_POST
def factor_off(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    if totp.turn_off(user, user):
        flow.end_sessions(user, but=_own_session(request))
        text = "Second factor disabled; other sessions ended."
        messages.success(request, f"{text} The next login needs the password only.")
    return redirect("signon:security")


@never_cache
@require_POST
def recovery_codes(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    if not totp.is_on(user):
        return redirect("signon:security")
    return _render_codes(request, totp.new_recovery_codes(user))


@require_POST
def session_end(request: HttpRequest, key: str) -> HttpResponse:
    user = cast(User, request.user)
    session = get_object_or_404(Session, pk=key, user=user)
    if session.pk == _own_session(request):
        flow.log_out(request)
        return redirect("signon:login")
    session.delete()
    record(user, "user.session.end", flow.target(user), {"address": session.address})
    messages.success(request, "Session ended.")
    return redirect("signon:security")


@require_POST
def sessions_end(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    ended = flow.end_sessions(user, but=_own_session(request))
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
        "factor": totp.factor_of(user),
        "demanded": flow.must_have_factor(request, user),
        "identities": identities,
        "linkable": [one for one in settings.OIDC_PROVIDERS if one.id not in linked],
        "sessions": live[:50],
        "own": _own_session(request),
        "idle": settings.SIGNON.idle.total_seconds(),
        "longest": settings.SIGNON.longest.total_seconds(),
    }
    return render(request, "console/signon/security.html", context, status=status)


def _render_codes(request: HttpRequest, codes: list[str]) -> HttpResponse:
    """Render the codes instead of redirecting: they are not stored in clear text."""
    return render(request, "console/signon/recovery_codes.html", {"codes": codes})


def _pending_secret(request: HttpRequest, user: User) -> str:
    purpose = f"signon/setup/{user.pk}"
    kept = request.session.get(_SETUP, "")
    try:
        return encryption.unseal(kept, purpose)
    except encryption.Unreadable:  # missing, or encrypted with another key
        secret = totp.new_secret()
        request.session[_SETUP] = encryption.seal(secret, purpose)
        return secret


def _own_session(request: HttpRequest) -> str:
    return digest(request.session.session_key or "")
