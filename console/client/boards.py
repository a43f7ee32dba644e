"""Boards as Grafana's dashboards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from console.client import documents
from console.client.endpoints import Room


class Grafana(Room):
    path = "grafana/dashboards/"

    def list(self) -> Iterator[documents.GrafanaDashboard]:
        return cast(Iterator[documents.GrafanaDashboard], self.http.pages(self.path))

    def get(self, uid: str) -> dict[str, Any]:
        """As Grafana imports it."""
        return cast(dict[str, Any], self.http.get(self._at(uid)))

    def export(self, *, recorded: bool = False) -> tuple[documents.ExportedFile, ...]:
        """All dashboards, with the alert rules and the recording rules; `recorded` is for large
        fleets."""
        params = {"recorded": True} if recorded else {}
        return tuple(self.http.get("grafana/export/", params)["files"])
