"""Template filters and tags: badges, times, sizes, icons; no queries but of saved filters."""

from __future__ import annotations

from datetime import datetime
from itertools import cycle
from typing import Any
from urllib.parse import urlencode

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from console.core import disk, money
from console.core.local_time import get_zone_name
from console.web import saved_filters as filters_of_list
from console.web.shell import navigation as web_tabs

register = template.Library()

# phase -> (Tabler colour, icon); badges also show the phase as text.
_PHASES = {
    "Pending": ("secondary", "clock"),
    "Provisioning": ("blue", "loader"),
    "Ready": ("green", "check"),
    "Updating": ("blue", "loader"),
    "Degraded": ("yellow", "alert-triangle"),
    "Unavailable": ("red", "alert-triangle"),
    "Pausing": ("blue", "player-pause"),
    "Paused": ("secondary", "player-pause"),
    "Deleting": ("orange", "trash"),
    "Failed": ("red", "x"),
}
# Words of alerts, events, logs, checks and phases by level; app.css has the colours.
_SEVERITIES = {
    word: level
    for level, words in {
        "critical": "critical page error fatal failed danger fail red firing unavailable",
        "warning": "warning warn degraded low late yellow pending orange deleting",
        "info": "info notice debug provisioning updating starting blue running",
        "ok": "ok ready success passed resolved green good sent",
    }.items()
    for word in words.split()
}
_SEVERITY_ICONS = {
    "critical": "circle-x",
    "warning": "alert-triangle",
    "info": "info-circle",
    "ok": "circle-check",
    "none": "circle-dashed",
}
_SPRITE = "vendor/tabler/icons.svg"
_SHARED_PARAMETERS = ("range", "from", "to", "worker")


@register.simple_tag
def icon(name: str, label: str = "", extra: str = "") -> SafeString:
    """Render an icon of the sprite; hidden from screen readers unless labelled."""
    source = f"{static(_SPRITE)}#icon-{name}"
    if label:
        aria = format_html('role="img" aria-label="{}"', label)
    else:
        aria = mark_safe('aria-hidden="true" focusable="false"')
    return format_html('<svg class="icon {}" {}><use href="{}"></use></svg>', extra, aria, source)


@register.inclusion_tag("console/inc/tabs.html", takes_context=True)
def tabs(context: template.Context, kind: str, name: str = "") -> dict[str, Any]:
    """Render the tabs of an object, `{% tabs "endpoint" endpoint.name %}`, or of a part of the
    console, `{% tabs "costs" %}`. Time range and worker of this page go along to the next one.
    """
    request = context["request"]
    chosen = {key: request.GET[key] for key in _SHARED_PARAMETERS if request.GET.get(key)}
    entries = web_tabs.list_tabs(kind, name, request.path)
    for entry in entries if chosen else ():
        entry["url"] += f"?{urlencode(chosen)}"
    return {"groups": web_tabs.group_tabs(entries), "name": name or kind}


@register.inclusion_tag("console/inc/saved_filters.html", takes_context=True)
def saved_filters(context: template.Context, *, small: bool = False) -> dict[str, Any]:
    """Render the user's saved filters of this list, with a form to save the present one."""
    request = context["request"]
    filters = filters_of_list.saved_filters(request)
    token = {"csrf_token": context["csrf_token"]}
    return {"filters": filters, "path": request.path, "small": small, **token}


@register.simple_tag
def phase_badge(phase: str, reason: str = "") -> SafeString:
    colour, name = _PHASES.get(phase, ("secondary", "help"))
    return format_html(
        '<span class="badge bg-{0}-lt phase-badge" data-phase="{1}" title="{2}">'
        '{3}<span class="visually-hidden">Phase: </span>{1}</span>',
        colour,
        phase,
        reason or phase,
        icon(name),
    )


@register.simple_tag
def severity_badge(word: str, text: str = "") -> SafeString:
    """Render an alert severity, log level or check result as a badge in its colour."""
    level = severity(word)
    name = _SEVERITY_ICONS[level]
    return format_html(
        '<span class="severity-badge severity-{}">{}{}</span>', level, icon(name), text or word
    )


@register.filter
def severity(word: str) -> str:
    """Return the level of a severity word: critical, warning, info, ok or none."""
    return _SEVERITIES.get(str(word).casefold(), "none")


