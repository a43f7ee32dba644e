"""Cluster actions: permissions, errors, stored and displayed data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as live
from django.core.exceptions import PermissionDenied
from django.db import connection
from pytest_django import Settings

from console.audit.models import AuditEvent
from console.audit.record import record
from console.claims import take_claim
from console.clusters import actions, refresh, selectors, tasks
from console.clusters.models import Cluster, ClusterStatus
from console.core import uses
from console.core.errors import Refused
from console.provisioners.base import PermanentError, Ref
from console.tasks import BaseTask
from console.vault import key_rotation
from tests.console.clusters.conftest import EVERYTHING, kubeconfig
from tests.support.http_stub import Stub
from tests.support.kube.cluster import Cluster as FakeKube
from tests.support.people import Cast
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
REVIEWS = "/apis/authorization.k8s.io/v1"


def add(people: Cast, url: str = "https://k.example", **data: Any) -> Cluster:
    facts = {"kind": "kubeconfig", "kubeconfig": kubeconfig(url), **data}
    return actions.add_cluster(people.ada, "work", facts)


def test_kubeconfig_is_stored_encrypted_and_never_shown(people: Cast) -> None:
    cluster = add(people)
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM clusters_cluster")
        assert "s3cret" not in str(cursor.fetchall())
    event = AuditEvent.objects.get(target="cluster/work", verb="cluster.create")
    assert event.changes["kubeconfig"] == "(hidden)"
    assert event.changes["namespace"] == "llm", "the context's own, as none was typed"
    access = Cluster.objects.get(name="work").access()
    assert "s3cret" in access.kubeconfig
    assert "s3cret" not in repr(access)
    assert cluster.context == "work"


def test_adding_a_cluster_needs_an_admin(people: Cast) -> None:
    add(people)
    for person in (people.alice, people.charlie):
        with pytest.raises(PermissionDenied):
            actions.add_cluster(person, "other", {"kind": "in-cluster"})
        with pytest.raises(PermissionDenied):
            actions.change_cluster(person, "work", {"namespace": "x"})
        with pytest.raises(PermissionDenied):
            actions.remove_cluster(person, "work")
    with pytest.raises(PermissionDenied):
        actions.check_cluster(people.charlie, "work")
    actions.check_cluster(people.alice, "work")


@pytest.mark.parametrize(
    ("name", "data", "fields"),
    [
        ("Work!", {"kind": "in-cluster"}, ["name"]),
        ("a" * 41, {"kind": "in-cluster"}, ["name"]),
        ("in-cluster", {"kind": "context"}, ["name"]),
        ("ok", {"kind": "magic"}, ["kind"]),
        ("ok", {"kind": "kubeconfig"}, ["kubeconfig"]),
        ("ok", {"kind": "kubeconfig", "kubeconfig": "words"}, ["kubeconfig"]),
        ("ok", {"kind": "in-cluster", "kubeconfig": "x"}, ["kubeconfig"]),
        ("ok", {"kind": "in-cluster", "context": "x"}, ["context"]),
        ("ok", {"kind": "context", "namespace": "No"}, ["namespace"]),
        ("ok", {"kind": "context", "reach": "far"}, ["reach"]),
        ("No", {"kind": "context", "reach": "far", "colour": 1}, ["colour", "name", "reach"]),
    ],
)
def test_errors_name_every_field(
    people: Cast, name: str, data: dict[str, Any], fields: list[str]
) -> None:
    with pytest.raises(Refused) as refused:
        actions.add_cluster(people.ada, name, data)
    assert sorted(problem.field for problem in refused.value.errors) == fields
    assert all(problem.remedy for problem in refused.value.errors)
    assert not Cluster.objects.exists()


def test_exec_plug_in_is_rejected_without_its_secrets(people: Cast) -> None:
    text = kubeconfig("https://k.example", exec={"command": "aws", "env": "s3cret"})
    with pytest.raises(Refused, match="exec plugin") as refused:
        actions.add_cluster(people.ada, "work", {"kind": "kubeconfig", "kubeconfig": text})
    assert "s3cret" not in str(refused.value)
    assert refused.value.errors[0].value is None


def test_taken_name_is_rejected(people: Cast) -> None:
    add(people)
    with pytest.raises(Refused) as refused:
        add(people)
    assert refused.value.status_code == 409


def test_kubeconfig_is_renewed(people: Cast) -> None:
    add(people)
    renewed = kubeconfig("https://k.example").replace("s3cret-t0ken", "renewed")
    cluster = actions.change_cluster(
        people.ada, "work", {"kubeconfig": renewed, "namespace": "other"}
    )
    assert cluster.generation == 2
    assert json.loads(cluster.access().kubeconfig)["users"][0]["user"]["token"] == "renewed"
    event = AuditEvent.objects.get(target="cluster/work", verb="cluster.update")
    assert event.changes["namespace"] == ["llm", "other"]
    assert "renewed" not in json.dumps(event.changes)
    assert cluster.kubeconfig not in json.dumps(event.changes)
    with pytest.raises(Refused, match="only its chosen context is stored"):
        actions.change_cluster(people.ada, "work", {"context": "play"})


def test_used_cluster_is_not_removed(people: Cast) -> None:
    add(people)

    def users() -> dict[str, list[str]]:
        return {"work": ["endpoint demo"]}

    uses.register("cluster", users)
    try:
        with pytest.raises(Refused, match="used by endpoint demo") as refused:
            actions.remove_cluster(people.ada, "work")
    finally:
        uses.unregister("cluster", users)
    assert refused.value.status_code == 409
    actions.remove_cluster(people.ada, "work")
    assert not Cluster.objects.exists()
    with pytest.raises(PermanentError, match="Cluster 'work' does not exist"):
        selectors.provisioner("work")


def test_encryption_keys_are_rotated(people: Cast, settings: Settings) -> None:
    cluster = add(people)
    old = live.EMBERLINE.encryption_keys
    settings.EMBERLINE = replace(live.EMBERLINE, encryption_keys=("n" * 32, *old))
    assert key_rotation.rekey(record).done == ["audit/log", "cluster/work"]
    assert key_rotation.rekey(record).done == []
    settings.EMBERLINE = replace(live.EMBERLINE, encryption_keys=("n" * 32,))
    cluster.refresh_from_db()
    assert "s3cret" in cluster.access().kubeconfig
    settings.EMBERLINE = replace(live.EMBERLINE, encryption_keys=("x" * 32,))
    with pytest.raises(PermanentError) as refused:
        selectors.provisioner("work")
    assert refused.value.reason == "EncryptionKeyMissing"
    assert key_rotation.rekey(record).unreadable == ["audit/log", "cluster/work"]


def test_survey_lists_the_capabilities(people: Cast, api: Stub) -> None:
    cluster = add(people, api.url)
    refresh.refresh(str(cluster.pk))
    found = selectors.get("work")
    assert found is not None
    assert (found.status.phase, found.status.server_version) == ("Ready", "v1.36.2")
    assert found.status.observed_generation == cluster.generation
    assert selectors.capabilities("work") >= {"keda", "nvidia-gpu", "network-policy"}
    assert "CSI driver" in selectors.missing_reason("work", "s3-csi")
    assert selectors.missing_reason("work", "keda") == ""


def test_missing_rights_are_named_with_the_role(people: Cast, api: Stub) -> None:
    reviews = "/apis/authorization.k8s.io/v1"
    api.answers[f"{reviews}/selfsubjectrulesreviews"] = (201, {"status": {"resourceRules": []}})
    cluster = add(people, api.url)
    refresh.refresh(str(cluster.pk))
    found = selectors.get("work")
    assert found is not None
    assert (found.status.phase, found.status.reason) == ("Degraded", "RightsMissing")
    assert "Apply the Role shown" in found.status.message
    assert "deployments.apps" in [one.title for one in found.granted.needed]
    assert "kind: ServiceAccount\n  namespace: ops\n  name: emberline" in found.granted.manifest
    assert "namespace: llm" in found.granted.manifest


def granted_after(api: Stub, refusals: int) -> None:
    """As an API server whose authorizer learns of a Role a moment after it was applied."""
    left = iter(range(refusals))

    def rules(_path: str, _body: bytes) -> tuple[int, Any]:
        status = EVERYTHING if next(left, None) is None else {"resourceRules": []}
        return 201, {"status": status}

    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules


@pytest.mark.parametrize(("refusals", "phase"), [(0, "Ready"), (2, "Ready"), (10**6, "Degraded")])
def test_applied_role_is_noticed_by_a_check(
    people: Cast, api: Stub, monkeypatch: pytest.MonkeyPatch, refusals: int, phase: str
) -> None:
    monkeypatch.setattr(refresh, "AGAIN_NOW_S", 0.01)
    monkeypatch.setattr(refresh, "PATIENCE_S", 60.0 if refusals < 10 else 0.05)
    granted_after(api, refusals)
    cluster = add(people, api.url)
    actions.check_cluster(people.alice, "work", wait=True)
    cluster.status.refresh_from_db()
    assert cluster.status.phase == phase


def test_check_is_a_survey_started_after_its_request(
    people: Cast, api: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process is refreshing, with an outdated observation."""
    cluster = add(people, api.url)
    other = take_claim(ClusterStatus, str(cluster.pk))
    assert other is not None
    waited: list[float] = []

    def wait(seconds: float) -> None:
        assert not api.seen, "nothing is asked while another look is under way"
        waited.append(seconds)
        other.write(phase="Degraded", reason="RightsMissing")
        other.release(60)

    monkeypatch.setattr("console.clusters.refresh.time.sleep", wait)
    actions.check_cluster(people.alice, "work", wait=True)
    assert waited
    cluster.status.refresh_from_db()
    assert cluster.status.phase == "Ready"


