"""Pages of inference keys: of an endpoint (Access tab), of groups, and of all visible ones.

Pages with a secret are `never_cache`: it is in that one response only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import allows_in_any_team, require_in_any_team
from console.core.errors import Refused
from endpoints.keys import actions, selectors, storage, usage
from endpoints.keys.storage import NewKey
from endpoints.keys.terms import KeyTerms, period_of
from endpoints.keys.usage import KeyUse
from endpoints.models import InferenceKey, KeyGroup, KeyUsage
from endpoints.pages.head import find_endpoint
from endpoints.pages.keys.forms import GRACE, GroupForm, KeyForm
from endpoints.refusals import NotFoundError

SHOWN_DAYS = 30
PAGE = 50
_SOON = timedelta(days=7)
Page = Callable[..., HttpResponse]
"""Renders the page of the keys with a status and further context."""


@require_safe
def access(request: HttpRequest, name: str) -> HttpResponse:
    return _endpoint_page(request, name)


@never_cache
@require_POST
@role_required("operator")
def create(request: HttpRequest, name: str) -> HttpResponse:
    """Create a key and show its secret in this response only."""
    find_endpoint(name)
    page = partial(_endpoint_page, request, name)
    return _create(request, page, partial(actions.create, request.user, name))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def edit(request: HttpRequest, name: str, key_id: str) -> HttpResponseBase:
    endpoint = find_endpoint(name)
    return _edit(request, _key(endpoint.keys, key_id), name, {"endpoint": endpoint})


@never_cache
@require_POST
@role_required("operator")
def rotate(request: HttpRequest, name: str, key_id: str) -> HttpResponse:
    find_endpoint(name)
    return _rotate(request, key_id, name, partial(_endpoint_page, request, name))


@require_POST
@role_required("operator")
def revoke(request: HttpRequest, name: str, key_id: str) -> HttpResponseBase:
    find_endpoint(name)
    return _revoke(request, key_id, name, "endpoints:access")


# -- all keys and groups


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    return _index_page(request)


@require_POST
@role_required("operator", somewhere=True)
def create_group(request: HttpRequest) -> HttpResponseBase:
    return _save_group(request, None, partial(_index_page, request))


@require_http_methods(["GET", "HEAD", "POST"])
def group(request: HttpRequest, group_id: str) -> HttpResponseBase:
    if request.method == "POST":
        require_in_any_team(request.user, "operator")
    _group(request, group_id)
    page = partial(_group_page, request, group_id)
    return _save_group(request, group_id, page) if request.method == "POST" else page()


@require_POST
@role_required("operator", somewhere=True)
def delete_group(request: HttpRequest, group_id: str) -> HttpResponseBase:
    key_group = _group(request, group_id)
    if request.POST.get("name", "").strip() != key_group.name:
        messages.error(
            request,
            f"Name does not match: type {key_group.name} to delete the group. Nothing was deleted.",
        )
        return redirect("keys:group", group_id)
    try:
        actions.delete_group(request.user, group_id)
    except Refused as error:
        messages.error(request, str(error))
        return redirect("keys:group", group_id)
    messages.success(request, f"Group {key_group.name} and its keys were deleted.")
    return redirect("keys:index")


@never_cache
@require_POST
@role_required("operator", somewhere=True)
def create_in_group(request: HttpRequest, group_id: str) -> HttpResponse:
    _group(request, group_id)
    page = partial(_group_page, request, group_id)
    return _create(request, page, partial(actions.create_in_group, request.user, group_id))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator", somewhere=True)
def edit_in_group(request: HttpRequest, group_id: str, key_id: str) -> HttpResponseBase:
    key_group = _group(request, group_id)
    return _edit(request, _key(key_group.keys, key_id), group_id, {"group": key_group})


@never_cache
@require_POST
@role_required("operator", somewhere=True)
def rotate_in_group(request: HttpRequest, group_id: str, key_id: str) -> HttpResponse:
    _group(request, group_id)
    page = partial(_group_page, request, group_id)
    return _rotate(request, key_id, group_id, page)


@require_POST
@role_required("operator", somewhere=True)
def revoke_in_group(request: HttpRequest, group_id: str, key_id: str) -> HttpResponseBase:
    _group(request, group_id)
    return _revoke(request, key_id, group_id, "keys:group")


# -- shared helpers


def _endpoint_page(
    request: HttpRequest, name: str, *, status: int = 200, **more: Any
) -> HttpResponse:
    endpoint = find_endpoint(name)
    group_keys = list(selectors.keys_of_groups(endpoint)[: PAGE + 1])
    context = {
        "endpoint": endpoint,
        "status": endpoint.status,
        **_list_keys(request, selectors.valid_keys(endpoint), endpoint.name),
        "group_rows": key_rows(group_keys[:PAGE], endpoint.name),
        "more_group_keys": len(group_keys) > PAGE,
        "days": SHOWN_DAYS,
        "key_form": KeyForm(),
        "key_file": storage.file_to_show(endpoint.name),
        **more,
    }
    return render(request, "endpoints/access.html", context, status=status)


def _index_page(request: HttpRequest, *, status: int = 200, **more: Any) -> HttpResponse:
    context = {
        **_list_keys(request, selectors.visible_keys(request.user)),
        "groups": list(selectors.groups(request.user)),
        "days": SHOWN_DAYS,
        "group_form": GroupForm(None, selectors.changeable_names(request.user)),
        "may_make_groups": allows_in_any_team(request.user, "operator"),
        **more,
    }
    return render(request, "endpoints/keys.html", context, status=status)


def _group_page(
    request: HttpRequest, group_id: str, *, status: int = 200, **more: Any
) -> HttpResponse:
    key_group = _group(request, group_id)
    context = {
        "group": key_group,
        **_list_keys(request, selectors.keys_of_group(key_group)),
        "days": SHOWN_DAYS,
        "key_form": KeyForm(),
        "group_form": GroupForm(None, selectors.changeable_names(request.user), key_group),
        "may_operate": selectors.may_change(request.user, key_group),
        **more,
    }
    return render(request, "endpoints/key_group.html", context, status=status)


def _group(request: HttpRequest, group_id: str) -> KeyGroup:
    key_group = selectors.groups(request.user).filter(pk=group_id).first()
    if key_group is None:
        raise Http404("Key group not found.")
    return key_group


def _key(of: Any, key_id: str) -> InferenceKey:
    key: InferenceKey | None = of.filter(pk=key_id, revoked_at__isnull=True).first()
    if key is None:
        raise Http404("Key not found.")
    return key


def _save_group(request: HttpRequest, group_id: str | None, page: Page) -> HttpResponseBase:
    form = GroupForm(request.POST, selectors.changeable_names(request.user))
    try:
        made = actions.save_group(request.user, group_id, form.typed())
    except Refused as error:
        form.refuse(error.errors)
        return page(status=400, group_form=form)
    if group_id is None:
        messages.success(request, f"Group {made.name} created. Create its first key.")
    else:
        messages.success(request, "Group saved. Routers apply it within seconds.")
    return redirect("keys:group", made.pk)


def _create(request: HttpRequest, page: Page, make: Callable[..., NewKey]) -> HttpResponse:
    form = KeyForm(request.POST)
    try:
        made = make(form.typed())
    except Refused as error:
        form.refuse(error.errors)
        return page(status=400, key_form=form)
    return page(new_key=made.clear)


def _edit(
    request: HttpRequest, key: InferenceKey, within: str, whose: dict[str, Any]
) -> HttpResponseBase:
    """`whose`: the endpoint or the group, as named in the template."""
    space, page = ("endpoints", "access") if "endpoint" in whose else ("keys", "group")
    back = reverse(f"{space}:{page}", args=[within])
    form = KeyForm(request.POST if request.method == "POST" else None, key.allowed)
    status = 200
    if request.method == "POST":
        try:
            actions.change(request.user, str(key.pk), form.typed(), within=within)
        except Refused as error:
            form.refuse(error.errors)
            status = error.status_code
        else:
            messages.success(request, f"{key.name} saved. Routers apply it within seconds.")
            return redirect(back)
    urls = {
        verb: reverse(f"{space}:key-{verb}", args=[within, key.pk])
        for verb in ("edit", "rotate", "revoke")
    }
    context = {**whose, **urls, "key": key, "form": form, "back": back, "graces": GRACE}
    return render(request, "endpoints/key_edit.html", context, status=status)


def _rotate(request: HttpRequest, key_id: str, within: str, page: Page) -> HttpResponse:
    try:
        data = {"grace_s": request.POST.get("grace_s", "")}
        made = actions.rotate(request.user, key_id, data, within=within)
    except NotFoundError as error:
        raise Http404(str(error)) from None
    except Refused as error:
        return page(status=400, new_key="", refused=str(error))
    return page(new_key=made.clear, refused="")


def _revoke(request: HttpRequest, key_id: str, within: str, back: str) -> HttpResponseBase:
    try:
        key = actions.revoke(request.user, key_id, within=within)
    except NotFoundError as error:
        raise Http404(str(error)) from None
    except Refused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Key {key.name} revoked. Routers reject it within seconds.")
    return redirect(back, within)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """Row of the keys page. `used`: over the last `SHOWN_DAYS` days. `spent`: tokens used of the
    present budget period and their share; None without a budget.
    """

    key: InferenceKey
    terms: KeyTerms
    used: KeyUse
    expired: bool
    ends_soon: bool
    own: bool
    limits: tuple[str, ...]
    spent: int | None
    share: float | None


def _list_keys(
    request: HttpRequest, keys: QuerySet[InferenceKey], endpoint: str = ""
) -> dict[str, Any]:
    """Return the context of a table: one page of the keys whose name contains `q`."""
    name = request.GET.get("q", "").strip()
    page = Paginator(keys.filter(name__icontains=name), PAGE).get_page(request.GET.get("page"))
    return {"page": page, "rows": key_rows(page.object_list, endpoint), "q": name}


def key_rows(keys: Iterable[InferenceKey], endpoint: str = "") -> list[KeyRow]:
    """Return the rows in one query plus one per key with a budget. `endpoint` limits the usage."""
    now, ids = timezone.now(), {selectors.key_id(key): key for key in keys}
    recent = usage.usage_since(now - timedelta(days=SHOWN_DAYS)).filter(key_id__in=ids)
    by_key = usage.usage_by_key(recent.filter(endpoint_name=endpoint) if endpoint else recent)
    return [_row(key, by_key.get(key_id, KeyUse()), now) for key_id, key in ids.items()]


def _row(key: InferenceKey, used: KeyUse, now: datetime) -> KeyRow:
    terms = key.allowed
    spent = share = None
    if terms.budget_tokens:
        begin, _ = period_of(now, terms.budget_period)
        of_period = KeyUsage.objects.filter(key_id=str(key.pk), hour__gte=begin)
        spent = usage.used(of_period).tokens
        share = min(100.0, 100 * spent / terms.budget_tokens)
    end = terms.expires_at
    return KeyRow(
        key=key,
        terms=terms,
        used=used,
        expired=terms.expired(now),
        ends_soon=end is not None and now < end < now + _SOON,
        own=key.endpoint_id is not None and key.name == storage.CONSOLE,
        limits=tuple(_describe_terms(terms)),
        spent=spent,
        share=share,
    )


def _describe_terms(terms: KeyTerms) -> Iterable[str]:
    if terms.requests_per_minute:
        yield f"{terms.requests_per_minute:,} requests/min"
    if terms.tokens_per_minute:
        yield f"{terms.tokens_per_minute:,} tokens/min"
    if terms.max_in_flight:
        yield f"{terms.max_in_flight:,} concurrent"
    if terms.weight != 1:
        yield f"weight {terms.weight:g}"
