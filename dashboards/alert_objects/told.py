"""How alerts in clusters go, for pages of other rooms. For people with a role everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.urls import reverse

from console.accounts.permissions import allows
from console.clusters.related_objects import Line
from dashboards.alerts.cluster_objects import selectors


def line(cluster: str, viewer: Any) -> Line | None:
    """Of the cluster's page: a link where nothing is kept."""
    return _line(selectors.one(cluster)) if allows(viewer, "viewer") else None


def lines(viewer: Any) -> list[Line]:
    """Of every cluster where something is kept, or is being removed."""
    if not allows(viewer, "viewer"):
        return []
    rows = [one for one in selectors.shown() if one.phase != selectors.OFF]
    return [replace(_line(one), title=one.name) for one in rows]


def _line(one: selectors.Shown) -> Line:
    page = reverse("alert_objects:cluster", args=[one.name])
    if one.phase == selectors.OFF:
        return Line("Alert rules", "not kept there", "", url=page)
    text = one.status.message if one.trouble or one.phase == "Deleting" else ""
    return Line("Alert rules", "kept there", one.phase, one.status.reason, text, page)
