"""Cluster survey, including clusters with faulty responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from console.provisioners.base import PermanentError, TemporaryError
from console.provisioners.kubernetes.api import capabilities as known
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.api.reader import Reader
from console.provisioners.kubernetes.discovery.inventory import CapabilityFinding, Inventory
from console.provisioners.kubernetes.discovery.survey import ClusterSurvey, discover
from tests.support.http_stub import HANG, Stub, http_stub

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def access(url: str, deadline_s: float = 5.0) -> ClusterAccess:
    text = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
    }
    return ClusterAccess(KUBECONFIG, json.dumps(text), deadline_s=deadline_s)


def listed(*names: str, **more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"items": [{"metadata": {"name": name}, **more} for name in names]}


def forbidden(_path: str, _body: bytes) -> tuple[int, dict[str, Any]]:
    return 403, {"message": "no"}


@pytest.fixture
def api() -> Iterator[Stub]:
    answers: dict[str, Any] = {"/version": (200, {"gitVersion": "v1"}), "/apis": groups("apps")}
    with http_stub(answers) as stub:
        yield stub


def groups(*names: str) -> tuple[int, dict[str, Any]]:
    return 200, {"groups": [{"name": name} for name in names]}


def run_survey(api: Stub) -> Inventory:
    return discover(access(api.url))


def finding(api: Stub, name: str) -> CapabilityFinding:
    return next(one for one in run_survey(api).findings if one.name == name)


def test_every_capability_has_a_state_and_a_remedy(api: Stub) -> None:
    found = run_survey(api).findings
    assert [one.name for one in found] == list(known.CAPABILITIES)
    for one in found:
        assert not one.present
        assert one.why_not
        assert one.remedy


def test_api_group_alone_is_not_the_resource(api: Stub) -> None:
    api.answers["/apis"] = groups("keda.sh")
    assert "it is not served" in finding(api, known.KEDA).why_not
    api.answers["/apis/keda.sh/v1alpha1"] = (200, {"resources": [{"name": "other"}]})
    assert "it has no scaledobjects" in finding(api, known.KEDA).why_not
    api.answers["/apis/keda.sh/v1alpha1"] = (200, {"resources": [{"name": "scaledobjects"}]})
    assert finding(api, known.KEDA).present


@pytest.mark.parametrize(
    ("name", "own", "served"),
    [
        (known.KEDA, "keda.sh", "external.metrics.k8s.io"),
        (known.METRICS_SERVER, "metrics.k8s.io", "metrics.k8s.io"),
    ],
)
def test_broken_installation_counts_as_absent(api: Stub, name: str, own: str, served: str) -> None:
    api.answers["/apis"] = groups(own, served)
    api.answers["/apis/keda.sh/v1alpha1"] = (200, {"resources": [{"name": "scaledobjects"}]})
    api.answers[f"/apis/{served}/v1beta1"] = (503, {"message": "no endpoints available"})
    dead = finding(api, name)
    assert not dead.present
    assert "no endpoints available" in dead.why_not
    api.answers[f"/apis/{served}/v1beta1"] = (200, {"resources": []})
    assert finding(api, name).present


def test_drivers_count_where_volumes_can_be_created(api: Stub) -> None:
    drivers = "/apis/storage.k8s.io/v1/csidrivers"
    api.answers[drivers] = listed("s3.csi.aws.com")
    api.answers[REVIEW] = (201, {"status": {"allowed": False}})
    found = run_survey(api)
    assert found.shares
    assert known.S3_CSI not in found.capabilities
    assert "persistentvolumes" in finding(api, known.S3_CSI).why_not
    api.answers[REVIEW] = (201, {"status": {"allowed": True}})
    assert {known.S3_CSI} == {known.S3_CSI, known.FSX_CSI} & run_survey(api).capabilities
    api.answers[drivers] = forbidden
    assert known.S3_CSI not in run_survey(api).capabilities
    assert "lacks permission to list" in finding(api, known.S3_CSI).why_not


def test_invisible_objects_are_noted_with_their_effect(api: Stub) -> None:
    api.answers["/api/v1/nodes"] = forbidden
    found = run_survey(api)
    note = "/api/v1/nodes: Emberline lacks permission to list it; instance types and"
    assert note in found.notes[0]
    gpus = finding(api, known.NVIDIA_GPU)
    assert (gpus.present, gpus.unsure) == (True, True)


def test_selectable_names(api: Stub) -> None:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    gp3 = {"metadata": {"name": "gp3", "annotations": mark}}
    api.answers["/apis"] = groups("cert-manager.io", "gateway.networking.k8s.io")
    api.answers["/apis/storage.k8s.io/v1/storageclasses"] = (200, {"items": [gp3]})
    api.answers["/apis/cert-manager.io/v1/clusterissuers"] = listed("letsencrypt")
    api.answers["/apis/gateway.networking.k8s.io/v1/gateways"] = (
        200,
        {"items": [{"metadata": {"name": "main", "namespace": "infra"}}]},
    )
    api.answers["/apis/networking.k8s.io/v1/ingressclasses"] = listed("nginx", "alb")
    api.answers["/apis/scheduling.k8s.io/v1/priorityclasses"] = forbidden
    offers = run_survey(api).offers
    assert (offers.storage_classes, offers.default_storage_class) == (("gp3",), "gp3")
    assert offers.issuers == ("ClusterIssuer/letsencrypt",)
    assert offers.gateways == ("infra/main",)
    assert offers.ingress_classes == ("alb", "nginx")
    assert offers.priority_classes is None
    assert finding(api, known.INGRESS).detail == "alb, nginx"


@pytest.mark.parametrize(
    ("provider", "there"), [("aws:///x", True), ("kind://x", False), ("", False)]
)
def test_load_balancer_is_detected_by_cloud(api: Stub, provider: str, there: bool) -> None:
    node = {"metadata": {"name": "n"}, "spec": {"providerID": provider}, "status": {}}
    api.answers["/api/v1/nodes"] = (200, {"items": [node]})
    assert finding(api, known.LOAD_BALANCER).present is there
    api.answers["/apis"] = groups("metallb.io")
    assert finding(api, known.LOAD_BALANCER).present


def test_long_lists_are_paged(api: Stub) -> None:
    def pages(path: str, _body: bytes) -> tuple[int, Any]:
        if "continue=" in path:
            return listed("b")
        return 200, {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "x/y="}}

    api.answers["/api/v1/namespaces"] = pages
    assert run_survey(api).offers.namespaces == ("a", "b")


def test_endless_list_is_abandoned(api: Stub) -> None:
    api.answers["/api/v1/namespaces"] = (200, {"items": [], "metadata": {"continue": "more"}})
    found = run_survey(api)
    assert found.offers.namespaces is None
    assert "more than 10000 objects" in found.notes[0]


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        ((401, {}), PermanentError, "ClusterRefused"),
        ((403, {"message": "no"}), PermanentError, "ClusterRefused"),
        ((500, {"message": "no"}), TemporaryError, "ClusterBusy"),
        ((404, {}), PermanentError, "NotKubernetes"),
        ((200, "<html>"), PermanentError, "NotKubernetes"),
        ((HANG, ""), TemporaryError, "ClusterUnreachable"),
    ],
)
def test_server_that_is_no_cluster(
    api: Stub, answer: Any, kind: type[Exception], reason: str
) -> None:
    api.answers["/version"] = answer
    with pytest.raises(kind) as refused:
        # Short timeout only for the response that never arrives.
        discover(access(api.url, deadline_s=0.2 if answer[0] == HANG else 10))
    assert getattr(refused.value, "reason", "") == reason
    assert "t0ken" not in str(refused.value)


def test_survey_has_one_time_budget(api: Stub) -> None:
    """After the budget is spent, remaining queries are skipped and reported as unknown."""
    reader = Reader(access(api.url))
    survey = ClusterSurvey(reader)

    def spend(_path: str, _body: bytes) -> tuple[int, Any]:
        reader._until = 0.0
        return listed()

    api.answers["/api/v1/nodes"] = spend
    found = survey.run()
    requested = {path.partition("?")[0] for _method, path, _body in api.seen}
    assert requested == {"/version", "/apis", "/api/v1/nodes"}
    assert "did not respond within 40 s" in found.notes[1]
    assert found.offers.namespaces is None
