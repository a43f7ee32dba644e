"""Pages of silences and acknowledgements: list, create, change, expire."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import allows, require
from console.core.errors import Refused
from console.web.serializer_form import SerializerForm
from dashboards.alerts.alertmanager import silences
from dashboards.alerts.alertmanager.config.matchers import Matcher
from dashboards.alerts.alertmanager.forms import ChangeSilenceForm, SilenceForm
from dashboards.alerts.alertmanager.silence_fields import AcknowledgementFields
from dashboards.alerts.alertmanager.silences import Silence
from dashboards.alerts.page_forms import (
    GET_OR_POST,
    back_or,
    done,
    find_or_404,
    posted,
    save_or_show,
)
from dashboards.alerts.settings import selectors as rule_settings
from endpoints import selectors as endpoints

PAGE = 50
_FORM = "notify/silence_new.html"
_LABELS = ("alertname", "endpoint", "severity", "worker", "pool")


@never_cache
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """List pending and active silences, or expired ones with `?expired=1`."""
    expired = request.GET.get("expired") == "1"
    listed = silences.list_silences(request.user)
    rows = [row for row in listed.rows if (row.state == "expired") is expired]
    page = Paginator(rows, PAGE).get_page(request.GET.get("page"))
    mine = frozenset(rule_settings.changeable_endpoints(request.user))
    context = {
        "page": page,
        "rows": [
            {"silence": row, "may_end": not expired and _may_end(request.user, row, mine)}
            for row in page.object_list
        ],
        "expired": expired,
        "faults": listed.faults,
    }
    return render(request, "notify/silences.html", context)


@require_http_methods(GET_OR_POST)
@role_required("operator", somewhere=True)
def new(request: HttpRequest) -> HttpResponseBase:
    """Show the form, prefilled from `?alertname=...&endpoint=...` (the Silence button of an
    alert)."""
    matchers = [
        Matcher(label, "=", request.GET[label]) for label in _LABELS if request.GET.get(label)
    ]
    form = SilenceForm(posted(request), {"matchers": list(map(str, matchers))})

    def save() -> HttpResponse:
        silences.create(request.user, form.typed())
        return done(request, "Silence created. Notifications are suppressed.", "notify:silences")

    return save_or_show(request, form, save, _FORM, {})


@require_http_methods(GET_OR_POST)
@role_required("operator", somewhere=True)
def acknowledge(request: HttpRequest) -> HttpResponseBase:
    """Show the form, prefilled from `?alert=...&endpoint=...`, or acknowledge the alert."""
    prefilled = {name: request.GET.get(name, "") for name in ("alert", "endpoint")}
    names = ("alert", "endpoint", "note")
    form = SerializerForm(AcknowledgementFields(), posted(request), prefilled, names)

    def save() -> HttpResponse:
        silences.acknowledge(request.user, form.typed())
        text = "is acknowledged. Repeat notifications stop until it is resolved."
        messages.success(request, f"{form.typed()['alert']} {text}")
        return back_or(request, "alerting:firing")

    return save_or_show(request, form, save, "notify/acknowledge.html", {})


@require_http_methods(GET_OR_POST)
@role_required("operator", somewhere=True)
def change(request: HttpRequest, silence: str) -> HttpResponseBase:
    row = find_or_404(lambda: silences.get(request.user, silence))
    endpoint = endpoints.endpoints().filter(name=row.endpoint).first() if row.endpoint else None
    require(request.user, "operator", of=endpoint)
    begun = row.starts_at <= timezone.now()
    form = ChangeSilenceForm(row, begun, posted(request))

    def save() -> HttpResponse:
        silences.change(request.user, row, form.typed())
        return done(request, "Silence changed.", "notify:silences")

    return save_or_show(request, form, save, _FORM, {"silence": row})


@require_POST
@role_required("operator", somewhere=True)
def expire(request: HttpRequest, silence: str) -> HttpResponseBase:
    row = find_or_404(lambda: silences.get(request.user, silence))
    try:
        silences.expire(request.user, row)
    except Refused as refused:
        messages.error(request, str(refused))
        return back_or(request, "notify:silences")
    text = "Silence ended. Notifications resume."
    if row.acknowledges:
        text = "Acknowledgement undone. Repeat notifications resume."
    messages.success(request, text)
    return back_or(request, "notify:silences")


def _may_end(viewer: Any, row: Silence, mine: frozenset[str]) -> bool:
    return row.endpoint in mine or allows(viewer, "operator")
