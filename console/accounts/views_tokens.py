"""Everybody's API tokens, for admins: whose, how much, how long, and when they were last used."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from console.accounts import selectors
from console.accounts.models import ApiToken, User
from console.accounts.permissions import role_required
from console.people import token_actions

PAGE = 50


@role_required("admin")
@require_safe
def tokens(request: HttpRequest) -> HttpResponse:
    wanted = {name: request.GET.get(name, "").strip() for name in ("q", "state")}
    found = selectors.all_tokens(search=wanted["q"], state=wanted["state"])
    context = {
        "page": Paginator(found, PAGE).get_page(request.GET.get("page")),
        "wanted": wanted,
        "states": selectors.TOKEN_STATES,
        "filtered": any(wanted.values()),
    }
    return render(request, "console/access/tokens.html", context)


@role_required("admin")
@require_POST
def revoke(request: HttpRequest, pk: int) -> HttpResponseBase:
    token = get_object_or_404(ApiToken.objects.select_related("user"), pk=pk)
    token_actions.revoke_token(cast(User, request.user), token)
    messages.success(request, f"Token “{token.name}” of {token.user} is revoked.")
    return redirect("accounts:tokens")
