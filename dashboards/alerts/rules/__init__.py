"""Built-in alert rules, a module for each subject, and the Prometheus rule file."""

from dashboards.alerts.rules.rule import PAGE, SEVERITIES, TICKET, Only, Rule, Setting
from dashboards.alerts.rules.rule_file import (
    BY_NAME,
    GROUPS,
    OWN_GROUP,
    RULES,
    groups,
    in_cluster,
    render,
    render_object,
)
from dashboards.alerts.rules.settings import UNSET, Own, Settings

__all__ = [
    "BY_NAME",
    "GROUPS",
    "OWN_GROUP",
    "PAGE",
    "RULES",
    "SEVERITIES",
    "TICKET",
    "UNSET",
    "Only",
    "Own",
    "Rule",
    "Setting",
    "Settings",
    "groups",
    "in_cluster",
    "render",
    "render_object",
]
