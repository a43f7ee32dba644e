"""Clusters pages and their REST: permissions, messages and hidden secrets."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from console.accounts.models import User
from console.clusters import actions, refresh
from console.clusters.models import Cluster
from tests.console.clusters.conftest import kubeconfig, listed, node
from tests.support.http_stub import Stub
from tests.support.people import Cast, client_of

pytestmark = pytest.mark.django_db


def program(user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def add(people: Cast, url: str, name: str = "work") -> Cluster:
    cluster = actions.add_cluster(
        people.ada, name, {"kind": "kubeconfig", "kubeconfig": kubeconfig(url)}
    )
    refresh.refresh(str(cluster.pk))
    return cluster


def test_empty_page_explains_clusters(people: Cast) -> None:
    text = client_of(people.charlie).get("/clusters/").text
    assert "No clusters" in text
    assert "/clusters/add/" not in text, "a viewer gets no button"
    assert "/clusters/add/" in client_of(people.ada).get("/clusters/").text


def test_cluster_is_shown_with_its_capacity(people: Cast, api: Stub) -> None:
    add(people, api.url)
    page = client_of(people.charlie)
    row = page.get("/clusters/").text
    for shown in ("work", "v1.36.2", "1 of 1 ready", "1 of 1"):
        assert shown in row
    text = page.get("/clusters/work/").text
    for shown in ("g5.xlarge", "A10G", "KEDA", "no CSI driver s3.csi.aws.com", "64 GiB"):
        assert shown in text
    assert "s3cret" not in text
    part = page.get("/clusters/work/", headers={"HX-Request": "true"}).text
    assert "g5.xlarge" in part
    assert "<html" not in part


def test_rejected_cluster_is_shown_with_the_role(people: Cast, api: Stub) -> None:
    from tests.console.clusters.conftest import refused

    reviews = "/apis/authorization.k8s.io/v1"
    api.answers[f"{reviews}/selfsubjectrulesreviews"] = (201, {"status": {}})
    api.answers[f"{reviews}/selfsubjectaccessreviews"] = (201, {"status": {"allowed": False}})
    api.answers["/api/v1/nodes"] = refused
    add(people, api.url)
    text = client_of(people.charlie).get("/clusters/work/").text
    for shown in (
        "Degraded",
        "deployments.apps",
        "kind: ClusterRole",
        "lacks permission to list nodes",
    ):
        assert shown in text


def test_cluster_is_added_on_the_form(people: Cast) -> None:
    page = client_of(people.ada)
    assert client_of(people.alice).get("/clusters/add/").status_code == 403
    typed = {"name": "work", "kind": "kubeconfig", "kubeconfig": "not one", "reach": "api"}
    again = page.post("/clusters/add/", typed)
    assert again.status_code == 400
    assert "has no contexts" in again.text
    assert "not one" not in again.text, "what was pasted is not written back"
    file = SimpleUploadedFile("config", kubeconfig("https://k.example").encode())
    done = page.post("/clusters/add/", {**typed, "kubeconfig": "", "file": file})
    assert done.headers["Location"] == "/clusters/work/"
    cluster = Cluster.objects.get(name="work")
    assert (cluster.reach, cluster.namespace, cluster.context) == ("api", "llm", "work")


def test_contexts_are_listed_while_typing(people: Cast) -> None:
    text = kubeconfig("https://k.example", exec={"command": "aws"})
    answer = client_of(people.ada).post(
        "/clusters/contexts/", {"kind": "kubeconfig", "kubeconfig": text}
    )
    assert "an exec plugin" in answer.text
    assert "s3cret" not in answer.text
    good = client_of(people.ada).post(
        "/clusters/contexts/", {"kind": "kubeconfig", "kubeconfig": kubeconfig("https://k.example")}
    )
    assert "https://k.example" in good.text
    assert "checked" in good.text
    assert client_of(people.alice).post("/clusters/contexts/", {}).status_code == 403


def test_cluster_is_edited_and_removed(people: Cast, api: Stub) -> None:
    add(people, api.url)
    page = client_of(people.ada)
    assert "s3cret" not in page.get("/clusters/work/edit/").text
    done = page.post("/clusters/work/edit/", {"namespace": "other", "reach": "api"})
    assert done.status_code == 302
    cluster = Cluster.objects.get(name="work")
    assert (cluster.namespace, cluster.reach, cluster.context) == ("other", "api", "work")
    assert page.post("/clusters/work/remove/", {"name": "wrong"}).status_code == 400
    assert page.post("/clusters/work/remove/", {"name": "work"}).status_code == 302
    assert not Cluster.objects.exists()


def test_manual_check_is_scheduled_at_once(people: Cast, api: Stub) -> None:
    cluster = add(people, api.url)
    before = cluster.status.due_at
    assert client_of(people.charlie).post("/clusters/work/check/").status_code == 403
    assert client_of(people.alice).post("/clusters/work/check/").status_code == 302
    cluster.status.refresh_from_db()
    assert before is not None
    assert cluster.status.due_at is not None


def test_rest(people: Cast, api: Stub) -> None:
    admin, viewer = program(people.ada), program(people.charlie)
    body: dict[str, Any] = {"name": "work", "kind": "kubeconfig", "kubeconfig": "x: 1"}
    refused = admin.post("/api/v1/clusters/", body)
    assert (refused.status_code, refused.json()["field"]) == (400, "kubeconfig")
    assert refused.json()["value"] is None
    body["kubeconfig"] = kubeconfig(api.url)
    assert program(people.alice).post("/api/v1/clusters/", body).status_code == 403
    made = admin.post("/api/v1/clusters/", body)
    assert (made.status_code, made.json()["phase"]) == (201, "Pending")
    refresh.refresh(str(Cluster.objects.get().pk))
    found = viewer.get("/api/v1/clusters/work/")
    assert found.json()["node_pools"][0]["gpus_free"] == 1
    assert found.json()["rights"]["enough"] is True
    assert "s3cret" not in found.text
    assert len(viewer.get("/api/v1/clusters/").json()["results"]) == 1
    assert program(people.alice).post("/api/v1/clusters/work/check/").status_code == 202
    changed = admin.patch("/api/v1/clusters/work/", {"namespace": "other"})
    assert changed.json()["namespace"] == "other"
    assert admin.patch("/api/v1/clusters/work/", {"kind": "context"}).status_code == 400
    assert admin.patch("/api/v1/clusters/work/", {}).status_code == 400
    assert viewer.delete("/api/v1/clusters/work/").status_code == 403
    assert admin.delete("/api/v1/clusters/work/").status_code == 204
    assert viewer.get("/api/v1/clusters/work/").status_code == 404


@pytest.mark.parametrize("url", ["/clusters/", "/api/v1/clusters/"])
def test_number_of_queries_is_constant(people: Cast, api: Stub, url: str) -> None:
    page = client_of(people.charlie)
    counts = []
    for name in ("a", "b", "c"):
        add(people, api.url, name)
        with CaptureQueriesContext(connection) as caught:
            assert page.get(url).status_code == 200
        counts.append(len(caught))
    assert counts[1] == counts[2]


def test_unknown_free_gpus_are_not_guessed(people: Cast, api: Stub) -> None:
    from tests.console.clusters.conftest import refused

    api.answers["/api/v1/pods"] = refused
    api.answers["/api/v1/nodes"] = listed(node("n1", 8))
    add(people, api.url)
    assert "not known, of 8" in client_of(people.charlie).get("/clusters/").text


def test_expiring_login_is_reported(people: Cast, api: Stub) -> None:
    cluster = add(people, api.url)
    page = client_of(people.charlie)
    assert "Credentials expire" not in page.get("/clusters/work/").text
    for days, warned in ((30, False), (3, True)):
        cluster.status.login_ends_at = timezone.now() + timedelta(days=days)
        cluster.status.save()
        assert "Credentials expire" in page.get("/clusters/work/").text
        assert ("enter a new kubeconfig" in page.get("/clusters/").text) is warned
