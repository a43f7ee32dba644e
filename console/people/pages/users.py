"""User pages: list, create, change roles and deactivate through actions.

Pages that may show a secret are `never_cache`, which keeps it out of intermediate caches.
"""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts import selectors
from console.accounts.gate import role_required
from console.accounts.models import Role, User
from console.accounts.permissions import allows
from console.people import actions
from console.people.forms import NewPersonForm, add_errors

PAGE = 50
_STATES = {True: "activated", False: "deactivated: all sessions ended, API tokens revoked"}
FILTERS = ("q", "role", "team", "state")


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def people(request: HttpRequest) -> HttpResponseBase:
    """List users; POST creates one and shows its password once. Non-admins go to their teams."""
    if request.method != "POST" and not allows(request.user, "admin"):
        return redirect("accounts:teams")
    return _create_or_show(request)


@role_required("admin")
def _create_or_show(request: HttpRequest) -> HttpResponse:
    form = NewPersonForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            user, password = actions.create_user(cast(User, request.user), **form.cleaned_data)
        except ValidationError as error:
            add_errors(form, error)
        else:
            return _people(request, NewPersonForm(), shown_user=user, password=password)
    return _people(request, form, status=400 if form.errors else 200)


@role_required("admin")
@require_POST
def person_role(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    role = request.POST.get("role", "")
    return _redirect_changed(
        request,
        lambda: actions.set_role(cast(User, request.user), person, role),
        f"{person.username} now has the role {role}.",
    )


@role_required("admin")
@require_POST
def person_active(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    active = request.POST.get("active") == "1"
    return _redirect_changed(
        request,
        lambda: actions.set_active(cast(User, request.user), person, active),
        f"{person.username} {_STATES[active]}.",
    )


@never_cache
@role_required("admin")
@require_POST
def person_password(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    password, ended = actions.reset_password(cast(User, request.user), person)
    return _people(request, NewPersonForm(), shown_user=person, password=password, ended=ended)


def _people(request: HttpRequest, form: Form, status: int = 200, **context: Any) -> HttpResponse:
    filters = {name: request.GET.get(name, "").strip() for name in FILTERS}
    users = selectors.list_users(
        search=filters["q"], role=filters["role"], team=filters["team"], state=filters["state"]
    )
    context |= {
        "form": form,
        "page": Paginator(users, PAGE).get_page(request.GET.get("page")),
        "roles": Role.choices,
        "teams": selectors.list_teams_with_role(None),
        "wanted": filters,
        "filtered": any(filters.values()),
    }
    return render(request, "console/access/people.html", context, status=status)


def _redirect_changed(request: HttpRequest, change: Any, done: str) -> HttpResponse:
    try:
        change()
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, done)
    return redirect("accounts:people")
