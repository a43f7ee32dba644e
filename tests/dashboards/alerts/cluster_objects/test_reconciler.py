"""Reconciler of alert objects: create, update, revert, remove, and failures."""

from __future__ import annotations

import base64
import dataclasses
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.utils import timezone

from console.audit.models import AuditEvent
from console.clusters import actions as clusters
from console.clusters.models import Cluster as Row
from console.core import counters
from console.core.errors import Refused
from console.provisioners.kubernetes.discovery import rights
from console.provisioners.kubernetes.discovery.inventory import CapabilityFinding, Inventory
from dashboards.alerts.alertmanager import receivers
from dashboards.alerts.cluster_objects import reconciler, selectors
from dashboards.alerts.cluster_objects.models import ClusterAlerts
from dashboards.alerts.cluster_objects.objects import manifests
from dashboards.alerts.rules.rule_file import DEFAULT_SETTINGS
from dashboards.alerts.settings import actions as alerting
from tests.dashboards.alerts.cluster_objects.conftest import CONFIG, RULES, Kept, joined
from tests.support.console import make_endpoint, person
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

URL = "https://hooks.example.org/T0KEN"


def test_rules_are_applied_updated_and_removed(kept: Kept) -> None:
    make_endpoint("chat")
    shown = kept.set(rules=True, labels={"release": "prometheus"})
    assert (shown.phase, shown.status.reason) == ("Ready", "Kept")
    assert shown.objects == [f"PrometheusRule/{RULES}"]
    made = kept.find("PrometheusRule", RULES)
    assert made["metadata"]["labels"]["release"] == "prometheus"
    assert [one["manager"] for one in made["metadata"]["managedFields"]] == ["emberline"]
    alerts = kept.alerts()
    assert "> 2" in alerts["HighTTFT"]["expr"]
    assert "namespace" not in alerts["HighTTFT"]["labels"]
    assert not {"BudgetExceeded", "BudgetForecast"} & set(alerts)
    assert "MetricsAbsent" in alerts
    assert reconciler.find_due() == []
    alerting.set_rule(person("operator"), "HighTTFT", "", {"threshold": 3.5})
    assert reconciler.find_due() == [str(shown.cluster.pk)]  # detected without a notification
    assert kept.keep().status.corrected == 0
    assert "> 3.5" in kept.alerts()["HighTTFT"]["expr"]
    version = kept.find("PrometheusRule", RULES)["metadata"]["resourceVersion"]
    kept.keep()
    assert kept.find("PrometheusRule", RULES)["metadata"]["resourceVersion"] == version
    kept.set(rules=False)
    until(lambda: kept.keep().phase == "Off", what="its end")
    assert kept.find("PrometheusRule", RULES) is None
    assert AuditEvent.objects.filter(verb="alert-objects.update").count() == 2


def test_external_changes_are_reverted_and_reported(kept: Kept) -> None:
    kept.set(rules=True)
    before = counters.total("alert_objects_corrected", cluster="prod")
    groups = kept.find("PrometheusRule", RULES)["spec"]["groups"]
    groups[0]["rules"] = groups[0]["rules"][:1]
    spec = {"groups": [*groups[:1], {"name": "theirs", "rules": []}]}
    path = kept.cluster.api.path("PrometheusRule", kept.space, RULES)
    media = "application/merge-patch+json"
    kept.cluster.api.ask("PATCH", path, {"spec": spec}, media, fieldManager="kubectl-edit")
    shown = kept.keep()
    assert (shown.phase, shown.status.corrected) == ("Ready", 1)
    assert "kubectl-edit" in shown.status.correction
    assert counters.total("alert_objects_corrected", cluster="prod") == before + 1
    assert {"HighTTFT", "RouterDown"} <= set(kept.alerts())
    kept.cluster.api.delete("PrometheusRule", kept.space, RULES)
    until(lambda: kept.find("PrometheusRule", RULES) is None, what="its end")
    shown = kept.keep()
    assert shown.status.corrected == 2
    assert "was deleted" in shown.status.correction
    assert kept.find("PrometheusRule", RULES)
    assert kept.keep().status.corrected == 2


