"""What an admin does for somebody who cannot get in, and against somebody who should not be in."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from console.accounts.models import User
from console.accounts.permissions import role_required
from console.audit.record import record
from console.signon import flow, totp


@role_required("admin")
@require_POST
def factor_reset(request: HttpRequest, pk: int) -> HttpResponse:
    """The person's sessions end with it: whoever took the telephone may have one."""
    person = get_object_or_404(User, pk=pk)
    if totp.turn_off(cast(User, request.user), person):
        flow.end_sessions(person)
        text = f"{person.username} logs in with the password alone now. Sessions are ended; API"
        messages.success(request, f"{text} tokens keep working.")
    else:
        messages.info(request, f"{person.username} has no second factor.")
    return redirect("accounts:people")


@role_required("admin")
@require_POST
def sessions_end(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    ended = flow.end_sessions(person)
    record(cast(User, request.user), "user.session.end", flow.target(person), {"all": ended})
    text = f"{person.username} is logged out everywhere. Their API tokens keep working."
    messages.success(request, text)
    return redirect("accounts:people")
