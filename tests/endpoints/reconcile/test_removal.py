"""Endpoint removal: queries while waiting, intervals, and proof of completion."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.provisioners.base import TemporaryError
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.workload import observation
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint, EndpointStatus
from endpoints.reconcile import removal
from tests.support.endpoints.cluster_harness import ClusterHarness
from tests.support.endpoints.paper_cluster import PaperCluster
from tests.support.endpoints.reconciler_harness import ReconcilerHarness
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.django_db


class Router:
    """Counts `queries` of its end; `answers` are the replies, afterwards it is gone."""

    name = "router"

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.queries = 0

    def delete(self, _endpoint: Any) -> bool:
        self.queries += 1
        return self.answers.pop(0) if self.answers else True

    def reconcile(self, *_args: Any) -> Any:
        raise AssertionError("it is going")


@pytest.fixture
def reconciler_harness() -> ReconcilerHarness:
    return ReconcilerHarness(PaperCluster())


@pytest.fixture
def going(reconciler_harness: ReconcilerHarness, placed: Endpoint) -> Endpoint:
    reconciler_harness.until(placed, "Ready")
    actions.delete(SYSTEM, "demo")
    return placed


def replaced(harness: ReconcilerHarness, router: Router) -> Router:
    paper: Any = router
    harness.router = paper
    return router


def get_reason(status: EndpointStatus | None) -> str:
    return status.reason if status is not None else "gone"


def test_absent_router_is_queried_only_at_the_end(
    reconciler_harness: ReconcilerHarness, going: Endpoint
) -> None:
    router = replaced(reconciler_harness, Router(False))
    reported = [get_reason(reconciler_harness.step(going)) for _ in range(5)]
    assert reported == ["RemovingRouter", *["StoppingWorkers"] * 3, "gone"]
    assert router.queries == 3, "until it was gone, and as the last proof"


def test_router_that_returns_at_the_end_keeps_the_row(
    reconciler_harness: ReconcilerHarness, going: Endpoint
) -> None:
    router = replaced(reconciler_harness, Router(True, False, True))
    reported = [get_reason(reconciler_harness.step(going)) for _ in range(5)]
    assert reported == [*["StoppingWorkers"] * 3, "RemovingRouter", "gone"]
    assert router.queries == 3


def test_after_an_error_everything_is_queried_again(
    reconciler_harness: ReconcilerHarness, going: Endpoint
) -> None:
    router = replaced(reconciler_harness, Router())
    assert get_reason(reconciler_harness.step(going)) == "StoppingWorkers"
    reconciler_harness.provisioner.breaks["observe"] = TemporaryError("ClusterUnreachable", "Away.")
    assert get_reason(reconciler_harness.step(going)) == "ClusterUnreachable"
    reconciler_harness.provisioner.breaks.clear()
    reconciler_harness.step(going)
    assert router.queries == 2


def test_observations_before_the_deletion_are_discarded(
    reconciler_harness: ReconcilerHarness, going: Endpoint
) -> None:
    EndpointStatus.objects.update(reason="StoppingWorkers")
    router = replaced(reconciler_harness, Router(False))
    assert get_reason(reconciler_harness.step(going)) == "RemovingRouter"
    assert router.queries == 1


@pytest.mark.parametrize(("waited_s", "again_s"), [(0, 0.8), (8, 0.8), (20, 2.0), (3600, 4.0)])
def test_removal_passes_become_less_frequent(waited_s: float, again_s: float) -> None:
    endpoint = Endpoint(deleted_at=timezone.now() - timedelta(seconds=waited_s))
    assert removal.next_pass_s(endpoint) == pytest.approx(again_s, abs=0.3)


def test_waiting_for_a_cluster_sends_few_requests(
    fake_cluster: Cluster, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ClusterHarness(fake_cluster, monkeypatch)
    demo = harness.create(data)
    harness.until(demo, "Ready")
    actions.delete(SYSTEM, "demo")
    monkeypatch.setattr(observation, "_EVENTS_AGAIN_S", -1.0)  # nothing is remembered of them
    # What has a status around it: no cluster of these tests has load balancers or routes.
    monkeypatch.setattr(observation.related_objects, "KINDS_WITH_STATUS", (kinds.SECRET,))
    monkeypatch.setattr(observation.related_objects, "related_conditions", lambda _around: ())
    send = KubernetesClient._send
    passes: list[Counter[str]] = []

    def counted(
        client: KubernetesClient, method: str, requested: Any, *more: Any, **named: Any
    ) -> Any:
        passes[-1][f"{requested.verb} {requested.kind.plural}"] += 1
        return send(client, method, requested, *more, **named)

    monkeypatch.setattr(KubernetesClient, "_send", counted)

    def gone() -> bool:
        passes.append(Counter())
        return harness.step(demo) is None

    until(gone, what="gone")
    assert harness.left() == []
    waiting = [one for one in passes if one["list deployments"] == 0]
    quiet = [one for one in waiting if not one["delete configmaps"]]
    assert quiet
    assert all(set(one) <= {"get configmaps", "list pods"} for one in quiet), quiet
    assert max(one.total() for one in quiet) <= 3
    proofs = sum(one["list deployments"] for one in passes)
    assert proofs <= 5, "the router's and the workers' end, and once more the router's"
