"""The kind of name in URLs which is a board's key."""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import SlugConverter

from dashboards.boards.panels import BOARDS


class BoardKey(SlugConverter):
    """A key no board has is no address."""

    def to_python(self, value: str) -> str:
        if value not in BOARDS:
            raise ValueError(value)
        return value


def register() -> None:
    """`<board:board>`; called once, before any address is looked up."""
    register_converter(BoardKey, "board")
