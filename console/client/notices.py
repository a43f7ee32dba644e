"""Who is told of alerts, and when not: silences, receivers, and what was sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from console.client.endpoints import Room


class Silences(Room):
    path = "silences/"

    def list(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Latest first; `state` and `endpoint` narrow it."""
        return self.http.pages(self.path, filters)

    def add(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """`matchers` (a list), `comment`, and `duration` or `ends_at`."""
        return cast(dict[str, Any], self.http.send("POST", self.path, facts, once=True).body)

    def change(self, silence: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What is left out stays."""
        return cast(dict[str, Any], self.http.send("PATCH", self._at(silence), facts).body)

    def expire(self, silence: str) -> None:
        self.http.send("DELETE", self._at(silence))


class Receivers(Room):
    path = "receivers/"

    def list(self) -> Iterator[dict[str, Any]]:
        return self.http.pages(self.path)

    def test(self, name: str) -> dict[str, Any]:
        """What became of a message that was sent at once."""
        return cast(dict[str, Any], self.http.send("POST", self._at(name, "test")).body)

    def file(self) -> dict[str, Any]:
        """All receivers and routes, for an Alertmanager."""
        return cast(dict[str, Any], self.http.get("alertmanager-config/"))
