"""REST routes of alerts and alert rules, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.alerts.settings.api import history, views

app_name = "alerting-api"
_MINE = "endpoints/<endpoint:name>/alert-rules/"
urlpatterns: list[URLPattern | URLResolver] = [
    path("alerts/", views.AlertListView.as_view(), name="alerts"),
    path("alert-history/", history.AlertHistoryView.as_view(), name="history"),
    path("alert-rules/", views.RuleListView.as_view(), name="rules"),
    path("alert-rules/dry-run/", views.NewRuleDryRunView.as_view(), name="try_new"),
    path("alert-rules/<alertrule:rule>/dry-run/", views.RuleDryRunView.as_view(), name="try"),
    path("alert-rules/<alertrule:rule>/", views.RuleView.as_view(), name="rule"),
    path("alert-rule-file/", views.RuleFileView.as_view(), name="file"),
    path(_MINE, views.EndpointRuleListView.as_view(), name="of_endpoint"),
    path(
        f"{_MINE}<alertrule:rule>/dry-run/",
        views.EndpointRuleDryRunView.as_view(),
        name="try_of_endpoint",
    ),
    path(f"{_MINE}<alertrule:rule>/", views.EndpointRuleView.as_view(), name="one_of_endpoint"),
]
