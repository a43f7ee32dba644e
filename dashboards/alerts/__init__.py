"""Every alert rule there is, and the file of them. Rules stand in the modules named about_*."""

from dashboards.alerts.rule import PAGE, TICKET, Rule
from dashboards.alerts.rulefile import BY_NAME, GROUPS, RULES, render

__all__ = ["BY_NAME", "GROUPS", "PAGE", "RULES", "TICKET", "Rule", "render"]
