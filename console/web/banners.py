"""Facts that must stand on every page, such as "some workers are simulated".

An app registers a provider; the shell asks them all. A provider that fails is logged and skipped:
no page may fail because of a banner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from console.accounts.permissions import Somebody

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Banner:
    """`level` is Tabler's word: info, warning, danger. `key` "simulated" is known to the shell."""

    key: str
    level: str
    title: str
    text: str


Provider = Callable[[Somebody], Banner | None]
_providers: list[Provider] = []


def register(provider: Provider) -> None:
    """`provider` makes at most one cheap query, of what the viewer may know of; None means nothing
    to say."""
    if provider not in _providers:
        _providers.append(provider)


def banners(viewer: Somebody) -> list[Banner]:
    found = []
    for provider in _providers:
        try:
            banner = provider(viewer)
        except Exception:
            log.exception("a banner's provider failed")
            continue
        if banner is not None:
            found.append(banner)
    return found
