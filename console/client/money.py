"""Budgets, monthly reports, and what cache tiers cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from console.client.endpoints import Room


class Budgets(Room):
    path = "budgets/"

    def list(self) -> Iterator[dict[str, Any]]:
        return self.http.pages(self.path)

    def named(self, name: str) -> dict[str, Any] | None:
        return next((one for one in self.list() if one["name"] == name), None)

    def state(self, budget_id: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get(self._at(budget_id, "state")))

    def create(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.http.send("POST", self.path, dict(facts), once=True)
        return cast(dict[str, Any], answer.body)

    def change(self, budget_id: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.http.send("PATCH", self._at(budget_id), dict(facts))
        return cast(dict[str, Any], answer.body)

    def delete(self, budget_id: str) -> None:
        self.http.send("DELETE", self._at(budget_id))


class Reports(Room):
    path = "cost-reports/"

    def list(self) -> Iterator[dict[str, Any]]:
        return self.http.pages(self.path)

    def get(self, month: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get(self._at(month)))


class TierPrices(Room):
    path = "tier-prices/"

    def list(self) -> Iterator[dict[str, Any]]:
        return self.http.pages(self.path)

    def history(self, name: str) -> Iterator[dict[str, Any]]:
        return iter(self.http.get(self._at(name, "prices")))

    def set(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.http.send("PUT", self._at(name), dict(facts))
        return cast(dict[str, Any], answer.body)

    def forget(self, name: str) -> None:
        self.http.send("DELETE", self._at(name))
