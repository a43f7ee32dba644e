"""All alert rules with their settings, and the Prometheus rule file.

Each endpoint is evaluated by exactly one setting of a rule: endpoints with equal settings share an
entry, and the platform-wide entry excludes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from console.core import yaml_reader
from dashboards.alerts.rules import cache, cluster, console, routing, workers
from dashboards.alerts.rules.parameter import format_duration
from dashboards.alerts.rules.rule import ALL_ENDPOINTS, EndpointSelection, Rule, Setting

GROUPS: Final[dict[str, tuple[Rule, ...]]] = {
    "emberline-routing": routing.RULES,
    "emberline-engines": workers.RULES,
    "emberline-cache": cache.RULES,
    "emberline-cluster": cluster.RULES,
    "emberline-cost": console.BUDGET_RULES,
    "emberline-console": console.RULES,
}
OWN_GROUP: Final = "emberline-own"
CONSOLE_GROUPS: Final = ("budget", "path")
"""Rule subjects that need the console's own metrics."""
PLACEHOLDER: Final = re.compile(r"\{\{ *\$(?:labels\.([A-Za-z_]\w*)|value) *\}\}", re.ASCII)
"""What is replaced in the texts of user-written rules: `{{ $labels.pod }}` and `{{ $value }}`."""
_VALUE: Final = "{{ $value | humanize }}"
_WHOSE: Final = "{{ with or $labels.endpoint $labels.endpoint_name }}{{ . }}: {{ end }}"
RULES: Final = tuple(rule for rules in GROUPS.values() for rule in rules)
BY_NAME: Final = {rule.name: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class UserRule:
    name: str
    expr: str
    lasting_s: int
    severity: str
    summary: str
    remedy: str = ""
    enabled: bool = True

    def data(self, runbook: str = "") -> dict[str, Any]:
        annotations = {
            "summary": f"{_WHOSE}{_template(self.summary)}",
            "description": f"{_template(self.remedy)} (now {_VALUE})".lstrip(),
        }
        if runbook:
            annotations["runbook_url"] = runbook
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": format_duration(self.lasting_s),
            "labels": {"severity": self.severity, "written_by": "user"},
            "annotations": annotations,
        }


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all rules. `of_endpoints`: by rule, then by endpoint. `console_url` is empty if
    unknown.
    """

    everywhere: Mapping[str, Setting] = field(default_factory=dict)
    of_endpoints: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    own: tuple[UserRule, ...] = ()
    console_url: str = ""

    def of(self, rule: Rule, endpoint: str = "") -> Setting:
        """Return the effective setting, with defaults filled in."""
        wide = self.everywhere.get(rule.name, Setting()).over(rule.defaults)
        mine = self.of_endpoints.get(rule.name, {}).get(endpoint)
        return mine.over(wide) if mine is not None else wide

    def user_rule(self, name: str) -> UserRule | None:
        return next((rule for rule in self.own if rule.name == name), None)

    def runbook(self, name: str) -> str:
        return f"{self.console_url}/alerts/rules/{name}/" if self.console_url else ""

    def split(self, rule: Rule) -> list[tuple[Setting, EndpointSelection]]:
        """Return the effective settings with their endpoints; the platform-wide one first."""
        wide = self.of(rule)
        named = self.of_endpoints.get(rule.name, {}) if rule.per_endpoint else {}
        groups: list[tuple[Setting, list[str]]] = []
        for endpoint in sorted(named):
            setting = self.of(rule, endpoint)
            if setting == wide:
                continue
            same = next((names for setting_of, names in groups if setting_of == setting), None)
            if same is None:
                groups.append((setting, [endpoint]))
            else:
                same.append(endpoint)
        apart = tuple(sorted(name for _, names in groups for name in names))
        rest = EndpointSelection(apart, without=True) if apart else ALL_ENDPOINTS
        return [
            (wide, rest),
            *((setting, EndpointSelection(tuple(names))) for setting, names in groups),
        ]

    def rendered(self, rule: Rule) -> list[dict[str, Any]]:
        """Return one entry for each enabled setting."""
        return [
            rule.data(setting, only, self.runbook(rule.name))
            for setting, only in self.split(rule)
            if setting.enabled
        ]


DEFAULT_SETTINGS: Final = Settings()


def build_groups(settings: Settings = DEFAULT_SETTINGS) -> list[dict[str, Any]]:
    """Return the rule groups; groups without enabled rules are omitted, as Prometheus rejects
    them."""
    groups = [
        {
            "name": name,
            "rules": [rendered for rule in rules for rendered in settings.rendered(rule)],
        }
        for name, rules in GROUPS.items()
    ]
    own = [rule.data(settings.runbook(rule.name)) for rule in settings.own if rule.enabled]
    return [group for group in [*groups, {"name": OWN_GROUP, "rules": own}] if group["rules"]]


def cluster_groups(
    settings: Settings, labels: Mapping[str, str], *, with_console: bool
) -> list[dict[str, Any]]:
    """Return the groups that a cluster's Prometheus can evaluate from its own scrapes.

    These are rules on endpoints, pools and pods, user-written rules and, `with_console`, rules on
    the console. `labels` are added to every alert.
    """
    elsewhere = {rule.name for rule in RULES if rule.about in CONSOLE_GROUPS and not with_console}
    groups = []
    for group in build_groups(settings):
        rules = [
            {**rule, "labels": {**rule["labels"], **labels}}
            for rule in group["rules"]
            if rule["alert"] not in elsewhere
        ]
        if rules:
            groups.append({**group, "rules": rules})
    return groups


def render(settings: Settings = DEFAULT_SETTINGS) -> str:
    head = "# Generated by Emberline; changes are overwritten. Edit rules under Alerts, Rules.\n"
    return head + yaml_reader.render({"groups": build_groups(settings)})


def render_object(settings: Settings = DEFAULT_SETTINGS) -> str:
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "emberline-rules",
            "labels": {"app.kubernetes.io/part-of": "emberline"},
        },
        "spec": {"groups": build_groups(settings)},
    }
    return yaml_reader.render(made)


def fill_in(text: str, labels: Mapping[str, str], value: float | None) -> str:
    """Return the text of a user-written rule for one alert."""
    number = "unknown" if value is None else f"{value:.4g}"
    return PLACEHOLDER.sub(lambda found: labels.get(found[1], "") if found[1] else number, text)


def _template(text: str) -> str:
    """Return the text as Prometheus' template; braces that are no placeholder are escaped."""

    def render_part(found: re.Match[str]) -> str:
        if found[0] == "{{":
            return '{{ "{{" }}'
        return f"{{{{ $labels.{found[1]} }}}}" if found[1] else _VALUE

    return re.sub(rf"{PLACEHOLDER.pattern}|\{{\{{", render_part, text)
