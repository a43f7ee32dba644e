"""Settings of all rules, platform-wide and for single endpoints, and user-written rules.

Each endpoint is evaluated by exactly one setting of a rule: endpoints with equal settings share an
entry, and the platform-wide entry excludes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dashboards.alerts.rules.parameter import format_duration
from dashboards.alerts.rules.rule import ALL_ENDPOINTS, EndpointSelection, Rule, Setting


@dataclass(frozen=True, slots=True)
class UserRule:
    """User-written rule."""

    name: str
    expr: str
    lasting_s: int
    severity: str
    summary: str
    remedy: str = ""
    enabled: bool = True

    def data(self, runbook: str = "") -> dict[str, Any]:
        annotations = {"summary": _plain(self.summary)}
        if self.remedy:
            annotations["description"] = _plain(self.remedy)
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
    """`of_endpoints`: by rule, then by endpoint. `console_url` is empty if unknown."""

    everywhere: Mapping[str, Setting] = field(default_factory=dict)
    of_endpoints: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    own: tuple[UserRule, ...] = ()
    console_url: str = ""

    def of(self, rule: Rule, endpoint: str = "") -> Setting:
        """Return the effective setting, with defaults filled in."""
        wide = self.everywhere.get(rule.name, Setting()).over(rule.defaults)
        mine = self.of_endpoints.get(rule.name, {}).get(endpoint)
        return mine.over(wide) if mine is not None else wide

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
            same = next((names for known, names in groups if known == setting), None)
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


def _plain(text: str) -> str:
    """Escape braces: Prometheus expands annotations as templates."""
    return text.replace("{{", '{{ "{{" }}')
