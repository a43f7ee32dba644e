"""Alerts, notifications, dashboards and costs: one method per API operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote

from console.client import documents
from console.client.endpoints import ResourceClient


class Alerts(ResourceClient):
    """Alerts and rules. `endpoint` "" selects the settings shared by all endpoints."""

    path = "alert-rules/"

    def active(self, **filters: Any) -> Iterator[dict[str, Any]]:
        return self.http.pages("alerts/", filters)

    def rules(self, endpoint: str = "") -> Iterator[dict[str, Any]]:
        path = self._mine(endpoint) if endpoint else self.path
        return self.http.pages(path)

    def get(self, rule: str, endpoint: str = "") -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get(self._one(rule, endpoint)))

    def create(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.send("POST", self.path, rule, once=True).body)

    def set(self, rule: str, wish: Mapping[str, Any], endpoint: str = "") -> dict[str, Any]:
        """Change fields; omitted ones are kept, None resets one."""
        answer = self.http.send("PATCH", self._one(rule, endpoint), wish)
        return cast(dict[str, Any], answer.body)

    def dry_run(self, rule: str, wish: Mapping[str, Any], endpoint: str = "") -> dict[str, Any]:
        """Evaluate `wish` over its `range` without changing anything; "" is a rule that does not
        exist yet.
        """
        path = self._one(rule, endpoint) if rule else self.path
        return cast(dict[str, Any], self.http.send("POST", f"{path}dry-run/", wish).body)

    def reset(self, rule: str, endpoint: str = "") -> None:
        """Reset a rule to its defaults or, for an endpoint, to the shared settings; delete a custom
        rule.
        """
        self.http.send("DELETE", self._one(rule, endpoint))

    def file(self) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get("alert-rule-file/"))

    def clusters(self) -> Iterator[dict[str, Any]]:
        """Yield the clusters that store rules and receivers as objects."""
        return self.http.pages("alert-clusters/")

    def keep(self, cluster: str, wish: Mapping[str, Any]) -> dict[str, Any]:
        """Set which objects a cluster stores; omitted fields are kept."""
        path = f"alert-clusters/{quote(cluster, safe='')}/"
        return cast(dict[str, Any], self.http.send("PATCH", path, wish).body)

    def _one(self, rule: str, endpoint: str) -> str:
        if not endpoint:
            return self._at(rule)
        return f"{self._mine(endpoint)}{quote(rule, safe='')}/"

    @staticmethod
    def _mine(endpoint: str) -> str:
        return f"endpoints/{quote(endpoint, safe='')}/alert-rules/"


class Silences(ResourceClient):
    path = "silences/"

    def list(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Yield silences, latest first, filtered by `state` and `endpoint`."""
        return self.http.pages(self.path, filters)

    def add(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Create from `matchers` (a list), `comment`, and `duration` or `ends_at`."""
        return cast(dict[str, Any], self.http.send("POST", self.path, facts, once=True).body)

    def change(self, silence: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.send("PATCH", self._at(silence), facts).body)

    def expire(self, silence: str) -> None:
        self.http.send("DELETE", self._at(silence))


class Receivers(ResourceClient):
    path = "receivers/"

    def list(self) -> Iterator[dict[str, Any]]:
        return self.http.pages(self.path)

    def test(self, name: str) -> dict[str, Any]:
        """Send a test message and return the result."""
        return cast(dict[str, Any], self.http.send("POST", self._at(name, "test")).body)

    def file(self) -> dict[str, Any]:
        """Return all receivers and routes as an Alertmanager configuration."""
        return cast(dict[str, Any], self.http.get("alertmanager-config/"))


class Grafana(ResourceClient):
    path = "grafana/dashboards/"

    def list(self) -> Iterator[documents.GrafanaDashboard]:
        return cast(Iterator[documents.GrafanaDashboard], self.http.pages(self.path))

    def get(self, uid: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get(self._at(uid)))

    def export(self, *, recorded: bool = False) -> tuple[documents.ExportedFile, ...]:
        """Return all dashboards, alert rules and recording rules; `recorded` is for large
        deployments.
        """
        params = {"recorded": True} if recorded else {}
        return tuple(self.http.get("grafana/export/", params)["files"])


class Budgets(ResourceClient):
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


class Reports(ResourceClient):
    path = "cost-reports/"

    def list(self) -> Iterator[dict[str, Any]]:
        return self.http.pages(self.path)

    def get(self, month: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get(self._at(month)))


class TierPrices(ResourceClient):
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