def test_check_from_the_page_is_repeated_by_messages(
    people: Cast, api: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted_after(api, 2)
    cluster = add(people, api.url)
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        BaseTask, "nudge", lambda _task, *args, countdown=0.0: sent.append((*args, countdown))
    )
    actions.check_cluster(people.alice, "work")
    observations = 0
    while sent:
        pk, repeats, _countdown = sent.pop()
        tasks.refresh_cluster(pk, repeats)
        observations += 1
    cluster.status.refresh_from_db()
    assert (cluster.status.phase, observations) == ("Ready", 3)
    granted_after(api, 10**6)
    actions.check_cluster(people.alice, "work")
    observations = 0
    while sent:
        pk, repeats, _countdown = sent.pop()
        tasks.refresh_cluster(pk, repeats)
        observations += 1
    assert observations == tasks.REPEATS + 1, "it comes to an end"
    tasks.refresh_cluster(str(cluster.pk))
    assert not sent, "nobody asked"


def test_last_survey_stays_while_the_cluster_is_unreachable(people: Cast, api: Stub) -> None:
    cluster = add(people, api.url)
    refresh.refresh(str(cluster.pk))
    api.answers["/version"] = (401, {"message": "no"})
    refresh.refresh(str(cluster.pk))
    found = selectors.get("work")
    assert found is not None
    assert (found.status.phase, found.status.reason) == ("Failed", "ClusterRefused")
    assert selectors.capabilities("work") >= {"keda"}


