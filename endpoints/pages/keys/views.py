"""Pages of inference keys: of an endpoint (Access tab), of groups, and of all visible ones.

Pages with a secret are `never_cache`: it is in that one response only.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import allows_in_any_team, require_in_any_team
from endpoints.keys import actions, selectors, storage
from endpoints.models import InferenceKey, KeyGroup
from endpoints.pages.head import find_endpoint
from endpoints.pages.keys import table
from endpoints.pages.keys.forms import GRACE, GroupForm, KeyForm
from endpoints.refusals import NotFoundError, RefusalError
from endpoints.spec.endpoint_spec import SpecErrors

REFUSED = (SpecErrors, RefusalError)


@require_safe
def access(request: HttpRequest, name: str) -> HttpResponse:
    return render(request, "endpoints/access.html", _of_endpoint(name))


@never_cache
@require_POST
@role_required("operator")
def create(request: HttpRequest, name: str) -> HttpResponse:
    """Create a key and show its secret in this response only."""
    find_endpoint(name)
    form = KeyForm(request.POST)
    try:
        made = actions.create(request.user, name, request.POST.get("name", ""), form.answer())
    except REFUSED as error:
        form.refuse(error.errors)
        context = _of_endpoint(name, key_form=form)
        return render(request, "endpoints/access.html", context, status=400)
    return render(request, "endpoints/access.html", _of_endpoint(name, new_key=made.clear))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def edit(request: HttpRequest, name: str, key_id: str) -> HttpResponseBase:
    endpoint = find_endpoint(name)
    key = _key(endpoint.keys, key_id)
    back = reverse("endpoints:access", args=[name])
    urls = _urls("endpoints", name, key)
    return _edit(request, key, name, back, {"endpoint": endpoint, **urls})


@never_cache
@require_POST
@role_required("operator")
def rotate(request: HttpRequest, name: str, key_id: str) -> HttpResponse:
    find_endpoint(name)
    made, refused = _rotate(request, key_id, name)
    context = _of_endpoint(name, new_key=made, refused=refused)
    return render(request, "endpoints/access.html", context, status=400 if refused else 200)


@require_POST
@role_required("operator")
def revoke(request: HttpRequest, name: str, key_id: str) -> HttpResponseBase:
    find_endpoint(name)
    _revoke(request, key_id, name)
    return redirect("endpoints:access", name)


# -- all keys and groups


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    return render(request, "endpoints/keys.html", _index_context(request))


@require_POST
@role_required("operator", somewhere=True)
def create_group(request: HttpRequest) -> HttpResponseBase:
    form = GroupForm(request.POST, _changeable_names(request))
    try:
        made = actions.save_group(
            request.user,
            None,
            request.POST.get("name", ""),
            request.POST.getlist("endpoints"),
            request.POST.get("description", ""),
        )
    except REFUSED as error:
        form.refuse(error.errors)
        context = _index_context(request, group_form=form)
        return render(request, "endpoints/keys.html", context, status=400)
    messages.success(request, f"The group {made.name} is there. Make its first key.")
    return redirect("keys:group", made.pk)


@require_http_methods(["GET", "HEAD", "POST"])
def group(request: HttpRequest, group_id: str) -> HttpResponseBase:
    if request.method == "POST":
        require_in_any_team(request.user, "operator")
    one = _group(request, group_id)
    if request.method != "POST":
        return render(request, "endpoints/key_group.html", _of_group(request, one))
    form = GroupForm(request.POST, _changeable_names(request))
    try:
        actions.save_group(
            request.user,
            group_id,
            request.POST.get("name", ""),
            request.POST.getlist("endpoints"),
            request.POST.get("description", ""),
        )
    except REFUSED as error:
        form.refuse(error.errors)
        context = _of_group(request, one, group_form=form)
        return render(request, "endpoints/key_group.html", context, status=400)
    messages.success(request, "The group is changed; routers follow within seconds.")
    return redirect("keys:group", group_id)


@require_POST
@role_required("operator", somewhere=True)
def delete_group(request: HttpRequest, group_id: str) -> HttpResponseBase:
    one = _group(request, group_id)
    if request.POST.get("name", "").strip() != one.name:
        messages.error(request, f"Type {one.name} to delete the group. Nothing was deleted.")
        return redirect("keys:group", group_id)
    try:
        actions.delete_group(request.user, group_id)
    except REFUSED as error:
        messages.error(request, str(error))
        return redirect("keys:group", group_id)
    messages.success(request, f"The group {one.name} and its keys are gone.")
    return redirect("keys:index")


@never_cache
@require_POST
@role_required("operator", somewhere=True)
def create_in_group(request: HttpRequest, group_id: str) -> HttpResponse:
    one = _group(request, group_id)
    form = KeyForm(request.POST)
    try:
        label = request.POST.get("name", "")
        made = actions.create_in_group(request.user, group_id, label, form.answer())
    except REFUSED as error:
        form.refuse(error.errors)
        context = _of_group(request, one, key_form=form)
        return render(request, "endpoints/key_group.html", context, status=400)
    context = _of_group(request, _group(request, group_id), new_key=made.clear)
    return render(request, "endpoints/key_group.html", context)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator", somewhere=True)
def edit_in_group(request: HttpRequest, group_id: str, key_id: str) -> HttpResponseBase:
    one = _group(request, group_id)
    key = _key(one.keys, key_id)
    back = reverse("keys:group", args=[group_id])
    return _edit(request, key, group_id, back, {"group": one, **_urls("keys", group_id, key)})


@never_cache
@require_POST
@role_required("operator", somewhere=True)
def rotate_in_group(request: HttpRequest, group_id: str, key_id: str) -> HttpResponse:
    one = _group(request, group_id)
    made, refused = _rotate(request, key_id, group_id)
    context = _of_group(request, one, new_key=made, refused=refused)
    return render(request, "endpoints/key_group.html", context, status=400 if refused else 200)


@require_POST
@role_required("operator", somewhere=True)
def revoke_in_group(request: HttpRequest, group_id: str, key_id: str) -> HttpResponseBase:
    _group(request, group_id)
    _revoke(request, key_id, group_id)
    return redirect("keys:group", group_id)


# -- shared helpers


def _of_endpoint(name: str, **more: Any) -> dict[str, Any]:
    endpoint = find_endpoint(name)
    in_groups = selectors.keys_of_groups(endpoint)
    return {
        "endpoint": endpoint,
        "status": endpoint.status,
        "rows": table.key_rows(selectors.valid_keys(endpoint), endpoint.name),
        "group_rows": table.key_rows(in_groups, endpoint.name),
        "days": table.SHOWN_DAYS,
        "key_form": KeyForm(),
        "key_file": storage.file_to_show(endpoint.name),
        **more,
    }


def _index_context(request: HttpRequest, **more: Any) -> dict[str, Any]:
    return {
        "rows": table.key_rows(selectors.visible_keys(request.user)),
        "groups": list(selectors.groups(request.user)),
        "days": table.SHOWN_DAYS,
        "group_form": GroupForm(None, _changeable_names(request)),
        "may_make_groups": allows_in_any_team(request.user, "operator"),
        **more,
    }


def _of_group(request: HttpRequest, one: KeyGroup, **more: Any) -> dict[str, Any]:
    return {
        "group": one,
        "rows": table.key_rows(selectors.keys_of_group(one)),
        "days": table.SHOWN_DAYS,
        "key_form": KeyForm(),
        "group_form": GroupForm(None, _changeable_names(request), one),
        "may_operate": selectors.may_change(request.user, one),
        **more,
    }


def _changeable_names(request: HttpRequest) -> list[str]:
    return selectors.changeable_names(request.user)


def _group(request: HttpRequest, group_id: str) -> KeyGroup:
    one = selectors.groups(request.user).filter(pk=group_id).first()
    if one is None:
        raise Http404("There is no such group of keys.")
    return one


def _key(of: Any, key_id: str) -> InferenceKey:
    key: InferenceKey | None = of.filter(pk=key_id, revoked_at__isnull=True).first()
    if key is None:
        raise Http404("There is no such key.")
    return key


def _urls(space: str, whose: str, key: InferenceKey) -> dict[str, str]:
    return {
        verb: reverse(f"{space}:key-{verb}", args=[whose, key.pk])
        for verb in ("edit", "rotate", "revoke")
    }


def _edit(
    request: HttpRequest, key: InferenceKey, within: str, back: str, context: dict[str, Any]
) -> HttpResponseBase:
    form = KeyForm(request.POST if request.method == "POST" else None, key.allowed)
    status = 200
    if request.method == "POST":
        try:
            data = form.answer()
            actions.change(request.user, str(key.pk), data, within=within)
        except REFUSED as error:
            form.refuse(error.errors)
            status = getattr(error, "status_code", 400)
        else:
            messages.success(request, f"{key.name} is changed; routers follow within seconds.")
            return redirect(back)
    page = {**context, "key": key, "form": form, "back": back, "graces": GRACE}
    return render(request, "endpoints/key_edit.html", page, status=status)


def _rotate(request: HttpRequest, key_id: str, within: str) -> tuple[str, str]:
    """Return the new secret, and the error if there is none."""
    typed = request.POST.get("grace_s", "")
    grace: Any = int(typed) if typed in dict(GRACE) else typed
    try:
        return actions.rotate(request.user, key_id, grace, within=within).clear, ""
    except NotFoundError as error:
        raise Http404(str(error)) from None
    except REFUSED as error:
        return "", str(error)


def _revoke(request: HttpRequest, key_id: str, within: str) -> None:
    try:
        key = actions.revoke(request.user, key_id, within=within)
    except NotFoundError as error:
        raise Http404(str(error)) from None
    except REFUSED as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"The key {key.name} is revoked; routers refuse it now.")
