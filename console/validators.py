"""Validators of model fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator


def plain_text(value: str) -> None:
    if not value.isprintable():
        text = "Line breaks and control characters are not allowed."
        raise ValidationError(text, "not_printable")


def between(low: float, high: float) -> list[Any]:
    return [MinValueValidator(low), MaxValueValidator(high)]


def check_texts(value: Any, limit: int, check: Callable[[str], object], text: str) -> None:
    """Raise unless it is a list of at most `limit` strings that `check` accepts."""
    if not isinstance(value, list) or len(value) > limit:
        raise ValidationError(f"Not a list of at most {limit} texts.", "type")
    for item in value:
        if not isinstance(item, str) or not check(item):
            raise ValidationError(f"{text}: {item!r}.", "invalid")
