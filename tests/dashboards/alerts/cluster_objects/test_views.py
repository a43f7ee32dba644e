"""Pages, REST and command line of cluster alert objects, and their permissions."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from console.clusters.models import Cluster, ClusterStatus
from console.core import uses
from console.core.environment import SettingError, load
from console.provisioners.kubernetes.discovery import rights
from console.provisioners.kubernetes.discovery.inventory import CapabilityFinding, Inventory
from dashboards.alerts.cluster_objects import actions, tasks
from dashboards.alerts.cluster_objects.models import ClusterAlerts, ClusterAlertsStatus
from tests.console.commandline.test_parser import refused, run
from tests.support import teams as made
from tests.support.console import browser, person, program
from tests.support.people import client_of
from tests.support.query_counts import check

pytestmark = pytest.mark.django_db
PAGES, API = "/alerts/clusters/", "/api/v1/alert-clusters/"
KEPT = Path(__file__).with_name("query_counts.json")


@pytest.fixture(autouse=True)
def prod() -> Cluster:
    row = Cluster.objects.create(name="prod", kind="in-cluster", namespace="models")
    ClusterStatus.objects.create(cluster=row)
    return row


def test_admin_configures_it_on_the_page() -> None:
    ada = browser("admin")
    assert "off" in ada.get(PAGES).text
    typed = {"rules": "on", "namespace": "watching", "labels": "release=prometheus\n\nteam = ml"}
    assert ada.post(f"{PAGES}prod/", typed).status_code == 302
    row = ClusterAlerts.objects.get()
    assert (row.rules, row.receivers, row.namespace) == (True, False, "watching")
    assert row.labels == {"release": "prometheus", "team": "ml"}
    page = ada.get(f"{PAGES}prod/").text
    assert "release=prometheus\nteam=ml" in page
    assert "Pending" in page
    for wrong, words in (
        ({"namespace": "No Such"}, "Lower-case letters, digits and hyphens"),
        ({"labels": "a b=c"}, "is not a valid key"),
        ({"labels": "a=b c"}, "cannot be the value of a label"),
        ({"labels": "app.kubernetes.io/name=x"}, "says that the object is this console"),
        ({"receivers": "on"}, "No Alertmanager is configured for prod"),
    ):
        answer = ada.post(f"{PAGES}prod/", {"rules": "on", **wrong})
        assert (answer.status_code, words in answer.text) in ((400, True), (409, True)), wrong
    assert ClusterAlerts.objects.get().generation == row.generation
    assert ada.get(f"{PAGES}nowhere/").status_code == 404


def test_result_is_shown() -> None:
    program("admin").patch(f"{API}prod/", {"rules": True}, format="json")
    words = {"phase": "Failed", "reason": "ClusterRefused", "message": "It does not let us."}
    there = [["PrometheusRule", "models", "emberline-alert-rules"]]
    facts = {**words, "observed_generation": 1, "there": there, "corrected": 2}
    ClusterAlertsStatus.objects.update(**facts)
    vera = browser("viewer")
    for path in (PAGES, f"{PAGES}prod/", "/alerts/rules/", "/clusters/prod/"):
        assert "It does not let us." in vera.get(path).text, path
    assert "disabled" in vera.get(f"{PAGES}prod/").text
    polled = vera.get(f"{PAGES}prod/", headers={"HX-Request": "true"}).text
    assert "It does not let us." in polled
    assert "<form" not in polled  # polling keeps form input
    assert vera.post(f"{PAGES}prod/", {"rules": ""}).status_code == 403
    (one,) = program("viewer").get(API).json()["results"]
    assert one["phase"] == "Failed"
    assert one["objects"] == ["PrometheusRule/emberline-alert-rules"]
    assert "PrometheusRule/emberline-alert-rules" in run("alert", "clusters", "-o", "yaml")


def test_rest_checks_versions_and_roles() -> None:
    ada = program("admin")
    seen = ada.get(f"{API}prod/")
    assert (seen.json()["phase"], seen.json()["namespace"]) == ("Off", "models")
    done = ada.patch(
        f"{API}prod/", {"rules": True}, format="json", headers={"If-Match": seen["ETag"]}
    )
    assert (done.status_code, done.json()["phase"]) == (200, "Pending")
    stale = ada.patch(f"{API}prod/", {"rules": False}, format="json", headers={"If-Match": '"7"'})
    assert stale.status_code == 412
    assert ada.patch(f"{API}prod/", {"rule": True}, format="json").status_code == 400
    assert ada.patch(f"{API}prod/", {"rules": "perhaps"}, format="json").status_code == 400
    assert ada.patch(f"{API}none/", {"rules": True}, format="json").status_code == 404
    operator = program("operator")
    assert operator.patch(f"{API}prod/", {"rules": False}, format="json").status_code == 403
    with pytest.raises(PermissionDenied):  # without REST's permission check too
        actions.change(person("operator"), "prod", {"rules": False})
    assert operator.post(f"{API}prod/check/").status_code == 202
    assert program("viewer").post(f"{API}prod/check/").status_code == 403


def test_team_members_see_none_of_it() -> None:
    program("admin").patch(f"{API}prod/", {"rules": True}, format="json")
    member = client_of(made.teams().gina)
    for path in (PAGES, f"{PAGES}prod/", API, f"{API}prod/"):
        assert member.get(path).status_code == 403, path
    assert "prod" not in member.get("/alerts/rules/").text
    assert "synced" in browser("viewer").get("/clusters/prod/").text
    assert "synced" not in member.get("/clusters/prod/").text


def test_command_line() -> None:
    assert "Off" in run("alert", "clusters")
    content = run("alert", "keep", "prod", "rules=true", 'labels={"release": "prometheus"}')
    assert "prod" in content
    assert ClusterAlerts.objects.get().labels == {"release": "prometheus"}
    assert refused("alert", "keep", "prod", "receivers=true")[0] != 0
    assert refused("alert", "keep", "nowhere", "rules=true")[0] == 4


def test_list_needs_a_constant_number_of_queries(prod: Cluster) -> None:
    for index in range(5):
        row = Cluster.objects.create(name=f"more-{index}", kind="in-cluster")
        ClusterStatus.objects.create(cluster=row)
        settings_row = ClusterAlerts.objects.create(cluster=row, rules=True)
        ClusterAlertsStatus.objects.create(alerts=settings_row)
    check(browser("viewer"), PAGES, KEPT)
    check(browser("viewer"), f"{PAGES}prod/", KEPT)


def test_installer_rights_are_listed_once(settings: Any) -> None:
    requested = {"alert_objects": ("rules",), "alert_object_labels": (("release", "prometheus"),)}
    tasks.sweep()
    assert not ClusterAlerts.objects.exists()  # not configured
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, **requested)
    tasks.sweep()
    assert not ClusterAlerts.objects.exists()  # the cluster does not exist yet
    row = Cluster.objects.create(name="in-cluster", kind="in-cluster")
    ClusterStatus.objects.create(cluster=row)
    tasks.sweep()
    made = ClusterAlerts.objects.get()
    assert (made.rules, made.receivers, made.labels) == (True, False, {"release": "prometheus"})
    ClusterAlerts.objects.update(rules=False)  # turned off by a user: stays off
    tasks.sweep()
    assert not ClusterAlerts.objects.get().rules


def test_installer_values_are_parsed(tmp_path: Path) -> None:
    plain = {**os.environ, "EMBERLINE_VAR": str(tmp_path)}
    content = {
        "EMBERLINE_ALERT_OBJECTS": "rules,receivers",
        "EMBERLINE_ALERT_OBJECT_LABELS": "release=prometheus, team=ml",
    }
    found = load({**plain, **content}, tmp_path)
    assert found.alert_objects == ("rules", "receivers")
    assert found.alert_object_labels == (("release", "prometheus"), ("team", "ml"))
    for name, wrong in (
        ("EMBERLINE_ALERT_OBJECTS", "rule"),
        ("EMBERLINE_ALERT_OBJECT_LABELS", "a"),
    ):
        with pytest.raises(SettingError, match=name):
            load({**plain, name: wrong}, tmp_path)


def test_receiver_rights_are_needed_where_receivers_are_stored(prod: Cluster) -> None:
    ClusterAlerts.objects.create(cluster=prod, rules=True)
    assert uses.of("rights", "prod") == []
    ClusterAlerts.objects.update(receivers=True)
    assert uses.of("rights", "prod") == [rights.RECEIVERS_GROUP]
    found = Inventory(findings=(CapabilityFinding("prometheus-operator", True),))
    titles = {one.title for one in rights.required_rights(found, uses.of("rights", "prod"))}
    assert "alertmanagerconfigs.monitoring.coreos.com" in titles
    assert "alertmanagerconfigs.monitoring.coreos.com" not in {
        one.title for one in rights.required_rights(found)
    }
