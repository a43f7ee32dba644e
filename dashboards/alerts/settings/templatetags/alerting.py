"""Template tags: `{% alert_sections %}` renders the tabs below Alerts, `{% try_rule url %}` the
buttons of a form with a dry run, `{% severity_badge severity %}` a severity in its colour.
"""

from __future__ import annotations

from typing import Any, Final

from django import template
from django.urls import reverse
from django.utils.html import format_html

from dashboards.alerts.evaluation.dry_run import RANGES

SECTIONS: Final = (
    ("Active", "alerting:firing"),
    ("History", "alerting:timeline"),
    ("Rules", "alerting:rules"),
    ("Silences", "notify:silences"),
    ("Receivers", "notify:receivers"),
    ("Clusters", "alert_objects:list"),
)
_SEVERITY_COLORS: Final = {
    "page": "red",
    "critical": "red",
    "ticket": "orange",
    "warning": "orange",
}
register = template.Library()


@register.inclusion_tag("alerts/inc/sections.html", takes_context=True)
def alert_sections(context: template.Context) -> dict[str, Any]:
    """The section with the longest matching URL prefix is active."""
    links = [(label, reverse(name)) for label, name in SECTIONS]
    path = context["request"].path
    here = max((url for _, url in links if path.startswith(url)), key=len, default="")
    return {"links": [(label, url, url == here) for label, url in links]}


@register.filter
def severity_color(severity: str) -> str:
    """Return the Tabler colour of a severity, the same on every page."""
    return _SEVERITY_COLORS.get(severity, "blue")


@register.simple_tag
def severity_badge(severity: str) -> str:
    """Render a severity as a badge, empty without one."""
    if not severity:
        return ""
    color = severity_color(severity)
    return format_html('<span class="badge bg-{}-lt">{}</span>', color, severity)


@register.inclusion_tag("alerts/inc/try.html")
def try_rule(url: str) -> dict[str, Any]:
    return {"url": url, "ranges": list(RANGES)}
