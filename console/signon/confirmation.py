"""Re-authentication before sensitive actions, against unlocked browsers.

An app registers the routes with `needs` in AppConfig.ready. A POST without recent confirmation is
answered with a form for password or code, or a redirect to the provider. Submitted fields are
carried along and sent after the confirmation. Requests with API tokens are exempt.
"""

from __future__ import annotations

import time
from typing import Any, cast

from allauth.mfa.webauthn.internal import auth as webauthn
from django.conf import settings
from django.contrib import messages
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    JsonResponse,
)
from django.shortcuts import redirect, render
from django.urls import Resolver404, resolve
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from console.accounts.models import User
from console.core import request_log
from console.core.errors import error_document
from console.signon import factors, flow, login_limits
from console.signon.models import Identity
from console.signon.pages.forms import ConfirmForm, PasskeyConfirmForm
from console.web.server.client_address import client_address, network_of

PREFIX = "again_"
_needs: set[str] = set()
# Carried fields must fit into a page; files are not carried.
_CARRIED_MAX = 200
CONFIRM_FIRST = (
    "confirm_needed",
    "This action requires confirmation of your identity.",
    "Perform it on its page, or send an API token.",
)
FACTOR = (
    "second_factor_needed",
    "This console requires a second factor.",
    "Set one up on the Security page.",
)


def require_confirmation(*routes: str) -> None:
    """Register route names as for `reverse`, such as "accounts:person-role"."""
    _needs.update(routes)


def confirmed_routes() -> frozenset[str]:
    return frozenset(_needs)


def needs_confirmation(route: str) -> bool:
    return route in _needs


def is_demanded(request: HttpRequest) -> bool:
    """Return whether this request needs a confirmation that is missing or expired."""
    match = request.resolver_match
    if match is None or request.method in ("GET", "HEAD", "OPTIONS"):
        return False
    return needs_confirmation(match.view_name) and not is_fresh(request)


def is_fresh(request: HttpRequest) -> bool:
    mark_confirmed = float(flow.login_facts(request).get("confirmed", 0))
    return mark_confirmed > time.time() - settings.SIGNON.confirm.total_seconds()


def mark_confirmed(request: HttpRequest) -> None:
    flow.add_facts(request, confirmed=time.time())


def render_form(
    request: HttpRequest, form: ConfirmForm | None = None, action: str = ""
) -> HttpResponse:
    """Render the confirmation form; `action` is the path of the original request."""
    user = cast(User, request.user)
    carried = [
        (name, value)
        for name, values in request.POST.lists()
        if not name.startswith(PREFIX) and name not in ("csrfmiddlewaretoken", "to")
        for value in values
    ][:_CARRIED_MAX]
    linked = set(Identity.objects.filter(user=user).values_list("provider", flat=True))
    context = {
        "form": form or form_for(user),
        "to": action or request.get_full_path(),
        "carried": carried,
        "providers": [provider for provider in settings.OIDC_PROVIDERS if provider.id in linked],
        **_passkey_context(request, user),
    }
    # Not 401 or 403: browsers and htmx must render the page.
    response = render(request, "console/signon/confirm.html", context)
    response["HX-Retarget"], response["HX-Reswap"] = "body", "innerHTML"
    return response


def form_for(user: User, data: Any = None) -> ConfirmForm:
    return ConfirmForm(data, password=user.has_usable_password(), code=factors.is_on(user))


def _passkey_context(request: HttpRequest, user: User) -> dict[str, Any]:
    """Return the browser's request for a passkey; htmx does not run the script that it needs."""
    usable = factors.are_passkeys_usable(request) and not request.headers.get("HX-Request")
    if not usable or not factors.has_passkey(user):
        return {}
    return {"js_data": {"request_options": webauthn.begin_authentication(user)}}


def refuse_program(demand: tuple[str, str, str]) -> HttpResponseBase:
    code, detail, remedy = demand
    body = error_document(code, detail, remedy, request_log.current_id())
    return JsonResponse(body, status=403)


class RepeatPost(HttpResponseRedirect):
    """307 redirect: the browser resends the original fields."""

    status_code = 307


@never_cache
@require_POST
def confirm(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    to = request.POST.get("to", "")
    if not _is_own_target(request, to):
        return redirect("signon:security")
    passkey = request.POST.get("again_passkey")
    form = form_for(user, None if passkey else request.POST)
    if not passkey and (not form.fields or not form.is_valid()):
        return render_form(request, form, to)
    # Counted for the session's owner; other users cannot use up the limit.
    who = (f"{user.username} (again)", network_of(client_address(request)), f"again-{user.pk}")
    if login_limits.count_attempt(*who):
        flow.record_refusal(request, user, "too many confirmations")
        flow.log_out(request)
        return redirect("signon:login")
    if not (_is_passkey_right(user, passkey) if passkey else _is_right(user, form)):
        flow.record_refusal(request, user, "confirmation")
        messages.error(request, "Invalid passkey, password or code. Try again.")
        return render_form(request, form, to)
    login_limits.forgive_attempt(*who)
    mark_confirmed(request)
    return RepeatPost(to)


def _is_right(user: User, form: ConfirmForm) -> bool:
    """Check password and second factor, as far as the user has them."""
    cleaned = form.cleaned_data
    if "again_password" in form.fields and not user.check_password(cleaned["again_password"]):
        return False
    return "again_code" not in form.fields or bool(factors.use_code(user, cleaned["again_code"]))


def _is_passkey_right(user: User, credential: str) -> bool:
    """Check a passkey, which verifies its owner by PIN or biometrics."""
    return bool(PasskeyConfirmForm({"credential": credential}, user=user).is_valid())


def _is_own_target(request: HttpRequest, to: str) -> bool:
    """Return whether the path needs confirmation; fields are forwarded nowhere else."""
    hosts = {request.get_host()}
    if not to.startswith("/") or not url_has_allowed_host_and_scheme(to, hosts):
        return False
    try:
        return needs_confirmation(resolve(to.partition("?")[0]).view_name)
    except Resolver404:
        return False
