"""Times in the reader's zone, for modules without Django.

The zone is that of the current request (TimeZoneMiddleware); UTC for REST, tasks and commands.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo

_ZONE: ContextVar[tzinfo] = ContextVar("emberline_zone", default=UTC)


def use_zone(zone: tzinfo | None) -> None:
    """Set the zone of this context; None: UTC."""
    _ZONE.set(zone or UTC)


def get_zone_key() -> str:
    """Return "Europe/Berlin"."""
    return str(_ZONE.get())


def localize(moment: float) -> datetime:
    """Return epoch seconds as a time in the reader's zone."""
    return datetime.fromtimestamp(moment, _ZONE.get())


def parse_local(text: str) -> int:
    """Return ISO 8601 as epoch seconds; a time without an offset is in the reader's zone."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=_ZONE.get())).timestamp())


def get_zone_name(when: datetime) -> str:
    """Return "CET"; "UTC-03" for a zone without an abbreviation of its own."""
    name = when.tzname() or "UTC"
    return f"UTC{name}" if name[0] in "+-" else name


def format_clock(moment: float, *, seconds: bool = False) -> str:
    when = localize(moment)
    clock = f"{when:%H:%M:%S}" if seconds else f"{when:%b} {when.day}, {when:%H:%M}"
    return f"{clock} {get_zone_name(when)}"


def get_axis_zone(moment: float) -> dict[str, str | int]:
    """Return name and offset of the zone at `moment`, the end of a chart.

    A chart has one offset: across a clock change its times stay evenly spaced and its name true.
    """
    when = localize(moment)
    offset = when.utcoffset()
    return {"name": get_zone_name(when), "offset_s": int(offset.total_seconds()) if offset else 0}
