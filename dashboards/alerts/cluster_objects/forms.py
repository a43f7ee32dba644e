"""Form of a cluster's alert settings. `actions` validates; problems return to their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from dashboards.alerts.cluster_objects.models import ClusterAlerts
from dashboards.alerts.page_forms import MONOSPACE, ActionForm, flag_field, text_field

_PLAIN = {"spellcheck": "false", "autocomplete": "off"}


class ClusterAlertsForm(ActionForm):
    rules = flag_field(
        "Keep the alert rules there",
        help_text="A PrometheusRule with the numbers set here, brought up to date by itself.",
    )
    receivers = flag_field(
        "Keep receivers and routes there",
        help_text="An AlertmanagerConfig, and a Secret with the addresses. Needs an Alertmanager "
        "with the cluster's metrics source: it tells people then, the console does not.",
    )
    namespace = text_field("Namespace", widget=forms.TextInput(attrs=_PLAIN))
    labels = text_field(
        "Labels",
        help_text="One a line, such as release=prometheus, where the operator takes only objects "
        "that have them (its ruleSelector and alertmanagerConfigSelector).",
        widget=forms.Textarea({**_PLAIN, **MONOSPACE, "rows": 3}),
    )

    def __init__(
        self, data: Mapping[str, Any] | None, row: ClusterAlerts, own_namespace: str
    ) -> None:
        lines = "\n".join(f"{name}={value}" for name, value in row.labels.items())
        shown = {"rules": row.rules, "receivers": row.receivers, "namespace": row.namespace}
        super().__init__(data, initial={**shown, "labels": lines})
        self.fields["namespace"].help_text = f"Empty: {own_namespace}, the cluster's own."

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
