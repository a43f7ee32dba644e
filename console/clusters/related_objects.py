"""Registry of objects that other apps keep in a cluster, for the cluster page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RelatedObject:
    """State of the objects; `text` is "" if healthy, `phase` "" if there are none.

    `link_text` is the link text of `url`.
    """

    title: str
    link_text: str
    phase: str
    reason: str = ""
    text: str = ""
    url: str = ""


DescribeRelated = Callable[[str, Any], RelatedObject | None]
_describers: list[DescribeRelated] = []


def register_related(describe: DescribeRelated) -> None:
    """Register `describe(cluster, viewer)`, which may return None; called from AppConfig.ready."""
    if describe not in _describers:
        _describers.append(describe)


def list_related(cluster: str, viewer: Any) -> list[RelatedObject]:
    return [line for describe in _describers if (line := describe(cluster, viewer)) is not None]
