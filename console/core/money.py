"""Amounts of US dollars as text: the one format of pages, charts and the command line."""

from __future__ import annotations

import math

UNKNOWN = "–"


def format_usd(amount: float | None) -> str:
    """1234.5 -> "$1,234.50", 0.2 -> "$0.20", 0.000123 -> "$0.00012", unknown -> a dash.

    Amounts under 10 cents have two significant digits.
    """
    if amount is None:
        return UNKNOWN
    sign, size = ("-" if amount < 0 else ""), abs(amount)
    if size == 0 or size >= 0.0995:
        return f"{sign}${size:,.2f}"
    digits = max(2, 1 - math.floor(math.log10(size)))
    text = f"{size:.{digits}f}"
    # 0.050 -> 0.05, but 0.1 stays 0.10
    while text.endswith("0") and len(text.partition(".")[2]) > 2:
        text = text[:-1]
    return f"{sign}${text}"


def format_usd_hour(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{format_usd(amount)}/h"
