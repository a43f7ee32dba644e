"""Pages of receivers, routes and deliveries, for users with a role on the whole platform.

Deliveries about an endpoint are visible to everyone who may see the endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from dashboards.alerts.notify import receivers, routes, selectors
from dashboards.alerts.notify.forms import ReceiverForm, RouteForm
from dashboards.alerts.notify.health import notification_status
from dashboards.alerts.notify.models import DeliveryState, ReceiverKind

PAGE = 50
Found = TypeVar("Found")


@never_cache
@require_safe
@role_required("viewer")
def index(request: HttpRequest) -> HttpResponse:
    rows = [
        {
            "receiver": one,
            "routes": [{"route": route, **routes.facts(route)} for route in one.routes.all()],
            "last": last,
        }
        for one, last in selectors.receivers_with_latest()
    ]
    context = {"rows": rows, "standing": notification_status(), "kinds": ReceiverKind.choices}
    return render(request, "notify/receivers.html", context)


@require_safe
@role_required("viewer")
def as_yml(_request: HttpRequest) -> HttpResponse:
    return _file("alertmanager.yml", selectors.alertmanager_export().yml())


@require_safe
@role_required("viewer")
def as_object(_request: HttpRequest) -> HttpResponse:
    return _file("emberline-alertmanagerconfig.yml", selectors.alertmanager_export().object())


def _file(name: str, text: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="application/yaml", headers=headers)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def new(request: HttpRequest) -> HttpResponseBase:
    """Show the form of the receiver kind in `?kind=`."""
    kind = request.GET.get("kind", "")
    kind = kind if kind in ReceiverKind.values else ReceiverKind.WEBHOOK
    form = ReceiverForm(kind, request.POST if request.method == "POST" else None)
    context = {"form": form, "kind": ReceiverKind(kind)}
    if request.method == "POST":
        try:
            made = receivers.create(request.user, form.given())
        except Refused as refused:
            form.refuse(refused)
            return render(request, "notify/receiver.html", context, status=refused.status_code)
        messages.success(request, f"{made.name} is added. Send it a test.")
        return redirect(made)
    return render(request, "notify/receiver.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def receiver(request: HttpRequest, name: str) -> HttpResponseBase:
    one = _found(lambda: selectors.receiver(name))
    posted = request.POST if request.method == "POST" else None
    form = ReceiverForm(one.kind, posted, known=one)
    sent = selectors.deliveries(request.user).filter(receiver=one)[:10]
    context = {"form": form, "kind": ReceiverKind(one.kind), "receiver": one, "deliveries": sent}
    if request.method == "POST":
        try:
            receivers.change(request.user, name, form.given())
        except Refused as refused:
            form.refuse(refused)
            return render(request, "notify/receiver.html", context, status=refused.status_code)
        messages.success(request, f"{name} is saved.")
        return redirect("notify:receivers")
    return render(request, "notify/receiver.html", context)


@require_POST
@role_required("admin")
def try_out(request: HttpRequest, name: str) -> HttpResponseBase:
    sent = _found(lambda: receivers.send_test(request.user, name))
    if sent.state == DeliveryState.SENT:
        messages.success(request, f"{name} has taken the test.")
    else:
        messages.error(request, f"The test did not reach {name}. {sent.error}")
    return redirect("notify:receiver", name=name)


@require_POST
@role_required("admin")
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
    _found(lambda: receivers.delete(request.user, name))
    messages.success(request, f"{name} is removed: it is told of nothing more.")
    return redirect("notify:receivers")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def route_new(request: HttpRequest) -> HttpResponseBase:
    names = list(selectors.receivers().values_list("name", flat=True))
    form = RouteForm(
        names, request.POST if request.method == "POST" else None, initial=_asked(request)
    )
    if request.method == "POST":
        try:
            routes.create(request.user, form.given())
        except Refused as refused:
            form.refuse(refused)
            return _route_form(request, form, None, refused.status_code)
        messages.success(request, "The route is added.")
        return redirect("notify:receivers")
    return _route_form(request, form, None)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def route(request: HttpRequest, route: UUID) -> HttpResponseBase:
    one = _found(lambda: selectors.route(route))
    names = list(selectors.receivers().values_list("name", flat=True))
    facts = routes.facts(one)
    lines = {"matchers": "\n".join(facts["matchers"]), "group_by": ", ".join(facts["group_by"])}
    form = RouteForm(
        names, request.POST if request.method == "POST" else None, initial={**facts, **lines}
    )
    if request.method == "POST":
        try:
            routes.change(request.user, route, form.given())
        except Refused as refused:
            form.refuse(refused)
            return _route_form(request, form, one, refused.status_code)
        messages.success(request, "The route is saved.")
        return redirect("notify:receivers")
    return _route_form(request, form, one)


@require_POST
@role_required("admin")
def route_remove(request: HttpRequest, route: UUID) -> HttpResponseBase:
    _found(lambda: routes.delete(request.user, route))
    messages.success(request, "The route is removed.")
    return redirect("notify:receivers")


@never_cache
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """List deliveries, filtered by `?state=`."""
    state = request.GET.get("state", "")
    rows = selectors.deliveries(request.user).defer("body")
    if state in DeliveryState.values:
        rows = rows.filter(state=state)
    page = Paginator(rows, PAGE).get_page(request.GET.get("page"))
    context = {"page": page, "state": state, "states": DeliveryState.choices}
    return render(request, "notify/history.html", context)


@require_safe
def delivery(request: HttpRequest, delivery: UUID) -> HttpResponse:
    one = _found(lambda: selectors.delivery(request.user, delivery))
    text = json.dumps(one.body, indent=2, ensure_ascii=False)
    return render(
        request, "notify/delivery.html", {"delivery": one, "delivery_rows": [one], "body": text}
    )


def _asked(request: HttpRequest) -> dict[str, Any]:
    return {"receiver": request.GET["receiver"]} if request.GET.get("receiver") else {}


def _route_form(request: HttpRequest, form: RouteForm, one: Any, status: int = 200) -> HttpResponse:
    context = {"form": form, "route": one}
    return render(request, "notify/route.html", context, status=status)


def _found(find: Callable[[], Found]) -> Found:
    try:
        return find()
    except Refused as refused:
        raise Http404(str(refused)) from refused
