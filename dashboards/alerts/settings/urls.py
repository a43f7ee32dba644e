"""Page routes of alerts and alert rules, mounted by console.urls under "alerts/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.alerts.settings.pages import alerts, rule, timeline

app_name = "alerting"
_ONE = "rules/<alertrule:rule>/"
_MINE = f"{_ONE}endpoints/<endpoint:name>/"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", alerts.firing, name="firing"),
    path("timeline/", timeline.timeline, name="timeline"),
    path("rules/", alerts.rules, name="rules"),
    path("rules/new/", rule.new, name="new"),
    path("rules/dry-run/", rule.try_new, name="try_new"),
    path("rules.yml", alerts.rule_file, name="file"),
    path("prometheusrule.yml", alerts.rule_object, name="object"),
    path(_ONE, rule.rule, name="rule"),
    path(f"{_ONE}past/", rule.rule_history, name="past"),
    path(f"{_ONE}dry-run/", rule.try_rule, name="try"),
    path(f"{_ONE}reset/", rule.reset, name="reset"),
    path(f"{_ONE}delete/", rule.delete, name="delete"),
    path(_MINE, rule.of_endpoint, name="of_endpoint"),
    path(f"{_MINE}dry-run/", rule.try_of_endpoint, name="try_of_endpoint"),
    path(f"{_MINE}reset/", rule.reset, name="reset_of_endpoint"),
]
