"""Single sign-on redirects and callback; provider_users.py decides on the account."""

from __future__ import annotations

import logging
import time
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.accounts.models import User
from console.core.counters import increment
from console.signon import confirmation, flow, oidc, provider_users
from console.signon.core.configuration import Provider
from console.signon.models import Identity, own_session
from console.signon.pages.login import render_login

log = logging.getLogger(__name__)
LOGIN, LINK, CONFIRM = "login", "link", "confirm"
# Maximum age of the provider's re-authentication.
_ASKED_AGAIN_S = 300


@login_not_required
@never_cache
@require_POST
def start(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _render_departure(
        request, _provider(provider_id), {"process": LOGIN, "next": _next(request)}
    )


@never_cache
@require_POST
def link(request: HttpRequest, provider_id: str) -> HttpResponse:
    state = {"process": LINK, "user": request.user.pk, "next": ""}
    return _render_departure(request, _provider(provider_id), state)


@never_cache
@require_POST
def confirm_with(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Confirm at the provider, for users with neither password nor code."""
    state = {"process": CONFIRM, "user": request.user.pk, "next": ""}
    return _render_departure(request, _provider(provider_id), state, prompt="login", max_age="0")


@require_POST
def unlink(request: HttpRequest, pk: int) -> HttpResponse:
    user = cast(User, request.user)
    identity = get_object_or_404(Identity, pk=pk, user=user)
    try:
        provider_users.unlink_identity(user, identity, own_session(request))
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, f"Account at {identity.provider} unlinked; other sessions ended.")
    return redirect("signon:security")


@login_not_required
@never_cache
@require_GET
def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    provider = _provider(provider_id)
    try:
        person = oidc.finish_authorization(request, provider)
        if person.state["process"] == LINK:
            return _finish_link(request, person)
        if person.state["process"] == CONFIRM:
            return _finish_confirmation(request, person)
        return _finish_login(request, person)
    except oidc.ProviderUnavailable as error:
        return _render_unavailable(request, provider, error)
    except oidc.Rejected as error:
        flow.record_refusal(request, None, str(error), _method(provider))
        text = f"Sign-on with {provider.name} failed. Try again."
        if request.GET.get("error") == "access_denied":
            text = f"Sign-on at {provider.name} was cancelled."
        return render_login(request, text, 403)
    except provider_users.SignOnRefused as error:
        flow.record_refusal(request, error.user, error.reason, _method(provider))
        return render_login(request, str(error), 403)


def _finish_login(request: HttpRequest, person: oidc.ProviderUser) -> HttpResponse:
    provider = person.provider
    user = provider_users.resolve_user(person)
    trusted = provider.second_factor == "provider"
    # A login starts a new session, even after another user of the browser.
    return flow.begin_login(
        request,
        user,
        _method(provider),
        person.state["next"],
        trusted=trusted,
        more={
            "end_session": person.end_session,
            "client": provider.client_id,
            "provider": provider.id,
        },
    )


def _finish_link(request: HttpRequest, person: oidc.ProviderUser) -> HttpResponse:
    user = _same_user(request, person)
    try:
        provider_users.link_identity(user, person)
    except provider_users.SignOnRefused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Account at {person.provider.name} linked.")
    return redirect("signon:security")


def _finish_confirmation(request: HttpRequest, person: oidc.ProviderUser) -> HttpResponse:
    user = _same_user(request, person)
    if not provider_users.owns_identity(user, person):
        raise oidc.Rejected("confirmed with another account")
    auth_time = person.claims.get("auth_time")
    if not isinstance(auth_time, int) or auth_time < time.time() - _ASKED_AGAIN_S:
        raise oidc.Rejected("the provider did not authenticate again (auth_time)")
    confirmation.mark_confirmed(request)
    messages.success(request, "Identity confirmed. Repeat the action.")
    return redirect("signon:security")


def _same_user(request: HttpRequest, person: oidc.ProviderUser) -> User:
    user = request.user
    if not isinstance(user, User) or user.pk != person.state["user"]:
        raise oidc.Rejected("another user has logged in meanwhile")
    return user


def _render_departure(
    request: HttpRequest, provider: Provider, state: dict[str, Any], **more: str
) -> HttpResponse:
    """Render a link to the provider: the CSP forbids redirecting a form to another host."""
    try:
        url = oidc.begin_authorization(request, provider, state, **more)
    except oidc.ProviderUnavailable as error:
        return _render_unavailable(request, provider, error)
    except oidc.Rejected as error:
        log.error("Provider %s is misconfigured: %s", provider.id, error)
        increment("signon_misconfigured", provider=provider.id)
        text = f"{provider.name} is misconfigured. Contact an administrator: {error}."
        return render_login(request, text, 502, state["next"])
    return render(request, "console/signon/away.html", {"url": url, "provider": provider})


def _render_unavailable(
    request: HttpRequest, provider: Provider, error: oidc.ProviderUnavailable
) -> HttpResponse:
    log.warning("Provider %s is unreachable: %s", provider.id, error)
    increment("signon_provider_away", provider=provider.id)
    text = (
        f"{provider.name} is not reachable ({error}). Try again in 1 minute, or contact an "
        "administrator."
    )
    return render_login(request, text, 502)


def _provider(provider_id: str) -> Provider:
    provider = oidc.find_provider(provider_id)
    if provider is None:
        raise Http404
    return provider


def _method(provider: Provider) -> str:
    return f"with {provider.name}"


def _next(request: HttpRequest) -> str:
    target = request.POST.get("next", "")
    hosts = {request.get_host()}
    safe = url_has_allowed_host_and_scheme(target, hosts, require_https=request.is_secure())
    return target if safe else "/"
