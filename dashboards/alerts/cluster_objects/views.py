"""Pages of cluster alert objects: settings and status. `actions` validates the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import require
from console.web import responses
from console.web.serializer_form import SerializerForm
from dashboards.alerts.cluster_objects import actions, selectors
from dashboards.alerts.cluster_objects.actions import ClusterAlertsFields
from dashboards.alerts.cluster_objects.models import ClusterAlerts
from dashboards.alerts.page_forms import GET_OR_POST, done, find_or_404, posted, save_or_show


class ClusterAlertsForm(SerializerForm):
    """Labels are typed one per line."""

    def __init__(self, data: Mapping[str, Any] | None, row: ClusterAlerts) -> None:
        labels = [f"{name}={value}" for name, value in sorted(row.labels.items())]
        super().__init__(ClusterAlertsFields(), data, {**actions.facts(row), "labels": labels})

    def typed(self) -> dict[str, Any]:
        lines = filter(None, (line.strip() for line in self.text_of("labels").splitlines()))
        pairs = [line.partition("=") for line in lines]
        labels = {name.strip(): value.strip() for name, _, value in pairs}
        return {**super().typed(), "labels": labels}


@never_cache
@require_safe
@role_required("viewer")
def index(request: HttpRequest) -> HttpResponse:
    context = {"rows": selectors.cluster_summaries()}
    return responses.render(
        request, "alert_objects/list.html", "alert_objects/htmx/list.html", context
    )


@never_cache
@require_http_methods(GET_OR_POST)
@role_required("viewer")
def cluster(request: HttpRequest, name: str) -> HttpResponseBase:
    row = find_or_404(lambda: selectors.one(name))
    form = ClusterAlertsForm(posted(request), row.row)
    if request.method != "POST":
        page, part = "alert_objects/cluster.html", "alert_objects/htmx/now.html"
        return responses.render(request, page, part, {"row": row, "form": form})
    require(request.user, "admin")

    def save() -> HttpResponse:
        actions.change(request.user, name, form.typed())
        return done(
            request,
            f"What is kept in {name} is saved and synced now.",
            "alert_objects:cluster",
            name,
        )

    return save_or_show(request, form, save, "alert_objects/cluster.html", {"row": row})


@require_POST
@role_required("operator")
def check(request: HttpRequest, name: str) -> HttpResponseBase:
    find_or_404(lambda: selectors.one(name))
    actions.check(request.user, name)
    messages.info(request, f"{name} is looked at now.")
    return redirect("alert_objects:cluster", name)
