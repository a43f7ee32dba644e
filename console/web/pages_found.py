"""What the quick search finds of the shell itself: the pages of the menu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.accounts.permissions import allows, allows_somewhere
from console.web.shell import navigation
from console.web.shell.search import Hit


def find(viewer: Any, text: str) -> Sequence[Hit]:
    found = []
    for item in navigation.items():
        may = (allows_somewhere if item.role == "viewer" else allows)(viewer, item.role)
        url = navigation.url_of(item)
        if may and url and text.casefold() in item.label.casefold():
            found.append(Hit("page", item.label, url, item.icon))
    return found
