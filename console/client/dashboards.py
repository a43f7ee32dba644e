"""Alerts and the rules that say so: each method one operation of the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote

from console.client.endpoints import Room


class Alerts(Room):
    """`endpoint` "" means the numbers of all endpoints."""

    path = "alert-rules/"

    def active(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """What fires, and what has not held for long enough."""
        return self.http.pages("alerts/", filters)

    def rules(self, endpoint: str = "") -> Iterator[dict[str, Any]]:
        path = self._mine(endpoint) if endpoint else self.path
        return self.http.pages(path)

    def get(self, rule: str, endpoint: str = "") -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get(self._one(rule, endpoint)))

    def create(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.send("POST", self.path, rule, once=True).body)

    def set(self, rule: str, wish: Mapping[str, Any], endpoint: str = "") -> dict[str, Any]:
        """What is left out stays; None takes a word back."""
        answer = self.http.send("PATCH", self._one(rule, endpoint), wish)
        return cast(dict[str, Any], answer.body)

    def dry_run(self, rule: str, wish: Mapping[str, Any], endpoint: str = "") -> dict[str, Any]:
        """What it would have done with the wish over the wish's `range`; "" is a rule of one's own
        that is not written yet. Nothing is changed."""
        path = self._one(rule, endpoint) if rule else self.path
        return cast(dict[str, Any], self.http.send("POST", f"{path}dry-run/", wish).body)

    def reset(self, rule: str, endpoint: str = "") -> None:
        """As it was built in, or as all endpoints have it; a rule of one's own is gone."""
        self.http.send("DELETE", self._one(rule, endpoint))

    def file(self) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get("alert-rule-file/"))

    def clusters(self) -> Iterator[dict[str, Any]]:
        """Where rules and receivers are kept as objects."""
        return self.http.pages("alert-clusters/")

    def keep(self, cluster: str, wish: Mapping[str, Any]) -> dict[str, Any]:
        """What of them is kept in a cluster; what is left out stays."""
        path = f"alert-clusters/{quote(cluster, safe='')}/"
        return cast(dict[str, Any], self.http.send("PATCH", path, wish).body)

    def _one(self, rule: str, endpoint: str) -> str:
        if not endpoint:
            return self._at(rule)
        return f"{self._mine(endpoint)}{quote(rule, safe='')}/"

    @staticmethod
    def _mine(endpoint: str) -> str:
        return f"endpoints/{quote(endpoint, safe='')}/alert-rules/"
