"""Handle the form of `signon.confirmation`."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import Resolver404, resolve
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from console.accounts.models import User
from console.signon import confirmation, flow, login_limits, totp
from console.signon.pages.forms import ConfirmForm
from console.web.server.client_address import client_address, network_of


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
    form = confirmation.form_for(user, request.POST)
    if not form.fields or not form.is_valid():
        return confirmation.render_form(request, form, to)
    # Counted for the session's owner; other users cannot use up the limit.
    who = (f"{user.username} (again)", network_of(client_address(request)), f"again-{user.pk}")
    if login_limits.count_attempt(*who):
        flow.record_refusal(request, user, "too many confirmations")
        flow.log_out(request)
        return redirect("signon:login")
    if not _is_right(user, form):
        flow.record_refusal(request, user, "confirmation")
        form.add_error(None, "This is not right. Try again.")
        return confirmation.render_form(request, form, to)
    login_limits.forgive_attempt(*who)
    confirmation.mark_confirmed(request)
    return RepeatPost(to)


def _is_right(user: User, form: ConfirmForm) -> bool:
    """Check password and second factor, as far as the user has them."""
    given = form.cleaned_data
    if "again_password" in form.fields and not user.check_password(given["again_password"]):
        return False
    return "again_code" not in form.fields or bool(totp.use_code(user, given["again_code"]))


def _is_own_target(request: HttpRequest, to: str) -> bool:
    """Return whether the path needs confirmation; fields are forwarded nowhere else."""
    hosts = {request.get_host()}
    if not to.startswith("/") or not url_has_allowed_host_and_scheme(to, hosts):
        return False
    try:
        return confirmation.needs_confirmation(resolve(to.partition("?")[0]).view_name)
    except Resolver404:
        return False
