"""Queries on alert rule settings for pages, the API and the rule file."""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings
from django.db.models import QuerySet

from console.accounts.permissions import Somebody, filter_visible, team_ids_with_role
from console.core.errors import Problem, Refused
from dashboards.alerts.rules.rule import Rule, Setting
from dashboards.alerts.rules.rule_file import BY_NAME, Settings, UserRule
from dashboards.alerts.settings.models import OwnRule, RuleFile, RuleSetting
from endpoints import selectors as endpoints


def settings() -> Settings:
    """Return all settings, for the rule file; callers filter before they show them."""
    platform: dict[str, Setting] = {}
    of_endpoints: dict[str, dict[str, Setting]] = {}
    for row in RuleSetting.objects.select_related("endpoint"):
        if row.endpoint is None:
            platform[row.rule] = as_setting(row)
        else:
            of_endpoints.setdefault(row.rule, {})[row.endpoint.name] = as_setting(row)
    written = tuple(as_user_rule(row) for row in OwnRule.objects.all())
    return Settings(platform, of_endpoints, written, django_settings.EMBERLINE.public_url)


def as_setting(row: RuleSetting | None) -> Setting:
    if row is None:
        return Setting()
    return Setting(dict(row.values), row.lasting_s, row.severity, row.enabled)


def as_user_rule(row: OwnRule) -> UserRule:
    return UserRule(
        row.name, row.expr, row.lasting_s, row.severity, row.summary, row.remedy, row.enabled
    )


def platform_settings() -> QuerySet[RuleSetting]:
    return RuleSetting.objects.filter(endpoint=None).select_related("changed_by")


def endpoint_settings_of_rule(name: str, viewer: Somebody) -> QuerySet[RuleSetting]:
    """Return the settings of visible endpoints for the rule, by name."""
    rows = RuleSetting.objects.filter(rule=name, endpoint__isnull=False)
    visible = filter_visible(
        rows.select_related("endpoint", "changed_by"), viewer, "endpoint__team"
    )
    return visible.order_by("endpoint__name")


def settings_of_endpoint(name: str) -> QuerySet[RuleSetting]:
    """Return the endpoint's settings; callers have checked access."""
    return RuleSetting.objects.filter(endpoint__name=name).select_related("changed_by")


def changeable_endpoints(viewer: Somebody) -> list[str]:
    """Return the names of the endpoints whose rules the viewer may change."""
    rows, teams = endpoints.endpoints(viewer), team_ids_with_role(viewer, "operator")
    mine = rows if teams is None else rows.filter(team__in=teams)
    return list(mine.values_list("name", flat=True).order_by("name"))


def row(rule: str, endpoint: str = "") -> RuleSetting | None:
    """Return the setting of the endpoint, or the platform-wide one without a name."""
    rows = RuleSetting.objects.select_related("endpoint", "changed_by").filter(rule=rule)
    matching = rows.filter(endpoint__name=endpoint) if endpoint else rows.filter(endpoint=None)
    return matching.first()


def user_rules() -> QuerySet[OwnRule]:
    return OwnRule.objects.select_related("changed_by")


def user_rule(name: str) -> OwnRule:
    own_rule = user_rules().filter(name=name).first()
    if own_rule is None:
        raise rule_not_found(name)
    return own_rule


def built_in(name: str) -> Rule:
    if name not in BY_NAME:
        raise rule_not_found(name)
    return BY_NAME[name]


def rule_exists(name: str) -> bool:
    return name in BY_NAME or OwnRule.objects.filter(name=name).exists()


def rule_file() -> RuleFile | None:
    """Return None if this installation runs no Prometheus."""
    return RuleFile.objects.first()


def rule_not_found(name: Any) -> Refused:
    remedy = "Select one of the rules listed under Alerts, Rules."
    problem = Problem("rule", str(name)[:80], "Unknown rule.", remedy, "not_found")
    return Refused(problem, status_code=404)
