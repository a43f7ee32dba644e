"""Pages of cluster alert objects: settings and status. `actions` validates the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import require
from console.web import responses
from console.web.forms import ActionForm
from dashboards.alerts.cluster_objects import actions, selectors
from dashboards.alerts.cluster_objects.models import ClusterAlerts
from dashboards.alerts.page_forms import (
    GET_OR_POST,
    MONOSPACE,
    done,
    find_or_404,
    flag_field,
    posted,
    save_or_show,
    text_field,
)

_PLAIN = {"spellcheck": "false", "autocomplete": "off"}


class ClusterAlertsForm(ActionForm):
    rules = flag_field(
        "Sync alert rules", help_text="Maintains a PrometheusRule with the current settings."
    )
    receivers = flag_field(
        "Sync receivers and routes",
        help_text="Maintains an AlertmanagerConfig and a Secret with URLs. Needs an Alertmanager "
        "in the cluster's metrics source, which then sends notifications instead of the console.",
    )
    namespace = text_field("Namespace", widget=forms.TextInput(attrs=_PLAIN))
    labels = text_field(
        "Labels",
        help_text="One per line, such as release=prometheus. Required labels of the operator's "
        "ruleSelector and alertmanagerConfigSelector.",
        widget=forms.Textarea({**_PLAIN, **MONOSPACE, "rows": 3}),
    )

    def __init__(
        self, data: Mapping[str, Any] | None, row: ClusterAlerts, own_namespace: str
    ) -> None:
        lines = "\n".join(f"{name}={value}" for name, value in row.labels.items())
        initial = {"rules": row.rules, "receivers": row.receivers, "namespace": row.namespace}
        super().__init__(data, initial={**initial, "labels": lines})
        self.fields["namespace"].help_text = f"Leave empty for {own_namespace}."

    def typed(self) -> dict[str, Any]:
        """Return the submitted values in the shape that `actions` takes."""
        lines = [line.strip() for line in str(self.data.get("labels", "")).splitlines()]
        pairs = [line.partition("=") for line in lines if line]
        return {
            "rules": bool(self.data.get("rules")),
            "receivers": bool(self.data.get("receivers")),
            "namespace": self.text_of("namespace"),
            "labels": {name.strip(): value.strip() for name, _, value in pairs},
        }


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
    form = ClusterAlertsForm(posted(request), row.row, row.cluster.namespace)
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
