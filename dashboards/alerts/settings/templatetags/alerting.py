"""Template tags: `{% alert_sections %}` renders the tabs below Alerts, `{% try_rule url %}` the
buttons of a form with a dry run.
"""

from __future__ import annotations

from typing import Any, Final

from django import template
from django.urls import reverse

from dashboards.alerts.evaluation.dry_run import RANGES

SECTIONS: Final = (
    ("Firing", "alerting:firing"),
    ("Rules", "alerting:rules"),
    ("Clusters", "alert_objects:list"),
    ("Silences", "notify:silences"),
    ("Receivers", "notify:receivers"),
    ("History", "notify:history"),
)
register = template.Library()


@register.inclusion_tag("alerts/inc/sections.html", takes_context=True)
def alert_sections(context: template.Context) -> dict[str, Any]:
    """The section with the longest matching URL prefix is active."""
    links = [(label, reverse(name)) for label, name in SECTIONS]
    path = context["request"].path
    here = max((url for _, url in links if path.startswith(url)), key=len, default="")
    return {"links": [(label, url, url == here) for label, url in links]}


@register.inclusion_tag("alerts/inc/try.html")
def try_rule(url: str) -> dict[str, Any]:
    return {"url": url, "ranges": list(RANGES)}
