"""Clusters, cache tiers, prices, people, alerts and dashboards: one method per API operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote

from console.client import documents
from console.client.http import Document, ListClient, ObjectClient, ResourceClient


class Clusters(ObjectClient[documents.Cluster]):
    path = "clusters/"

    def add(self, name: str, facts: Mapping[str, Any]) -> documents.Cluster:
        return self.create({"name": name, **facts})

    def check(self, name: str) -> documents.Cluster:
        """Check the cluster now and wait for the result."""
        answer = self.http.send("POST", self._at(name, "check"), params={"wait": True})
        return cast(documents.Cluster, answer.body)

    def role(self, name: str, *, namespace: str = "", follow: bool = False) -> str:
        """Return YAML of the Role with the missing rights, or of a full one for a namespace or
        `follow`.
        """
        params = {"namespace": namespace, **({"follow": True} if follow else {})}
        return self.http.text(self._at(name, "role"), params)

    def remove(self, name: str) -> None:
        self.delete(name)


class Follows(ListClient[Document]):
    path = "follows/"

    def add(self, cluster: str, namespace: str, *, foreign: bool = False) -> Document:
        data = {"cluster": cluster, "namespace": namespace, "foreign": foreign}
        return self._send("POST", self.path, data, once=True)

    def remove(self, follow_id: str) -> None:
        self.http.send("DELETE", self._at(follow_id))


class CacheTiers(ListClient[documents.CacheTier]):
    path = "cache-tiers/"

    def create(self, name: str, facts: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        params = {"dry_run": True} if dry_run else {}
        data = {"name": name, **facts}
        return self.http.send("POST", self.path, data, params=params, once=True).body

    def change(self, name: str, facts: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        params = {"dry_run": True} if dry_run else {}
        return self.http.send("PATCH", self._at(name), facts, params=params).body

    def delete(self, name: str) -> Any:
        return self.http.send("DELETE", self._at(name)).body

    def contents(self, name: str) -> Document:
        return self._get(self._at(name, "contents"))

    def flush(self, name: str, namespace: str = "") -> int:
        """Return the number of values deleted; "" selects every namespace."""
        return int(self._send("POST", self._at(name, "flush"), {"namespace": namespace})["dropped"])


class InstanceTypes(ObjectClient[documents.InstanceType]):
    path = "instance-types/"

    def forget(self, name: str) -> None:
        """Delete the settings; a built-in type returns to its defaults."""
        self.delete(name)


class Models(ListClient[documents.Model]):
    path = "models/"

    def check(self, name: str, *, cluster: str = "") -> documents.CheckedModel:
        """Look the name up on Hugging Face, for at most 2.5 s."""
        data = {"name": name, "cluster": cluster}
        return cast(documents.CheckedModel, self._send("POST", f"{self.path}check/", data))


class MetricsSources(ObjectClient[Document]):
    path = "metrics-sources/"

    def add(self, name: str, facts: Mapping[str, Any]) -> Document:
        return self.create({"name": name, **facts})

    def test(self, name: str) -> Document:
        """Test the source now, for at most about ten seconds."""
        return self._send("POST", self._at(name, "test"))

    def remove(self, name: str) -> None:
        self.delete(name)


class UserClient(ListClient[Document]):
    path = "users/"

    def create(self, username: str, role: str = "") -> Document:
        """Create a user. Only this response contains `password`."""
        data = {"username": username, **({"role": role} if role else {})}
        return self._send("POST", self.path, data, once=True)

    def change(self, username: str, facts: Mapping[str, Any]) -> Document:
        """Change `role` or `active`; False ends all sessions and blocks the login."""
        return self._send("PATCH", self._at(username), facts)

    def reset_password(self, username: str) -> str:
        """Return the new password, which is not available again."""
        return str(self.new_password(username)["password"])

    def new_password(self, username: str) -> Document:
        """Return `password`, which is not available again, and the number of ended sessions and
        tokens.
        """
        return self._send("POST", self._at(username, "password"))


class Teams(ObjectClient[Document]):
    path = "teams/"

    def members(self, slug: str) -> Iterator[Document]:
        return self.http.pages(self._at(slug, "members"))

    def set_member(self, slug: str, username: str, role: str) -> Document:
        return self._send("PUT", self._at(slug, "members", username), {"role": role})

    def remove_member(self, slug: str, username: str) -> None:
        self.http.send("DELETE", self._at(slug, "members", username))


class TokenClient(ObjectClient[Document]):
    """API tokens; only the response of `create` contains `token`."""

    path = "tokens/"

    def revoke(self, token_id: str) -> None:
        self.delete(token_id)


class Audit(ListClient[Document]):
    """Audit log entries, latest first."""

    path = "audit/"


class AlertRoutes(ObjectClient[Document]):
    """Which alerts go to which receiver."""

    path = "alert-routes/"


class Alerts(ResourceClient):
    """Alerts and rules. `endpoint` "" selects the settings shared by all endpoints."""

    path = "alert-rules/"

    def active(self, **filters: Any) -> Iterator[Document]:
        return self.http.pages("alerts/", filters)

    def history(self, **filters: Any) -> Iterator[Document]:
        """Yield pending and firing intervals with their notifications, latest first."""
        return self.http.pages("alert-history/", filters)

    def acknowledge(self, alert: str, endpoint: str = "", **facts: Any) -> Document:
        """Stop repeat notifications until the alert is resolved; `note` and `duration`."""
        body = {"alert": alert, **({"endpoint": endpoint} if endpoint else {}), **facts}
        return self._send("POST", "acknowledgements/", body, once=True)

    def undo_acknowledgement(self, identity: str) -> None:
        self.http.send("DELETE", f"acknowledgements/{quote(identity, safe='')}/")

    def rules(self, endpoint: str = "") -> Iterator[Document]:
        path = self._mine(endpoint) if endpoint else self.path
        return self.http.pages(path)

    def get(self, rule: str, endpoint: str = "") -> Document:
        return self._get(self._one(rule, endpoint))

    def create(self, rule: Mapping[str, Any]) -> Document:
        return self._send("POST", self.path, rule, once=True)

    def set(self, rule: str, body: Mapping[str, Any], endpoint: str = "") -> Document:
        """Change fields; omitted ones are kept, None resets one."""
        return self._send("PATCH", self._one(rule, endpoint), body)

    def dry_run(self, rule: str, body: Mapping[str, Any], endpoint: str = "") -> Document:
        """Evaluate `body` over its `range` without changing anything; "" is a rule that does not
        exist yet.
        """
        path = self._one(rule, endpoint) if rule else self.path
        return self._send("POST", f"{path}dry-run/", body)

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

    def keep(self, cluster: str, body: Mapping[str, Any]) -> Document:
        """Set which objects a cluster stores; omitted fields are kept."""
        path = f"alert-clusters/{quote(cluster, safe='')}/"
        return self._send("PATCH", path, body)

    def _one(self, rule: str, endpoint: str) -> str:
        if not endpoint:
            return self._at(rule)
        return f"{self._mine(endpoint)}{quote(rule, safe='')}/"

    @staticmethod
    def _mine(endpoint: str) -> str:
        return f"endpoints/{quote(endpoint, safe='')}/alert-rules/"


class Silences(ObjectClient[Document]):
    """Silences and acknowledgements, latest first, filtered by `state`, `endpoint` and `kind`."""

    path = "silences/"

    def add(self, facts: Mapping[str, Any]) -> Document:
        """Create from `matchers` (a list), `comment`, and `duration` or `ends_at`."""
        return self.create(facts)

    def expire(self, silence: str) -> None:
        self.delete(silence)


class Receivers(ObjectClient[Document]):
    path = "receivers/"

    def add(self, name: str, facts: Mapping[str, Any]) -> Document:
        return self.create({"name": name, **facts})

    def remove(self, name: str) -> None:
        self.delete(name)

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

    def export(self) -> tuple[documents.ExportedFile, ...]:
        """Return all dashboards, alert rules and recording rules."""
        return tuple(self.http.get("grafana/export/")["files"])


class CustomBoards(ObjectClient[Document]):
    path = "custom-boards/"

    def export(self, board_id: str) -> Document:
        """Return title and panels, as `create` takes them."""
        return self._get(self._at(board_id, "export"))


class Budgets(ObjectClient[Document]):
    path = "budgets/"

    def named(self, name: str) -> Document | None:
        return next((row for row in self.list() if row["name"] == name), None)

    def state(self, budget_id: str) -> Document:
        return self._get(self._at(budget_id, "state"))


class Reports(ListClient[Document]):
    """Cost reports by month."""

    path = "cost-reports/"


class TierPrices(ObjectClient[Document]):
    path = "tier-prices/"

    def history(self, name: str) -> Iterator[Document]:
        return iter(self.http.get(self._at(name, "prices")))

    def forget(self, name: str) -> None:
        self.delete(name)


class Prices(ObjectClient[Document]):
    """Instance types in use without a price."""

    path = "costs/prices/"

    def list(self, **_filters: Any) -> Iterator[Document]:
        return iter(self.http.get(self.path))


class Calibrations(ResourceClient):
    """Prefill time per prompt token. Without a name, the default for all endpoints is meant."""

    def get(self, name: str) -> Document:
        return self._get(f"endpoints/{quote(name, safe='')}/calibration/")

    def start(self, name: str) -> Document:
        return self._send("POST", f"endpoints/{quote(name, safe='')}/calibration/")

    def switch(self, name: str, enabled: bool | None) -> Document:
        path = f"endpoints/{quote(name, safe='')}" if name else "costs"
        return self._send("PATCH", f"{path}/auto-calibration/", {"auto_calibration": enabled})
