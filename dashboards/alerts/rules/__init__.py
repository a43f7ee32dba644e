"""Built-in alert rules, a module for each subject, and the Prometheus rule file."""

from dashboards.alerts.rules.rule import PAGE, SEVERITIES, TICKET, EndpointSelection, Rule, Setting
from dashboards.alerts.rules.rule_file import (
    BY_NAME,
    GROUPS,
    OWN_GROUP,
    RULES,
    build_groups,
    cluster_groups,
    render,
    render_object,
)
from dashboards.alerts.rules.settings import DEFAULT_SETTINGS, Settings, UserRule

__all__ = [
    "BY_NAME",
    "DEFAULT_SETTINGS",
    "GROUPS",
    "OWN_GROUP",
    "PAGE",
    "RULES",
    "SEVERITIES",
    "TICKET",
    "EndpointSelection",
    "Rule",
    "Setting",
    "Settings",
    "UserRule",
    "build_groups",
    "cluster_groups",
    "render",
    "render_object",
]
