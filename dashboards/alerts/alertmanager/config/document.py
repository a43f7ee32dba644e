"""Configuration of Alertmanager: alertmanager.yml, or an AlertmanagerConfig of the operator.

Every matching route is used (`continue`). A receiver also has a route for its test alert.
Reference: https://prometheus.io/docs/alerting/latest/configuration/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from console.core import yaml_reader
from dashboards.alerts.alertmanager.config.matchers import Matcher, Matchers
from dashboards.alerts.alertmanager.config.receiver_kinds import KINDS

UNMATCHED_RECEIVER: Final = "nobody"
TEAM: Final = "team"
"""Matcher name that stands for the endpoints of a team; alerts have no such label."""
TEST_LABEL: Final = "emberline_test"
NAME: Final = "emberline-receivers"
"""Name of the AlertmanagerConfig and of its Secret."""
MAIL_KEY: Final = "smtp-password"
VERSION, KIND = "monitoring.coreos.com/v1alpha1", "AlertmanagerConfig"
TEMPLATES: Final = """\
{{ define "emberline.title" }}[{{ .Status | toUpper }}{{ if eq .Status "firing" }}:{{ .Alerts.Firing | len }}{{ end }}] {{ .CommonLabels.alertname }}{{ if .CommonLabels.endpoint }} {{ .CommonLabels.endpoint }}{{ end }}{{ end }}
{{ define "emberline.text" }}{{ range .Alerts }}{{ if eq .Status "resolved" }}Resolved: {{ end }}{{ .Annotations.summary }}
{{ if eq .Status "firing" }}{{ .Annotations.description }}
{{ end }}{{ if .Annotations.runbook_url }}Runbook: {{ .Annotations.runbook_url }}
{{ end }}{{ end }}{{ .ExternalURL }}{{ end }}
"""  # noqa: E501
_FILE_HEAD = "# Receivers and routes of Emberline. Secrets are left out: replace each REPLACE.\n"
_OBJECT_HEAD = """\
# Receivers and routes of Emberline, for a cluster with the Prometheus operator.
# The Alertmanager's alertmanagerConfigSelector must select it. The operator adds the matcher
# namespace="(this object's)" to every route, unless the Alertmanager sets
# alertmanagerConfigMatcherStrategy: {type: None}.
"""
_REFERENCES_HEAD = """\
# Secrets are in a Secret of the same namespace. Create it from files:
#   kubectl create secret generic {name} {files}
"""
_ROUTE_NAMES: Final = {
    "group_by": "groupBy",
    "group_wait": "groupWait",
    "group_interval": "groupInterval",
    "repeat_interval": "repeatInterval",
}


@dataclass(frozen=True, slots=True)
class ReceiverConfig:
    """Receiver with the fields of its kind. `secrets`: those names whose values are secret;
    `values` has them only for the file.
    """

    name: str
    kind: str
    values: Mapping[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = ()
    send_resolved: bool = True


@dataclass(frozen=True, slots=True)
class RouteConfig:
    receiver: str
    conditions: Matchers
    group_by: tuple[str, ...]
    wait_s: int
    interval_s: int
    repeat_s: int


@dataclass(frozen=True, slots=True)
class MailServer:
    """SMTP server; `smarthost` is HOST:PORT, empty if none is configured."""

    smarthost: str = ""
    sender: str = ""
    tls: bool = True
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class AlertmanagerConfig:
    """Receivers and routes. `teams`: endpoint names by team."""

    receivers: Sequence[ReceiverConfig]
    routes: Sequence[RouteConfig]
    teams: Mapping[str, Sequence[str]]
    mail: MailServer

    def document(self, templates: str = "") -> dict[str, Any]:
        """Return alertmanager.yml; `templates`: path of the file with TEMPLATES."""
        tests = [_test_route(receiver.name) for receiver in self.receivers]
        routes = [self._route(route, str) for route in self.routes]
        made: dict[str, Any] = {
            "global": self._global(),
            "templates": [templates] if templates else [],
            "route": {"receiver": UNMATCHED_RECEIVER, "routes": [*tests, *routes]},
            "receivers": [
                {"name": UNMATCHED_RECEIVER},
                *(_receiver(receiver, bool(templates)) for receiver in self.receivers),
            ],
        }
        return {name: value for name, value in made.items() if value}

    def spec(self) -> dict[str, Any]:
        """Return the `spec` of an AlertmanagerConfig."""
        routes = []
        for child in self.routes:
            route = self._route(child, _object_matcher)
            routes.append({_ROUTE_NAMES.get(name, name): v for name, v in route.items()})
        return {
            "route": {"receiver": UNMATCHED_RECEIVER, "routes": routes},
            "receivers": [
                {"name": UNMATCHED_RECEIVER},
                *(self._object_receiver(receiver) for receiver in self.receivers),
            ],
        }

    def yml(self) -> str:
        """Return alertmanager.yml for another Alertmanager; each secret is REPLACE."""
        marked = [
            replace(
                receiver,
                values={**receiver.values, **dict.fromkeys(receiver.secrets, "https://REPLACE")},
            )
            for receiver in self.receivers
        ]
        mail = replace(self.mail, password="REPLACE")  # noqa: S106
        whole = replace(self, receivers=marked, mail=mail)
        return _FILE_HEAD + yaml_reader.render(whole.document(), allow_unicode=True)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that the Secret of the AlertmanagerConfig must contain."""
        keys = [
            secret_key(receiver.name, name)
            for receiver in self.receivers
            for name in receiver.secrets
        ]
        letters = any(receiver.kind == "email" for receiver in self.receivers)
        return (*keys, MAIL_KEY) if letters and self.mail.user else tuple(keys)

    def object(self) -> str:
        """Return the YAML text for `kubectl apply`, with instructions for the Secret."""
        made = {
            "apiVersion": VERSION,
            "kind": KIND,
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "emberline"}},
            "spec": self.spec(),
        }
        files = " ".join(f"--from-file={key}=FILE" for key in self.keys)
        head = _OBJECT_HEAD + (_REFERENCES_HEAD.format(name=NAME, files=files) if files else "")
        return head + yaml_reader.render(made, allow_unicode=True)

    def _global(self) -> dict[str, Any]:
        # A redirect could lead to an address that the console's outbound rules forbid.
        made: dict[str, Any] = {"http_config": {"follow_redirects": False}}
        mail = self.mail
        if not mail.smarthost:
            return made
        made |= {
            "smtp_smarthost": mail.smarthost,
            "smtp_from": mail.sender,
            "smtp_require_tls": mail.tls,
        }
        if mail.user:
            made |= {"smtp_auth_username": mail.user, "smtp_auth_password": mail.password}
        return made

    def _route(self, one: RouteConfig, matcher: Any) -> dict[str, Any]:
        made: dict[str, Any] = {
            "receiver": one.receiver,
            "matchers": [matcher(_resolve_team(each, self.teams)) for each in one.conditions],
            "group_by": list(dict.fromkeys(one.group_by)),
            "group_wait": f"{one.wait_s}s",
            "group_interval": f"{one.interval_s}s",
            "repeat_interval": f"{one.repeat_s}s",
            "continue": True,
        }
        return {name: value for name, value in made.items() if value != []}

    def _object_receiver(self, one: ReceiverConfig) -> dict[str, Any]:
        kind = KINDS[one.kind]
        references = {name: _reference(secret_key(one.name, name)) for name in one.secrets}
        made = kind.object_settings(one.values, references) | {"sendResolved": one.send_resolved}
        if one.kind == "email":
            mail = self.mail
            made |= {
                "from": mail.sender or "alerts@example.org",
                "smarthost": mail.smarthost or "localhost:25",
                "requireTLS": mail.tls,
            }
            if mail.user:
                made |= {"authUsername": mail.user, "authPassword": _reference(MAIL_KEY)}
        return {"name": one.name, kind.object_section: [made]}


