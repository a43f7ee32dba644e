"""The profile (tokens) and the people page. Shape only: actions.py decides.

A page that may show a secret is `never_cache`, which keeps it out of every cache on the way.
"""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.accounts import actions, selectors
from console.accounts.forms import NewPersonForm, NewTokenForm
from console.accounts.models import ApiToken, Role, User
from console.accounts.permissions import role_required


@role_required("member")
@never_cache
@require_GET
def profile(request: HttpRequest) -> HttpResponse:
    return _profile(request)


@role_required("member")
@never_cache
@require_POST
def token_create(request: HttpRequest) -> HttpResponse:
    """Answers with the page itself, not a redirect: the clear text must be stored nowhere."""
    user = cast(User, request.user)
    form = NewTokenForm(user, request.POST)
    if form.is_valid():
        try:
            token, clear = actions.create_token(user, **form.cleaned_data)
        except ValidationError as error:
            _refuse(form, error)
        else:
            return _profile(request, new_token=token, clear=clear)
    return _profile(request, token_form=form, status=400)


@role_required("member")
@require_POST
def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    user = cast(User, request.user)
    token = get_object_or_404(ApiToken, pk=pk, user=user)
    actions.revoke_token(user, token)
    messages.success(request, f"Token “{token.name}” is revoked.")
    return redirect("accounts:profile")


def _profile(request: HttpRequest, status: int = 200, **context: Any) -> HttpResponse:
    user = cast(User, request.user)
    context.setdefault("token_form", NewTokenForm(user))
    context["tokens"] = selectors.tokens_of(user)
    return render(request, "console/profile.html", context, status=status)


@never_cache
@role_required("admin")
@require_http_methods(["GET", "POST"])
def people(request: HttpRequest) -> HttpResponse:
    """POST creates a person; the page that answers shows their password once."""
    form = NewPersonForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            user, password = actions.create_user(cast(User, request.user), **form.cleaned_data)
        except ValidationError as error:
            _refuse(form, error)
        else:
            return _people(request, NewPersonForm(), shown_user=user, password=password)
    return _people(request, form, status=400 if form.errors else 200)


@role_required("admin")
@require_POST
def person_role(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    role = request.POST.get("role", "")
    return _changed(
        request,
        lambda: actions.set_role(cast(User, request.user), person, role),
        f"{person.username} is now {role}.",
    )


@role_required("admin")
@require_POST
def person_active(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    active = request.POST.get("active") == "1"
    return _changed(
        request,
        lambda: actions.set_active(cast(User, request.user), person, active),
        f"{person.username} {'can log in again' if active else 'is logged out and cannot log in'}.",
    )


@never_cache
@role_required("admin")
@require_POST
def person_password(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    password = actions.reset_password(cast(User, request.user), person)
    return _people(request, NewPersonForm(), shown_user=person, password=password)


def _people(request: HttpRequest, form: Form, status: int = 200, **context: Any) -> HttpResponse:
    context |= {"form": form, "people": selectors.people(), "roles": Role.choices}
    return render(request, "console/people.html", context, status=status)


def _changed(request: HttpRequest, change: Any, done: str) -> HttpResponse:
    try:
        change()
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, done)
    return redirect("accounts:people")


def _refuse(form: Form, error: ValidationError) -> None:
    """Put the action's words beside the fields they name."""
    for name, texts in getattr(error, "message_dict", {None: error.messages}).items():
        for text in texts:
            form.add_error(name if name in form.fields else None, text)
