"""Zone names, local times and chart offsets."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest

from console.core import local_time

END = 1_795_003_600  # 2026-11-18 12:06:40 UTC


@pytest.fixture(autouse=True)
def back_to_utc() -> Iterator[None]:
    yield
    local_time.use_zone(None)


@pytest.mark.parametrize(
    ("zone", "clock"),
    [
        (None, "Nov 18, 12:06 UTC"),
        ("Europe/Berlin", "Nov 18, 13:06 CET"),
        ("America/Sao_Paulo", "Nov 18, 09:06 UTC-03"),
    ],
)
def test_time_names_its_zone(zone: str | None, clock: str) -> None:
    local_time.use_zone(ZoneInfo(zone) if zone else None)
    assert local_time.format_clock(END) == clock


def test_typed_time_is_local_unless_it_has_an_offset() -> None:
    local_time.use_zone(ZoneInfo("Europe/Berlin"))
    for text in ("2026-11-18T13:06:40", "2026-11-18T12:06:40Z", "2026-11-18T07:06:40-05:00"):
        assert local_time.parse_local(text) == END
    assert local_time.get_axis_zone(END) == {"name": "CET", "offset_s": 3600}
    assert local_time.get_axis_zone(END - 90 * 86_400) == {"name": "CEST", "offset_s": 7200}
