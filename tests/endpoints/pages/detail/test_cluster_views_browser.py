"""Cluster details in Chromium: drift, conditions, followed log."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from console.accounts.models import User
from console.provisioners.base import ClusterEvent, Drift, PartCondition
from endpoints.models import Endpoint, EndpointStatus
from endpoints.placement import provisioner
from tests.support.browser import PHONE, Watched, watch
from tests.support.endpoints.paper_cluster import PaperCluster
from tests.support.endpoints.reconciler_harness import ReconcilerHarness
from tests.support.people import client_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
SHOTS = os.environ.get("EMBERLINE_SHOTS", "")
"""Folder for screenshots, if requested."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    found = PaperCluster()
    monkeypatch.setattr(provisioner.clusters, "provisioner", lambda *_: found)
    return found


@pytest.fixture
def shown(cluster: PaperCluster, placed: Endpoint) -> Endpoint:
    """With everything a cluster can tell."""
    harness = ReconcilerHarness(cluster)
    harness.until(placed, "Ready")
    cluster.drift = (
        Drift("Deployment/demo-worker", ".spec.replicas", 2, 5, "kubectl-edit", 1.7e9),
        Drift("Deployment/demo-worker", ".spec.paused", False, True, "somebodys-operator", 1.7e9),
    )
    cluster.parts = (
        PartCondition("rollout", True, "", "2 of 2 are of the current revision.", 1.7e9),
        PartCondition("certificate", True, "Issued", "", 1.7e9),
        PartCondition("autoscaler", False, "NoMetrics", "unable to fetch metrics", 1.7e9),
    )
    text = "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."
    now = time.time()  # of all events the page shows the latest
    cluster.events = (ClusterEvent("Pod/demo-x", "FailedScheduling", text, True, 7, now, now),)
    harness.until(placed, "Degraded")
    pod = {"workload": "demo-router", "name": "demo-router-7c9f", "state": "starting", "stage": ""}
    pod |= {"reason": "ImagePullBackOff", "message": "no such image", "node": "gpu-1"}
    pod |= {"containers": ["router"], "restarts": 0, "started_at": 0.0}
    back = {"failed": 0, "number": 1, "reason": "CrashLoopBackOff", "message": "It died.", "at": ""}
    EndpointStatus.objects.filter(pk=placed.pk).update(pods=[pod], rolled_back=back)
    return placed


def logged_in(browser: Browser, url: str, width: int, theme: str) -> Watched:
    watched = watch(browser, url, width, theme)
    watched.take_session(client_of(User.objects.get(username="alice")))
    return watched


def picture(watched: Watched, name: str) -> None:
    if SHOTS:
        watched.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


def test_cluster_details_are_shown(
    chrome: Browser, alice: User, shown: Endpoint, live_server: LiveServer
) -> None:
    watched = logged_in(chrome, live_server.url, PHONE, "dark")
    watched.open("/endpoints/demo/")
    page: Any = watched.page
    for text in ("kubectl-edit", "NoMetrics", "FailedScheduling", "Revision 0 failed"):
        page.wait_for_selector(f"text={text}")
    assert page.locator("[data-step=Loaded][data-state=done]").count() == 1
    picture(watched, "detail")
    assert watched.fits()
    page.click("text=Heal demo-worker")
    page.click("[data-confirm-go]")
    page.wait_for_selector("text=restoring the configuration")
    watched.open("/endpoints/demo/logs/?replica=demo-router-7c9f")
    page.wait_for_selector("#log >> text=router of demo-router-7c9f: line 2")
    assert page.locator("#log").inner_text().count("line 2") == 1
    picture(watched, "logs")
    assert watched.fits()
    assert watched.complaints == []
