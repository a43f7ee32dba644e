"""Pages of silences: list, create, change, expire."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import allows, require
from console.core.errors import Refused
from dashboards.alerts.notify import alertmanagers, selectors, silences
from dashboards.alerts.notify.forms import ChangeSilenceForm, SilenceForm
from dashboards.alerts.notify.models import Silence
from dashboards.alerts.notify.protocol.matchers import Matcher

PAGE = 50
_LABELS = ("alertname", "endpoint", "severity", "worker", "pool")


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """List pending and active silences, or expired ones with `?expired=1`."""
    expired = request.GET.get("expired") == "1"
    there = alertmanagers.AlertmanagerSnapshot() if expired else _there(request)
    now = timezone.now()
    over = selectors.silences_in_state("expired", now)
    rows = selectors.silences(request.user).filter(over if expired else ~over)
    page = Paginator(rows, PAGE).get_page(request.GET.get("page"))
    shown = [
        {
            "silence": row,
            "state": row.state(now),
            "may_end": not expired and allows(request.user, "operator", of=row.endpoint),
        }
        for row in page.object_list
    ]
    context = {"page": page, "rows": shown, "expired": expired, "there": there}
    return render(request, "notify/silences.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator", somewhere=True)
def new(request: HttpRequest) -> HttpResponseBase:
    """Show the form, prefilled from `?alertname=...&endpoint=...` (the Silence button of an
    alert)."""
    if request.method != "POST":
        asked = [Matcher(one, "=", request.GET[one]) for one in _LABELS if request.GET.get(one)]
        form = SilenceForm(initial={"matchers": "\n".join(map(str, asked))})
        return render(request, "notify/silence_new.html", {"form": form})
    form = SilenceForm(request.POST)
    try:
        silences.create(request.user, form.given())
    except Refused as refused:
        form.refuse(refused)
        status = refused.status_code
        return render(request, "notify/silence_new.html", {"form": form}, status=status)
    messages.success(request, "These alerts are silenced: nobody is told of them.")
    return redirect("notify:silences")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator", somewhere=True)
def change(request: HttpRequest, silence: UUID) -> HttpResponseBase:
    row = _row(request, silence)
    require(request.user, "operator", of=row.endpoint)
    begun = row.starts_at <= timezone.now()
    form = ChangeSilenceForm(row, begun, request.POST if request.method == "POST" else None)
    status = 200
    if request.method == "POST":
        try:
            silences.change(request.user, row, form.given())
            messages.success(request, "The silence is changed.")
            return redirect("notify:silences")
        except Refused as refused:
            form.refuse(refused)
            status = refused.status_code
    context = {"form": form, "silence": row}
    return render(request, "notify/silence_new.html", context, status=status)


@require_POST
@role_required("operator", somewhere=True)
def expire(request: HttpRequest, silence: UUID) -> HttpResponseBase:
    row = _row(request, silence)
    try:
        silences.expire(request.user, row)
    except Refused as refused:
        messages.error(request, str(refused))
        return redirect("notify:silences")
    messages.success(request, "The silence is ended.")
    return redirect("notify:silences")


def _row(request: HttpRequest, silence: UUID) -> Silence:
    try:
        return selectors.silence(request.user, silence)
    except Refused as refused:
        raise Http404(str(refused)) from refused


def _there(request: HttpRequest) -> alertmanagers.AlertmanagerSnapshot:
    """Return the Alertmanagers' silences, for users with a role on the whole platform:
    Alertmanagers have no teams.
    """
    found = alertmanagers.take_snapshot(selectors.remote_ids())
    if found.ended:
        silences.follow_ends(found.ended)
    return found if allows(request.user, "viewer") else alertmanagers.AlertmanagerSnapshot()
