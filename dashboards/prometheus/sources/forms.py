"""Form of a metrics source; `actions` validates the input. No secret is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from console.clusters.selectors import names as cluster_names
from console.resources.pages import FieldsForm, make_field
from console.web.forms import PLAIN_INPUT, HiddenTextarea
from dashboards.prometheus.sources.actions import FIELDS, SECRETS
from dashboards.prometheus.sources.models import MetricsSource

GROUPS = (
    ("Connection", ("name", "url", "cluster", "alertmanager_url", "enabled")),
    ("Authentication", ("auth", "username", "secret", "secret_file")),
    ("TLS", ("ca", "certificate", "key", "key_file")),
    ("AWS and tenants", ("region", "service", "tenant", "tenant_header")),
)
_KEPT = "Leave empty to keep the current one."


class SourceForm(FieldsForm):
    def __init__(
        self, data: Mapping[str, Any] | None = None, *, source: MetricsSource | None = None
    ) -> None:
        super().__init__(FIELDS, data, source)
        self.source = source
        if source is None:
            self.fields["name"] = make_field(FIELDS, "name")
        self.fields["cluster"] = forms.ChoiceField(
            label="Scope",
            required=False,
            choices=[
                ("", "Endpoints whose cluster has no own source"),
                *((name, f"Endpoints on {name}") for name in cluster_names()),
            ],
        )
        self.fields["secret"] = forms.CharField(
            label="Token, password or AWS secret key",
            required=False,
            help_text="AWS: leave both empty to use the console's role.",
            widget=forms.PasswordInput(),
        )
        self.fields["key"] = forms.CharField(
            label="Private key",
            required=False,
            help_text="PEM, unencrypted. Never shown again.",
            widget=HiddenTextarea(),
        )
        for name, field in self.fields.items():
            field.widget.attrs |= PLAIN_INPUT
            if isinstance(field.widget, forms.Textarea):
                field.widget.attrs |= {"rows": 4, "class": "font-monospace"}
            if source is not None and source.sealed.get(name):
                field.help_text = _KEPT

    def groups(self) -> list[tuple[str, list[Any]]]:
        return [
            (title, [self[name] for name in names if name in self.fields])
            for title, names in GROUPS
        ]

    def typed(self) -> dict[str, Any]:
        return {**super().typed(), **{name: self.text_of(name) for name in SECRETS}}