def test_receivers_are_stored_for_the_alertmanager(kept: Kept, settings: Any) -> None:
    receivers.create(person("admin"), {"name": "hook", "kind": "webhook", "url": URL})
    with pytest.raises(Refused, match="No Alertmanager is configured"):
        kept.set(receivers=True)
    with_one = dataclasses.replace(settings.EMBERLINE, alertmanager_url="http://127.0.0.1:9")
    without, settings.EMBERLINE = settings.EMBERLINE, with_one
    shown = kept.set(receivers=True, rules=True)
    assert (shown.phase, len(shown.objects)) == ("Ready", 3)
    (_, hook) = kept.find("AlertmanagerConfig", CONFIG)["spec"]["receivers"]
    assert hook["webhookConfigs"][0]["urlSecret"] == {"name": CONFIG, "key": "hook-url"}
    assert kept.alerts()["HighTTFT"]["labels"]["namespace"] == kept.space
    assert _address(kept) == URL
    receivers.change(person("admin"), "hook", {"url": f"{URL}2"})
    assert reconciler.find_due() == [str(shown.cluster.pk)]
    kept.keep()
    assert _address(kept) == f"{URL}2"
    theirs = {"data": {"hook-url": base64.b64encode(b"https://evil.example.org").decode()}}
    kept.cluster.api.merge("Secret", kept.space, CONFIG, theirs)
    shown = kept.keep()
    assert _address(kept) == f"{URL}2"
    assert shown.status.corrected == 1
    text = str([list(AuditEvent.objects.values()), shown.status.__dict__, shown.row.__dict__])
    assert "T0KEN" not in text
    assert "evil" not in text
    settings.EMBERLINE = without
    assert reconciler.find_due() == [str(shown.cluster.pk)]
    shown = kept.keep()  # the console sends again: the cluster must not
    assert (shown.phase, shown.status.reason) == ("Degraded", "NoAlertmanager")
    until(lambda: len(kept.keep().objects) == 1, what="their end")
    assert kept.find("AlertmanagerConfig", CONFIG) is kept.find("Secret", CONFIG) is None
    assert selectors.one("prod").objects == [f"PrometheusRule/{RULES}"]


def _address(kept: Kept) -> str:
    return base64.b64decode(kept.find("Secret", CONFIG)["data"]["hook-url"]).decode()


def test_foreign_objects_are_neither_written_nor_removed(kept: Kept, settings: Any) -> None:
    body = {"metadata": {"name": RULES}, "spec": {"groups": []}}
    kept.cluster.api.create("PrometheusRule", kept.space, body)
    shown = kept.set(rules=True)
    assert (shown.phase, shown.status.reason) == ("Failed", "NotOurs")
    kept.set(rules=False)
    assert kept.find("PrometheusRule", RULES)["spec"] == {"groups": []}
    kept.cluster.api.delete("PrometheusRule", kept.space, RULES)
    until(lambda: kept.set(rules=True).phase == "Ready", what="room for ours")
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, install_id="another")
    assert kept.keep().status.reason == "NotOurs"


def test_duplicate_is_reported_and_a_changed_namespace_moves_all_objects(kept: Kept) -> None:
    shown = kept.set(rules=True)
    groups = kept.find("PrometheusRule", RULES)["spec"]["groups"][:1]
    body = {"metadata": {"name": "emberline"}, "spec": {"groups": groups}}
    kept.cluster.api.create("PrometheusRule", kept.space, body)
    shown = kept.keep()
    assert (shown.phase, shown.status.reason) == ("Degraded", "RulesTwice")
    assert "PrometheusRule/emberline" in shown.status.message
    other = kept.cluster.namespace()
    assert kept.set(namespace=other).phase == "Ready"
    until(lambda: len(kept.keep().objects) == 1, what="the end of the first")
    assert kept.find("PrometheusRule", RULES) is None
    assert kept.cluster.api.find("PrometheusRule", other, RULES)


