"""Users, an endpoint's data and a machine of known size."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from console.accounts.models import User
from console.clusters.models import Cluster, ClusterStatus
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint
from endpoints.placement import installation
from endpoints.spec.endpoint_spec import GIB, parse
from tests.support.endpoints.reconciler_harness import ReconcilerHarness


@pytest.fixture
def alice(db: None) -> User:
    """Operates endpoints."""
    return User.objects.create_user("alice", password="wonderland-1", role="operator")


@pytest.fixture
def charlie(db: None) -> User:
    """May only look."""
    return User.objects.create_user("charlie", password="chocolate-1", role="viewer")


@pytest.fixture(autouse=True)
def known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GiB, of which 8 shared; 4 CPUs; no GPU: whatever runs the tests."""
    monkeypatch.setattr(installation, "memory_bytes", lambda: 16 * GIB)
    monkeypatch.setattr(installation, "shared_memory_bytes", lambda: 8 * GIB)
    monkeypatch.setattr(installation, "gpus", lambda: 0)
    monkeypatch.setattr(installation.os, "cpu_count", lambda: 4)


@pytest.fixture
def data() -> dict[str, Any]:
    """A whole spec that can be served."""
    return parse(
        {
            "name": "demo",
            "model": "smollm2-135m-instruct",
            "engine": "simulated",
            "replicas": 2,
            "worker_args": ["--max-model-len=2048"],
            "resources": {"cpus": 1.0, "memory_gib": 4.0, "gpus": 0},
        }
    ).to_dict()


@pytest.fixture(autouse=True)
def no_old_keys(settings: Any) -> None:
    """Files outlive the database of a test."""
    shutil.rmtree(settings.EMBERLINE.secrets / "endpoints", ignore_errors=True)
    shutil.rmtree(settings.EMBERLINE.secrets / "quickstart", ignore_errors=True)


@pytest.fixture
def reconciler_harness() -> ReconcilerHarness:
    return ReconcilerHarness()


@pytest.fixture
def demo_endpoint(data: dict[str, Any]) -> Endpoint:
    return actions.create(SYSTEM, data)


@pytest.fixture
def ready(reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint) -> Endpoint:
    reconciler_harness.until(demo_endpoint, "Ready")
    return demo_endpoint


@pytest.fixture
def placed(demo_endpoint: Endpoint) -> Endpoint:
    """On a cluster, without queries to it."""
    east = Cluster.objects.create(name="east", kind="in-cluster")
    ClusterStatus.objects.create(cluster=east)
    demo_endpoint.spec["placement"] = {"cluster": "east", "namespace": "models"}
    demo_endpoint.save(update_fields=["spec"])
    demo_endpoint.__dict__.pop("parsed", None)
    return demo_endpoint
