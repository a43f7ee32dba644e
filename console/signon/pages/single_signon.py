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
from console.core.counters import count
from console.signon import confirmation, flow, login_limits, oidc, provider_users
from console.signon.core.configuration import Provider
from console.signon.models import Identity, digest
from console.signon.pages.login import login_page

log = logging.getLogger(__name__)
LOGIN, LINK, CONFIRM = "login", "link", "confirm"
# Maximum age of the provider's re-authentication.
_ASKED_AGAIN_S = 300


@login_not_required
@never_cache
@require_POST
def start(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _away(request, _provider(provider_id), {"process": LOGIN, "next": _next(request)})


@never_cache
@require_POST
def link(request: HttpRequest, provider_id: str) -> HttpResponse:
    state = {"process": LINK, "user": request.user.pk, "next": ""}
    return _away(request, _provider(provider_id), state)


@never_cache
@require_POST
def confirm_with(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Confirm at the provider, for users with neither password nor code."""
    state = {"process": CONFIRM, "user": request.user.pk, "next": ""}
    return _away(request, _provider(provider_id), state, prompt="login", max_age="0")


@require_POST
def unlink(request: HttpRequest, pk: int) -> HttpResponse:
    user = cast(User, request.user)
    identity = get_object_or_404(Identity, pk=pk, user=user)
    try:
        provider_users.unlink(user, identity, digest(request.session.session_key or ""))
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(
            request, f"Your account at {identity.provider} is unlinked; sessions ended."
        )
    return redirect("signon:security")


@login_not_required
@never_cache
@require_GET
def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    provider = _provider(provider_id)
    try:
        person = oidc.arrival(request, provider)
        if person.state["process"] == LINK:
            return _linked(request, person)
        if person.state["process"] == CONFIRM:
            return _confirmed(request, person)
        return _logged_in(request, person)
    except oidc.Departure as error:
        return _is_away(request, provider, error)
    except oidc.Rejected as error:
        flow.refused(request, None, str(error), _method(provider))
        text = f"Signing on with {provider.name} did not work. Please begin anew."
        if request.GET.get("error") == "access_denied":
            text = f"You did not sign on at {provider.name}."
        return login_page(request, text, 403)
    except provider_users.Unwelcome as error:
        flow.refused(request, error.user, error.reason, _method(provider))
        return login_page(request, str(error), 403)


def _logged_in(request: HttpRequest, person: oidc.Person) -> HttpResponse:
    provider = person.provider
    user = provider_users.arrived(person)
    trusted = provider.second_factor == "provider"
    # A login starts a new session, whoever used the browser before.
    done = flow.begin(
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
    if not done:
        return redirect("signon:code")
    response = redirect(person.state["next"])
    login_limits.remember(request, response, user.username)
    return response


def _linked(request: HttpRequest, person: oidc.Person) -> HttpResponse:
    user = _same_user(request, person)
    try:
        provider_users.link(user, person)
    except provider_users.Unwelcome as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"You can sign on with {person.provider.name} now.")
    return redirect("signon:security")


def _confirmed(request: HttpRequest, person: oidc.Person) -> HttpResponse:
    user = _same_user(request, person)
    if not provider_users.is_theirs(user, person):
        raise oidc.Rejected("confirmed by another account than the person's")
    at = person.claims.get("auth_time")
    if not isinstance(at, int) or at < time.time() - _ASKED_AGAIN_S:
        raise oidc.Rejected("the provider did not ask again (auth_time)")
    confirmation.confirmed(request)
    messages.success(request, "Thank you. You can do it now.")
    return redirect("signon:security")


def _same_user(request: HttpRequest, person: oidc.Person) -> User:
    user = request.user
    if not isinstance(user, User) or user.pk != person.state["user"]:
        raise oidc.Rejected("another person is logged in now than when this began")
    return user


def _away(
    request: HttpRequest, provider: Provider, state: dict[str, Any], **more: str
) -> HttpResponse:
    """Render a link to the provider: the CSP forbids redirecting a form to another host."""
    try:
        url = oidc.departure(request, provider, state, **more)
    except oidc.Departure as error:
        return _is_away(request, provider, error)
    except oidc.Rejected as error:
        log.error("Provider %s is misconfigured: %s", provider.id, error)
        count("signon_misconfigured", provider=provider.id)
        text = f"{provider.name} is not set up as this console expects. Tell an admin: {error}."
        return login_page(request, text, 502, state["next"])
    return render(request, "console/signon/away.html", {"url": url, "provider": provider})


def _is_away(request: HttpRequest, provider: Provider, error: oidc.Departure) -> HttpResponse:
    log.warning("Provider %s is unreachable: %s", provider.id, error)
    count("signon_provider_away", provider=provider.id)
    text = f"{provider.name} does not answer ({error}). Try again in a minute, or tell an admin."
    return login_page(request, text, 502)


def _provider(provider_id: str) -> Provider:
    found = oidc.find(provider_id)
    if found is None:
        raise Http404
    return found


def _method(provider: Provider) -> str:
    return f"with {provider.name}"


def _next(request: HttpRequest) -> str:
    wanted = request.POST.get("next", "")
    hosts = {request.get_host()}
    safe = url_has_allowed_host_and_scheme(wanted, hosts, require_https=request.is_secure())
    return wanted if safe else "/"