def test_missing_permission_is_named(cluster: Cluster, db: None) -> None:
    kept = joined(cluster, "person-7")
    shown = kept.set(rules=True)
    assert (shown.phase, shown.status.reason) == ("Failed", "ClusterRefused")
    assert '"prometheusrules"' in shown.status.message
    assert shown.status.due_at > timezone.now()


def test_displayed_role_is_sufficient(cluster: Cluster, db: None, settings: Any) -> None:
    kept = joined(cluster, "person-6")
    there = Inventory(findings=(CapabilityFinding("prometheus-operator", True),))
    needed = [
        one for one in rights.required_rights(there, (rights.RECEIVERS_GROUP,)) if not one.cluster
    ]
    for body in yaml.safe_load_all(rights.manifest(needed, "person-6", kept.space)):
        cluster.api.create(body["kind"], kept.space, body)
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, alertmanager_url="http://a.test")
    receivers.create(person("admin"), {"name": "hook", "kind": "webhook", "url": URL})
    kept.set(rules=True, receivers=True)
    until(lambda: kept.keep().phase == "Ready", what="the Role in force")
    kept.set(rules=False, receivers=False)
    until(lambda: kept.keep().phase == "Off", what="their end")


def test_unreachable_cluster_keeps_its_objects_and_is_not_forgotten(faked: Kept) -> None:
    faked.set(rules=True)
    with pytest.raises(Refused, match="alert rules of this console"):
        clusters.remove_cluster(person("admin"), "prod")
    faked.cluster.plane.stop_api()
    try:
        shown = faked.set(rules=False)
        assert (shown.phase, shown.status.reason) == ("Deleting", "ClusterUnreachable")
        assert reconciler.find_due() == []
        assert selectors.clusters_in_use() == {}  # unreachable for long: may be deleted
    finally:
        faked.cluster.plane.start_api()
    until(lambda: faked.keep().phase == "Off", what="deleted after the API server returned")
    assert faked.find("PrometheusRule", RULES) is None


def test_partial_failure_is_not_taken_for_an_external_change(faked: Kept) -> None:
    with faked.cluster.plane.failing("PATCH .*/prometheusrules/", 503, times=1):
        shown = faked.set(rules=True)
    assert (shown.phase, shown.objects) == ("Failed", [f"PrometheusRule/{RULES}"])
    with faked.cluster.plane.failing("PATCH .*/prometheusrules/", done=True, times=1):
        shown = faked.keep()
    assert (shown.phase, shown.status.corrected) == ("Failed", 0)
    shown = faked.keep()
    assert (shown.phase, shown.status.corrected) == ("Ready", 0)
    with faked.cluster.plane.failing("DELETE .*/prometheusrules/", 503, times=1):
        assert faked.set(rules=False).phase == "Deleting"
    until(lambda: faked.keep().objects == [], what="deleted in the foreground")


def test_cluster_without_the_operator_is_reported(faked: Kept) -> None:
    row = selectors.one("prod").cluster
    finding = {"name": "prometheus-operator", "present": False, "why_not": "No podmonitors."}
    type(row.status).objects.filter(cluster=row).update(
        inventory={"findings": [finding]}, seen_at=timezone.now() - timedelta(seconds=5)
    )
    shown = faked.set(rules=True)
    assert (shown.phase, shown.status.reason) == ("Failed", "MissingCapability")
    assert "Prometheus Operator" in shown.status.message
    assert faked.find("PrometheusRule", RULES) is None


def test_budgets_are_evaluated_where_the_console_is_scraped(db: None) -> None:
    place = manifests.Placement("a", "n", {})
    for beside in (True, False):
        made = manifests.build_rules(DEFAULT_SETTINGS, place, routed=False, with_console=beside)
        groups = {one["name"] for one in made["spec"]["groups"]}
        assert ("emberline-cost" in groups) is beside
    row = Row.objects.create(name="in-cluster", kind="in-cluster", namespace="n")
    settings_row = ClusterAlerts(cluster=row, rules=True)
    (body,) = reconciler.build_desired(settings_row, reconciler.load_facts()).bodies
    assert "emberline-cost" in {one["name"] for one in body["spec"]["groups"]}
