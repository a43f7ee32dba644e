"""Template tags: `{% try_rule url %}` renders the buttons of a form with a dry run,
`{% severity_badge severity %}` a severity in its colour.
"""

from __future__ import annotations

from typing import Any, Final

from django import template
from django.utils.html import format_html

from dashboards.alerts.evaluation.dry_run import RANGES

_SEVERITY_COLORS: Final = {
    "page": "red",
    "critical": "red",
    "ticket": "orange",
    "warning": "orange",
}
register = template.Library()


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
