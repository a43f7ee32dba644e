"""Pages of alerts and their rules, mounted by console.urls under "alerts/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.alerting import views, views_dry_run, views_rule

app_name = "alerting"
_ONE = "rules/<alertrule:rule>/"
_MINE = f"{_ONE}endpoints/<endpoint:name>/"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.firing, name="firing"),
    path("rules/", views.rules, name="rules"),
    path("rules/new/", views_rule.new, name="new"),
    path("rules/dry-run/", views_dry_run.new, name="try_new"),
    path("rules.yml", views.rule_file, name="file"),
    path("prometheusrule.yml", views.rule_object, name="object"),
    path(_ONE, views_rule.rule, name="rule"),
    path(f"{_ONE}past/", views_rule.past_of, name="past"),
    path(f"{_ONE}dry-run/", views_dry_run.rule, name="try"),
    path(f"{_ONE}reset/", views_rule.reset, name="reset"),
    path(f"{_ONE}delete/", views_rule.delete, name="delete"),
    path(_MINE, views_rule.of_endpoint, name="of_endpoint"),
    path(f"{_MINE}dry-run/", views_dry_run.of_endpoint, name="try_of_endpoint"),
    path(f"{_MINE}reset/", views_rule.reset_of_endpoint, name="reset_of_endpoint"),
]
