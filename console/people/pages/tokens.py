"""Profile page with API tokens, through token_actions.

Pages that may show a secret are `never_cache`, which keeps it out of intermediate caches.
"""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST, require_safe

from console.accounts import selectors
from console.accounts.gate import role_required
from console.accounts.models import ApiToken, User
from console.people import token_actions
from console.people.forms import NewTokenForm, add_errors


@role_required("member")
@never_cache
@require_GET
def profile(request: HttpRequest) -> HttpResponse:
    return _profile(request)


@role_required("member")
@never_cache
@require_POST
def token_create(request: HttpRequest) -> HttpResponse:
    """Render the page instead of redirecting: the clear text must not be stored."""
    user = cast(User, request.user)
    form = NewTokenForm(user, request.POST)
    if form.is_valid():
        try:
            token, clear = token_actions.create_token(user, **form.cleaned_data)
        except ValidationError as error:
            add_errors(form, error)
        else:
            return _profile(request, new_token=token, clear=clear)
    return _profile(request, token_form=form, status=400)


@role_required("member")
@require_POST
def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    user = cast(User, request.user)
    token = get_object_or_404(ApiToken, pk=pk, user=user)
    token_actions.revoke_token(user, token)
    messages.success(request, f"Token “{token.name}” revoked.")
    return redirect("accounts:profile")


def _profile(request: HttpRequest, status: int = 200, **context: Any) -> HttpResponse:
    user = cast(User, request.user)
    context.setdefault("token_form", NewTokenForm(user))
    context["tokens"] = selectors.list_tokens_of(user)
    return render(request, "console/profile.html", context, status=status)


PAGE = 50


@role_required("admin")
@require_safe
def tokens(request: HttpRequest) -> HttpResponse:
    filters = {name: request.GET.get(name, "").strip() for name in ("q", "state")}
    all_tokens = selectors.list_all_tokens(search=filters["q"], state=filters["state"])
    context = {
        "page": Paginator(all_tokens, PAGE).get_page(request.GET.get("page")),
        "wanted": filters,
        "states": selectors.TOKEN_STATES,
        "filtered": any(filters.values()),
    }
    return render(request, "console/access/tokens.html", context)


@role_required("admin")
@require_POST
def revoke(request: HttpRequest, pk: int) -> HttpResponseBase:
    token = get_object_or_404(ApiToken.objects.select_related("user"), pk=pk)
    token_actions.revoke_token(cast(User, request.user), token)
    messages.success(request, f"Token “{token.name}” of {token.user} revoked.")
    return redirect("accounts:tokens")
