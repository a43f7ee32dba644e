"""Documents of rules for pages and the API.

Team-safe: endpoint names come only from rows and metrics that the viewer may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from console.accounts.permissions import Somebody, allows
from dashboards.alerts.rules.parameter import Parameter, describe_duration, format_value
from dashboards.alerts.rules.rule import Rule, Setting
from dashboards.alerts.rules.rule_file import BY_NAME, GROUPS, OWN_GROUP, Settings
from dashboards.alerts.settings import selectors
from dashboards.alerts.settings.models import OwnRule, RuleSetting
from endpoints import selectors as endpoints

TITLES: Mapping[str, str] = {
    "emberline-routing": "Routers and routing",
    "emberline-engines": "Workers",
    "emberline-cache": "Cache tiers",
    "emberline-cluster": "Pods and GPUs",
    "emberline-cost": "Cost",
    "emberline-console": "Console",
    OWN_GROUP: "Custom rules",
}
GROUP_OF = {rule.name: name for name, rules in GROUPS.items() for rule in rules}


def can_see_user_rules(viewer: Somebody) -> bool:
    """User-written rules may name any endpoint: visible with permission to see all."""
    return allows(viewer, "viewer")


def settings_for(viewer: Somebody) -> Settings:
    """Return all settings without those of endpoints the viewer may not see."""
    whole = selectors.settings()
    if allows(viewer, "viewer"):
        return whole
    mine = set(endpoints.endpoints(viewer).values_list("name", flat=True))
    visible = {
        rule: {name: setting for name, setting in named.items() if name in mine}
        for rule, named in whole.of_endpoints.items()
    }
    return replace(whole, of_endpoints=visible, own=())


def rule_documents(viewer: Somebody, group: str = "") -> list[dict[str, Any]]:
    """Return the documents of all visible rules, by group."""
    settings = settings_for(viewer)
    rows = {row.rule: row for row in selectors.platform_settings()}
    built_in = [
        built_in_document(rule, settings, rows.get(rule.name))
        for name, rules in GROUPS.items()
        for rule in rules
        if group in ("", name)
    ]
    if group in ("", OWN_GROUP) and can_see_user_rules(viewer):
        built_in += [user_rule_document(row) for row in selectors.user_rules()]
    return built_in


def rule_document(name: str, viewer: Somebody) -> dict[str, Any]:
    """Return the document of one rule; raise `Refused` (404)."""
    if name in GROUP_OF:
        rule = selectors.built_in(name)
        return built_in_document(rule, settings_for(viewer), selectors.row(name))
    if not can_see_user_rules(viewer):
        raise selectors.rule_not_found(name)
    return user_rule_document(selectors.user_rule(name))


def built_in_document(rule: Rule, settings: Settings, row: RuleSetting | None) -> dict[str, Any]:
    effective = settings.of(rule)
    return {
        "name": rule.name,
        "group": GROUP_OF[rule.name],
        "origin": "built-in",
        "summary": rule.summarize(effective),
        "remedy": rule.remedy,
        "needs": rule.needs,
        "per_endpoint": rule.per_endpoint,
        "endpoints": sorted(settings.of_endpoints.get(rule.name, {})),
        "expr": rule.expression(effective),
        **_common(effective),
        "parameters": [_parameter(parameter, effective) for parameter in rule.parameters],
        **_changed(row),
        "changed": row is not None and selectors.as_setting(row) != Setting(),
    }


def user_rule_document(row: OwnRule) -> dict[str, Any]:
    return {
        "name": row.name,
        "group": OWN_GROUP,
        "origin": "own",
        "summary": row.summary,
        "remedy": row.remedy,
        "needs": "",
        "per_endpoint": False,
        "endpoints": [],
        "expr": row.expr,
        "for_s": row.lasting_s,
        "severity": row.severity,
        "enabled": row.enabled,
        "parameters": [],
        **_changed(row),
        "changed": True,
    }


def endpoint_rule_document(
    rule: Rule, settings: Settings, endpoint: str, row: Any
) -> dict[str, Any]:
    """Return the effective settings of one endpoint, and which of them are its own."""
    effective = settings.of(rule, endpoint)
    mine = selectors.as_setting(row)
    return {
        "rule": rule.name,
        "endpoint": endpoint,
        "summary": rule.summarize(effective),
        **_common(effective),
        "parameters": [_parameter(parameter, effective) for parameter in rule.parameters],
        "own": {
            **mine.values,
            **({} if mine.lasting_s is None else {"for": mine.lasting_s}),
            **({"severity": mine.severity} if mine.severity else {}),
            **({} if mine.enabled is None else {"enabled": mine.enabled}),
        },
        **_changed(row),
    }


def brief_settings(facts: Mapping[str, Any]) -> str:
    """Return the parameters as one table cell."""
    numbers = [
        f"{lower_label(parameter['label'])} {parameter['shown']}"
        for parameter in facts["parameters"]
    ]
    return "; ".join(
        [
            *numbers,
            f"for {describe_duration(facts['for_s'])}" if facts["for_s"] else "fires immediately",
        ]
    )


def lower_label(label: str) -> str:
    """Lower the first letter, except of an acronym such as TTFT."""
    return label if label[1:2].isupper() else label[:1].lower() + label[1:]


def format_measured(name: str, value: float | None) -> str:
    """Format a measured value, with its unit if the rule has one; empty if unknown."""
    if value is None:
        return ""
    return format_value(BY_NAME[name].unit, value) if name in BY_NAME else f"{value:.4g}"


def _common(setting: Setting) -> dict[str, Any]:
    return {
        "for_s": setting.lasting_s,
        "severity": setting.severity,
        "enabled": bool(setting.enabled),
    }


def _parameter(one: Parameter, setting: Setting) -> dict[str, Any]:
    value = setting.values[one.name]
    fields = {name: getattr(one, name) for name in ("name", "label", "unit", "default")}
    bounds = {"low": one.low, "high": one.high, "choices": list(one.choices)}
    return {**fields, "value": value, "shown": one.shown(value), **bounds}


def _changed(row: RuleSetting | OwnRule | None) -> dict[str, Any]:
    if row is None:
        return {"generation": 0, "changed_by": "", "changed_at": None}
    by = row.changed_by.get_username() if row.changed_by else ""
    return {"generation": row.generation, "changed_by": by, "changed_at": row.changed_at}