def test_unreachable_address(people: Cast) -> None:
    cluster = add(people, "http://127.0.0.1:1")
    refresh.refresh(str(cluster.pk))
    found = selectors.get("work")
    assert found is not None
    assert found.status.reason == "ClusterUnreachable"
    assert "s3cret" not in found.status.message


def test_own_cluster_of_the_console_is_added_automatically(settings: Settings) -> None:
    tasks.sweep()
    assert not Cluster.objects.exists()
    settings.EMBERLINE = replace(live.EMBERLINE, provisioner="kubernetes")
    assert selectors.default_cluster() == "in-cluster"
    assert selectors.names() == ["in-cluster"]
    tasks.sweep()
    tasks.sweep()
    cluster = Cluster.objects.get()
    assert (cluster.name, cluster.kind, cluster.created_by) == ("in-cluster", "in-cluster", None)
    refresh.refresh(str(cluster.pk))
    cluster.status.refresh_from_db()
    assert cluster.status.reason == "NotInCluster"


def test_real_cluster_gets_a_provisioner(people: Cast, fake_cluster: FakeKube) -> None:
    space = fake_cluster.namespace()
    text = fake_cluster.plane.kubeconfig_of("admin", space).read_text()
    facts = {"kind": "kubeconfig", "kubeconfig": text}
    made = actions.add_cluster(people.ada, "lab", facts)
    assert made.namespace == space
    assert selectors.capabilities("lab") is None, "nobody has looked yet"

    def looked() -> bool:
        """GPUs appear once the fake's kubelet has reported them."""
        refresh.refresh(str(made.pk))
        return "nvidia-gpu" in (selectors.capabilities("lab") or ())

    until(looked, what="GPUs seen")
    found = selectors.get("lab")
    assert found is not None
    assert found.status.phase == "Ready", found.status.message
    assert found.granted.who == "admin"
    assert "keda" in selectors.capabilities("lab")
    provisioner = selectors.provisioner("lab")
    assert provisioner.rolls
    assert not provisioner.observe(Ref("kubernetes", "nothing")).exists