@register.filter
def inline_code(text: object) -> SafeString:
    """Render a message, in which commands and values stand between backticks."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without its second one
        return format_html("{}", text)
    marks = cycle(("{}", "<code>{}</code>"))
    return format_html_join("", "{}", ((format_html(next(marks), part),) for part in parts))


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """Render "3 minutes ago 14:05:12" in the reader's time zone, the exact time as tooltip."""
    if moment is None:
        return "never"
    seconds = (timezone.now() - moment).total_seconds()
    if abs(seconds) < 5:
        return _time(moment, "just now")
    relative = _relative(seconds)
    return _time(moment, format_html('{} <span class="time-at">{}</span>', relative, clock(moment)))


@register.filter(name="moment")
def moment_(moment: datetime | None) -> SafeString | str:
    """Render "2026-11-23 14:05:12 CET", the relative time as tooltip."""
    if moment is None:
        return "never"
    relative = _relative((timezone.now() - moment).total_seconds())
    return _time(moment, _exact(moment), relative)


def clock(moment: datetime) -> str:
    """Return "14:05:12" for today, else "Nov 12 14:05", with the year if it is another one."""
    local, today = timezone.localtime(moment), timezone.localdate()
    if local.date() == today:
        return local.strftime("%H:%M:%S")
    return local.strftime("%b %-d %H:%M" if local.year == today.year else "%Y-%m-%d %H:%M")


def _time(moment: datetime, shown: str, title: str = "") -> SafeString:
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        timezone.localtime(moment).isoformat(timespec="seconds"),
        title or _exact(moment),
        shown,
    )


def _exact(moment: datetime) -> str:
    local = timezone.localtime(moment)
    return f"{local:%Y-%m-%d %H:%M:%S} {get_zone_name(local)}"


def _relative(seconds: float) -> str:
    return f"in {_span(1 - seconds)}" if seconds < -1 else f"{_span(max(seconds, 0))} ago"


@register.filter(name="bytes")
def bytes_(number: float | None) -> str:
    """1536 -> "1.5 KiB"."""
    return "–" if number is None else disk.format_bytes(number)


@register.filter
def percent(share: float | None) -> str:
    """0.125 -> "13 %", 0.001 -> "<1 %"."""
    if share is None:
        return "–"
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


@register.filter
def signed_percent(share: float | None) -> str:
    """0.125 -> "+13 %", -0.4 -> "−40 %"."""
    return "–" if share is None else f"{100 * share:+.0f} %".replace("-", "−")


@register.filter
def quantity(number: float | None) -> str:
    """1234567 -> "1.23 M"; below ten thousand unchanged."""
    if number is None:
        return "–"
    for size, word in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= max(size, 1e4):
            scaled = number / size
            digits = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0
            return f"{scaled:.{digits}f} {word}"
    return f"{number:,.0f}"


@register.filter
def usd(amount: float | None) -> str:
    """1234.5 -> "$1,234.50", 0.00012 -> "$0.00012", unknown -> dash."""
    return money.format_usd(amount)


@register.filter
def usd_total(amount: float | None) -> str:
    """1234.5 -> "$1,234.50", 0.00012 -> "<$0.01", unknown -> dash: a sum, not a unit price."""
    if amount is not None and 0 < amount < 0.005:
        return "<$0.01"
    return money.format_usd(amount if amount is None else round(amount, 2))


@register.filter
def duration(seconds: float | None) -> str:
    """0.0123 -> "12 ms", 75 -> "1 min 15 s"."""
    if seconds is None:
        return "–"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, big, small_size, small in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size} {big}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


@register.filter
def precise(seconds: float | None) -> str:
    """Three significant digits: 0.3034 -> "303 ms", 1.2345 -> "1.23 s"."""
    if seconds is None:
        return "–"
    if abs(seconds) >= 0.9995:
        return f"{seconds:.3g} s" if abs(seconds) < 999.5 else duration(seconds)
    return f"{seconds * 1000:.3g} ms" if seconds else "0 ms"


@register.simple_tag
def elapsed(started: Any, finished: Any = None) -> str:
    """Return the time between two datetimes or ISO strings; until now if unfinished."""
    begin = _moment(started)
    if begin is None:
        return ""
    end = _moment(finished) or timezone.now()
    return duration(max(0.0, (end - begin).total_seconds()))


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):
        return datetime.fromisoformat(value) if value else None
    return value if isinstance(value, datetime) else None


def _span(seconds: float) -> str:
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {word}{'s' if number > 1 else ''}"
    return f"{int(seconds)} s"