def secret_key(receiver: str, field: str) -> str:
    """Return the Secret's key of a receiver's secret."""
    return f"{receiver}-{field}"


def _test_route(receiver: str) -> dict[str, Any]:
    return {
        "receiver": receiver,
        "matchers": [str(Matcher(TEST_LABEL, "=", receiver))],
        "group_by": ["..."],
        "group_wait": "0s",
        "group_interval": "5s",
        "repeat_interval": "24h",
    }


def _receiver(one: ReceiverConfig, templates: bool) -> dict[str, Any]:
    kind = KINDS[one.kind]
    made = kind.settings(one.values)
    if not templates:
        made = {name: value for name, value in made.items() if name not in kind.texts}
    return {"name": one.name, kind.section: [made | {"send_resolved": one.send_resolved}]}


def _resolve_team(one: Matcher, teams: Mapping[str, Sequence[str]]) -> Matcher:
    """Return a matcher on the team as one on the team's current endpoints."""
    if one.name != TEAM:
        return one
    positive = Matcher(TEAM, {"!=": "=", "!~": "=~"}.get(one.op, one.op), one.value)
    names = sorted(
        name for team, of_it in teams.items() if positive.matches({TEAM: team}) for name in of_it
    )
    return Matcher("endpoint", "!~" if one.op.startswith("!") else "=~", "|".join(names) or "-")


def _object_matcher(one: Matcher) -> dict[str, str]:
    return {"name": one.name, "matchType": one.op, "value": one.value}


def _reference(key: str) -> dict[str, str]:
    return {"name": NAME, "key": key}
