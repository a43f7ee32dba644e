"""Alerts, notifications, dashboards and costs: one method per API operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote

from console.client import documents
from console.client.http import Document, ObjectClient, ResourceClient


class Alerts(ResourceClient):
    """Alerts and rules. `endpoint` "" selects the settings shared by all endpoints."""

    path = "alert-rules/"

    def active(self, **filters: Any) -> Iterator[Document]:
        return self.http.pages("alerts/", filters)

    def rules(self, endpoint: str = "") -> Iterator[Document]:
        path = self._mine(endpoint) if endpoint else self.path
        return self.http.pages(path)

    def get(self, rule: str, endpoint: str = "") -> Document:
        return self._get(self._one(rule, endpoint))

    def create(self, rule: Mapping[str, Any]) -> Document:
        return self._send("POST", self.path, rule, once=True)

    def set(self, rule: str, wish: Mapping[str, Any], endpoint: str = "") -> Document:
        """Change fields; omitted ones are kept, None resets one."""
        return self._send("PATCH", self._one(rule, endpoint), wish)

    def dry_run(self, rule: str, wish: Mapping[str, Any], endpoint: str = "") -> Document:
        """Evaluate `wish` over its `range` without changing anything; "" is a rule that does not
        exist yet.
        """
        path = self._one(rule, endpoint) if rule else self.path
        return self._send("POST", f"{path}dry-run/", wish)

    def reset(self, rule: str, endpoint: str = "") -> None:
        """Reset a rule to its defaults or, for an endpoint, to the shared settings; delete a custom
        rule.
        """
        self.http.send("DELETE", self._one(rule, endpoint))

    def file(self) -> Document:
        return self._get("alert-rule-file/")

    def clusters(self) -> Iterator[Document]:
        """Yield the clusters that store rules and receivers as objects."""
        return self.http.pages("alert-clusters/")

    def keep(self, cluster: str, wish: Mapping[str, Any]) -> Document:
        """Set which objects a cluster stores; omitted fields are kept."""
        path = f"alert-clusters/{quote(cluster, safe='')}/"
        return self._send("PATCH", path, wish)

    def _one(self, rule: str, endpoint: str) -> str:
        if not endpoint:
            return self._at(rule)
        return f"{self._mine(endpoint)}{quote(rule, safe='')}/"

    @staticmethod
    def _mine(endpoint: str) -> str:
        return f"endpoints/{quote(endpoint, safe='')}/alert-rules/"


class Silences(ObjectClient[Document]):
    """Silences, latest first, filtered by `state` and `endpoint`."""

    path = "silences/"

    def add(self, facts: Mapping[str, Any]) -> Document:
        """Create from `matchers` (a list), `comment`, and `duration` or `ends_at`."""
        return self.create(facts)

    def expire(self, silence: str) -> None:
        self.delete(silence)


class Receivers(ResourceClient):
    path = "receivers/"

    def list(self) -> Iterator[Document]:
        return self.http.pages(self.path)

    def test(self, name: str) -> Document:
        """Send a test message and return the result."""
        return self._send("POST", self._at(name, "test"))

    def file(self) -> Document:
        """Return all receivers and routes as an Alertmanager configuration."""
        return self._get("alertmanager-config/")


class Grafana(ResourceClient):
    path = "grafana/dashboards/"

    def list(self) -> Iterator[documents.GrafanaDashboard]:
        return cast(Iterator[documents.GrafanaDashboard], self.http.pages(self.path))

    def get(self, uid: str) -> Document:
        return self._get(self._at(uid))

    def export(self, *, recorded: bool = False) -> tuple[documents.ExportedFile, ...]:
        """Return all dashboards, alert rules and recording rules; `recorded` is for large
        deployments.
        """
        params = {"recorded": True} if recorded else {}
        return tuple(self.http.get("grafana/export/", params)["files"])


class Budgets(ObjectClient[Document]):
    path = "budgets/"

    def named(self, name: str) -> Document | None:
        return next((one for one in self.list() if one["name"] == name), None)

    def state(self, budget_id: str) -> Document:
        return self._get(self._at(budget_id, "state"))


class Reports(ObjectClient[Document]):
    """Cost reports by month."""

    path = "cost-reports/"


class TierPrices(ObjectClient[Document]):
    path = "tier-prices/"

    def history(self, name: str) -> Iterator[Document]:
        return iter(self.http.get(self._at(name, "prices")))

    def forget(self, name: str) -> None:
        self.delete(name)
