"""Cells of CSV files which a spreadsheet will open."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")
# What spreadsheets begin a formula with.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def spreadsheet(value: T) -> T | str:
    """A text that a spreadsheet would take for a formula is marked as text; numbers stay."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
