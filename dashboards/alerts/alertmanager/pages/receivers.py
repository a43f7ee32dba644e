"""Pages of receivers and routes, for users with a role on the whole platform."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web.serializer_form import SerializerForm
from dashboards.alerts.alertmanager import receivers, routes, selectors
from dashboards.alerts.alertmanager.config.receiver_kinds import KINDS
from dashboards.alerts.alertmanager.routes import RouteFields
from dashboards.alerts.alertmanager.status import notification_status
from dashboards.alerts.page_forms import (
    GET_OR_POST,
    done,
    find_or_404,
    posted,
    save_or_show,
    yaml_file,
)


@never_cache
@require_safe
@role_required("viewer")
def index(request: HttpRequest) -> HttpResponse:
    rows = [
        {
            "receiver": row,
            "routes": [{"route": route, **routes.facts(route)} for route in row.routes.all()],
        }
        for row in selectors.receivers().prefetch_related("routes__receiver")
    ]
    context = {"rows": rows, "standing": notification_status()}
    return render(request, "notify/receivers.html", context)


@require_safe
@role_required("viewer")
def as_yml(_request: HttpRequest) -> HttpResponse:
    return yaml_file("alertmanager.yml", selectors.config().yml())


@require_safe
@role_required("viewer")
def as_object(_request: HttpRequest) -> HttpResponse:
    text = selectors.config().object()
    return yaml_file("emberline-alertmanagerconfig.yml", text)


@require_http_methods(GET_OR_POST)
@role_required("admin")
def new(request: HttpRequest) -> HttpResponseBase:
    """Show the form of the receiver kind in `?kind=`."""
    kind = request.GET.get("kind", "")
    kinds = receivers.offered_kinds()
    kind = kind if kind in kinds else "webhook"
    own = [field.name for field in KINDS[kind].fields]
    names = ("name", *own, "everything", "send_resolved")
    form = SerializerForm(receivers.make_fields(kind)(), posted(request), names=names)

    def save() -> HttpResponse:
        made = receivers.create(request.user, {**form.typed(), "kind": kind})
        messages.success(request, f"Receiver {made.name} created. Send a test notification.")
        return redirect(made)

    context = {"kind": kind, "label": KINDS[kind].label, "kinds": kinds.items()}
    return save_or_show(request, form, save, "notify/receiver.html", context)


@require_http_methods(GET_OR_POST)
@role_required("admin")
def receiver(request: HttpRequest, name: str) -> HttpResponseBase:
    row = find_or_404(lambda: selectors.receiver(name))
    fields = receivers.make_fields(row.kind, receivers.ReceiverFields, row)
    names = (*(field.name for field in KINDS[row.kind].fields), *receivers.COMMON)
    form = SerializerForm(fields(), posted(request), receivers.facts(row), names)
    context = {"kind": row.kind, "receiver": row}

    def save() -> HttpResponse:
        receivers.change(request.user, name, form.typed())
        return done(request, f"Receiver {name} saved.", "notify:receivers")

    return save_or_show(request, form, save, "notify/receiver.html", context)


@require_POST
@role_required("admin")
def try_out(request: HttpRequest, name: str) -> HttpResponseBase:
    find_or_404(lambda: selectors.receiver(name))
    try:
        result = receivers.send_test(request.user, name)
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        level = messages.SUCCESS if result.sent else messages.ERROR
        messages.add_message(request, level, result.message)
    return redirect("notify:receiver", name=name)


@require_POST
@role_required("admin")
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
    find_or_404(lambda: receivers.delete(request.user, name))
    return done(request, f"Receiver {name} and its routes removed.", "notify:receivers")


@require_http_methods(GET_OR_POST)
@role_required("admin")
def route_new(request: HttpRequest) -> HttpResponseBase:
    form = SerializerForm(RouteFields(), posted(request), request.GET)

    def save() -> HttpResponse:
        routes.create(request.user, form.typed())
        return done(request, "Route created.", "notify:receivers")

    return save_or_show(request, form, save, "notify/route.html", {"route": None})


@require_http_methods(GET_OR_POST)
@role_required("admin")
def route(request: HttpRequest, route: UUID) -> HttpResponseBase:
    row = find_or_404(lambda: selectors.route(route))
    form = SerializerForm(RouteFields(), posted(request), routes.facts(row))

    def save() -> HttpResponse:
        routes.change(request.user, route, form.typed())
        return done(request, "Route saved.", "notify:receivers")

    return save_or_show(request, form, save, "notify/route.html", {"route": row})


@require_POST
@role_required("admin")
def route_remove(request: HttpRequest, route: UUID) -> HttpResponseBase:
    find_or_404(lambda: routes.delete(request.user, route))
    return done(request, "Route removed.", "notify:receivers")
