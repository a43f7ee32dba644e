"""Pages of receivers, routes and deliveries, for users with a role on the whole platform.

Deliveries about an endpoint are visible to everyone who may see the endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from dashboards.alerts.notify import receivers, routes, selectors
from dashboards.alerts.notify.forms import ReceiverForm, RouteForm
from dashboards.alerts.notify.health import notification_status
from dashboards.alerts.notify.models import DeliveryState, ReceiverKind
from dashboards.alerts.page_forms import (
    GET_OR_POST,
    done,
    find_or_404,
    posted,
    save_or_show,
    yaml_file,
)

PAGE = 50


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
    return yaml_file("alertmanager.yml", selectors.alertmanager_export().yml())


@require_safe
@role_required("viewer")
def as_object(_request: HttpRequest) -> HttpResponse:
    text = selectors.alertmanager_export().object()
    return yaml_file("emberline-alertmanagerconfig.yml", text)


@require_http_methods(GET_OR_POST)
@role_required("admin")
def new(request: HttpRequest) -> HttpResponseBase:
    """Show the form of the receiver kind in `?kind=`."""
    kind = request.GET.get("kind", "")
    kind = kind if kind in ReceiverKind.values else ReceiverKind.WEBHOOK
    form = ReceiverForm(kind, posted(request))

    def save() -> HttpResponse:
        made = receivers.create(request.user, form.given())
        messages.success(request, f"Receiver {made.name} created. Send a test notification.")
        return redirect(made)

    context = {"kind": ReceiverKind(kind), "kinds": ReceiverKind.choices}
    return save_or_show(request, form, save, "notify/receiver.html", context)


@require_http_methods(GET_OR_POST)
@role_required("admin")
def receiver(request: HttpRequest, name: str) -> HttpResponseBase:
    one = find_or_404(lambda: selectors.receiver(name))
    form = ReceiverForm(one.kind, posted(request), known=one)
    sent = selectors.deliveries(request.user).filter(receiver=one)[:10]
    context = {"kind": ReceiverKind(one.kind), "receiver": one, "deliveries": sent}

    def save() -> HttpResponse:
        receivers.change(request.user, name, form.given())
        return done(request, f"Receiver {name} saved.", "notify:receivers")

    return save_or_show(request, form, save, "notify/receiver.html", context)


@require_POST
@role_required("admin")
def try_out(request: HttpRequest, name: str) -> HttpResponseBase:
    sent = find_or_404(lambda: receivers.send_test(request.user, name))
    if sent.state == DeliveryState.SENT:
        messages.success(request, f"{name} accepted the test notification.")
    else:
        messages.error(request, f"Test notification to {name} failed. {sent.error}")
    return redirect("notify:receiver", name=name)


@require_POST
@role_required("admin")
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
    find_or_404(lambda: receivers.delete(request.user, name))
    return done(request, f"Receiver {name} and its routes removed.", "notify:receivers")


@require_http_methods(GET_OR_POST)
@role_required("admin")
def route_new(request: HttpRequest) -> HttpResponseBase:
    wanted = request.GET.get("receiver", "")
    form = _route_form(request, {"receiver": wanted} if wanted else {})

    def save() -> HttpResponse:
        routes.create(request.user, form.given())
        return done(request, "Route created.", "notify:receivers")

    return save_or_show(request, form, save, "notify/route.html", {"route": None})


@require_http_methods(GET_OR_POST)
@role_required("admin")
def route(request: HttpRequest, route: UUID) -> HttpResponseBase:
    one = find_or_404(lambda: selectors.route(route))
    facts = routes.facts(one)
    lines = {"matchers": "\n".join(facts["matchers"]), "group_by": ", ".join(facts["group_by"])}
    form = _route_form(request, {**facts, **lines})

    def save() -> HttpResponse:
        routes.change(request.user, route, form.given())
        return done(request, "Route saved.", "notify:receivers")

    return save_or_show(request, form, save, "notify/route.html", {"route": one})


@require_POST
@role_required("admin")
def route_remove(request: HttpRequest, route: UUID) -> HttpResponseBase:
    find_or_404(lambda: routes.delete(request.user, route))
    return done(request, "Route removed.", "notify:receivers")


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
    one = find_or_404(lambda: selectors.delivery(request.user, delivery))
    text = json.dumps(one.body, indent=2, ensure_ascii=False)
    return render(
        request, "notify/delivery.html", {"delivery": one, "delivery_rows": [one], "body": text}
    )


def _route_form(request: HttpRequest, initial: Mapping[str, Any]) -> RouteForm:
    names = list(selectors.receivers().values_list("name", flat=True))
    return RouteForm(names, posted(request), initial=initial)
