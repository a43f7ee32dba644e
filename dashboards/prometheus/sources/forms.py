"""Form of a metrics source; `actions` validates the input. No secret is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from console.clusters.selectors import names as cluster_names
from console.web.forms import PLAIN_INPUT, ActionForm, HiddenTextarea
from dashboards.prometheus.http.login import TENANT_HEADER, Auth
from dashboards.prometheus.sources.models import MetricsSource
from dashboards.prometheus.sources.selectors import LOGINS

_SIGV4 = "AWS SigV4 (Amazon Managed Service for Prometheus)"
_AUTHS = tuple({**LOGINS, "sigv4": _SIGV4}.items())
_FILE_HINT = "Alternative: name of a file in the console's secrets folder, read at each use."
GROUPS = (
    ("Connection", ("name", "url", "cluster", "alertmanager_url", "enabled")),
    ("Authentication", ("auth", "username", "secret", "secret_file")),
    ("TLS", ("ca", "certificate", "key", "key_file")),
    ("AWS and tenants", ("region", "service", "tenant", "tenant_header")),
)


def _text(label: str, help_text: str = "", **attrs: Any) -> forms.CharField:
    widget = forms.TextInput(attrs={**PLAIN_INPUT, **attrs})
    return forms.CharField(label=label, required=False, help_text=help_text, widget=widget)


def _area(label: str, help_text: str, widget: type[forms.Textarea]) -> forms.CharField:
    attrs = {**PLAIN_INPUT, "rows": 4, "class": "font-monospace"}
    return forms.CharField(
        label=label, required=False, help_text=help_text, widget=widget(attrs=attrs)
    )


class SourceForm(ActionForm):
    name = _text("Name", "Cannot be changed later.", required=True)
    url = _text(
        "URL",
        "Without /api/v1. Redirects are not followed.",
        required=True,
        placeholder="https://prometheus.example.com",
    )
    cluster = forms.ChoiceField(label="Scope", required=False)
    alertmanager_url = _text(
        "Alertmanager",
        "URL. Delivers alerts and silences instead of the console; same credentials.",
    )
    enabled = forms.BooleanField(label="Enabled", required=False, initial=True)
    auth = forms.ChoiceField(label="Authentication", choices=_AUTHS, required=False)
    username = _text("User name or AWS access key ID")
    secret = forms.CharField(
        label="Token, password or AWS secret key",
        required=False,
        help_text="AWS: leave both empty to use the console's role.",
        widget=forms.PasswordInput(attrs=PLAIN_INPUT),
    )
    secret_file = _text("Secret file", _FILE_HINT)
    ca = _area("CA certificate", "PEM. Leave empty for the system's CAs.", forms.Textarea)
    certificate = _area("Client certificate", "PEM, with chain.", forms.Textarea)
    key = _area("Private key", "PEM, unencrypted. Never shown again.", HiddenTextarea)
    key_file = _text("Private key file", _FILE_HINT)
    region = _text("AWS region", "", placeholder="eu-central-1")
    service = _text("AWS service", "", placeholder="aps")
    tenant = _text("Tenant", "For Mimir, Cortex and Thanos.")
    tenant_header = _text("Tenant header", "", placeholder=TENANT_HEADER)

    def __init__(
        self, data: Mapping[str, Any] | None = None, *, source: MetricsSource | None = None
    ) -> None:
        self.source = source
        hidden = ("name", "secret", "key")
        initial = {
            name: getattr(source, name)
            for name in self.base_fields
            if source and name not in hidden
        }
        super().__init__(data, initial=initial)
        clusters: Any = self.fields["cluster"]
        clusters.choices = [
            ("", "Endpoints whose cluster has no own source"),
            *((name, f"Endpoints on {name}") for name in cluster_names()),
        ]
        if source is not None:
            del self.fields["name"]
            for name in ("secret", "key"):
                if source.sealed.get(name):
                    self.fields[name].help_text = "Leave empty to keep the current one."

    def groups(self) -> list[tuple[str, list[Any]]]:
        return [
            (title, [self[name] for name in names if name in self.fields])
            for title, names in GROUPS
        ]

    def typed(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            name: str(self.data.get(name, "")).strip()
            for name in self.fields
            if name not in ("name", "enabled")
        }
        values = {
            name: value for name, value in values.items() if value or name not in ("secret", "key")
        }
        values["auth"] = values["auth"] or str(Auth.NONE)
        return {**values, "enabled": bool(self.data.get("enabled"))}
