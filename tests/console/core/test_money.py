"""US dollars have one format everywhere."""

from __future__ import annotations

import pytest

from console.core.money import format_usd, format_usd_hour


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.2, "$0.20"),
        (0, "$0.00"),
        (1234.5, "$1,234.50"),
        (0.1008, "$0.10"),
        (0.0995, "$0.10"),
        (0.05, "$0.05"),
        (0.0512, "$0.051"),
        (0.000123, "$0.00012"),
        (-0.2, "-$0.20"),
        (None, "–"),
    ],
)
def test_amounts(amount: float | None, text: str) -> None:
    assert format_usd(amount) == text


def test_hourly_amounts() -> None:
    assert format_usd_hour(1.5) == "$1.50/h"
    assert format_usd_hour(None) == "–"
