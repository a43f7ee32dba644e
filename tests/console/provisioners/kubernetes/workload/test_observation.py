"""Pods, rollouts, routes and events from API server documents."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from console.provisioners.base import ReplicaState
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.rendering.anchor import OwnedItem
from console.provisioners.kubernetes.workload import observation, related_objects
from console.provisioners.kubernetes.workload.anchor_record import AnchorRecord
from console.provisioners.kubernetes.workload.observation import WorkloadObservation, to_observation
from console.provisioners.kubernetes.workload.pods import replica

NOON = 1767268800.0  # 2026-01-01T12:00:00Z
DEPLOYMENT = OwnedItem("apps/v1", "Deployment", "demo")


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }


def pod(name: str = "demo-7d4b9-x2x2x", **status: Any) -> dict[str, Any]:
    ports = [{"name": "http", "containerPort": 8000}, {"name": "kv-events", "containerPort": 5557}]
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "labels": {"emberline.dev/spec-hash": "new"},
        },
        "spec": {
            "nodeName": "node-1",
            "initContainers": [{"name": "prefetch"}],
            "containers": [{"name": "sidecar"}, {"name": "worker", "ports": ports}],
        },
        "status": {"phase": "Running", "podIP": "10.1.2.3", **status},
    }


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "sidecar"}, {"name": "worker", "state": state, **more}]}


def terminated(reason: str, code: int = 1, message: str = "") -> dict[str, Any]:
    return {"terminated": {"reason": reason, "exitCode": code, "message": message}}


RUNNING = {"running": {"startedAt": "2026-01-01T12:00:05Z"}}
BACKOFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
CASES: list[tuple[dict[str, Any], ReplicaState, str, str]] = [
    (
        {"conditions": [condition("PodScheduled", "False", "Unschedulable", "0/3 nodes: no gpu")]},
        ReplicaState.STARTING,
        "Unschedulable",
        "0/3 nodes: no gpu",
    ),
    (
        container({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}),
        ReplicaState.STARTING,
        "ImagePullBackOff",
        "not found",
    ),
    (
        container(BACKOFF, lastState=terminated("OOMKilled", 137)),
        ReplicaState.BACKOFF,
        "OOMKilled",
        "OOMKilled, exit code 137",
    ),
    (
        container(BACKOFF, lastState=terminated("Error", 1, "ValueError: no\nsuch model")),
        ReplicaState.BACKOFF,
        "CrashLoopBackOff",
        "exit code 1: ValueError: no such model",
    ),
    (container(terminated("Error", 2)), ReplicaState.BACKOFF, "CrashLoopBackOff", "exit code 2"),
    (
        {"initContainerStatuses": [{"name": "prefetch", "state": RUNNING}]},
        ReplicaState.STARTING,
        "Initializing",
        "Step prefetch runs",
    ),
    (
        {
            "initContainerStatuses": [
                {"name": "prefetch", "state": BACKOFF, "lastState": terminated("Error", 22, "404")}
            ]
        },
        ReplicaState.BACKOFF,
        "CrashLoopBackOff",
        "Step prefetch crashed (exit code 22: 404)",
    ),
    (container(RUNNING, started=False), ReplicaState.STARTING, "", "Starting"),
    (container(RUNNING, started=True), ReplicaState.UNKNOWN, "ProbeFails", "health check"),
    (
        container(RUNNING, started=True, ready=True)
        | {"conditions": [condition("Ready", "False")]},
        ReplicaState.UNKNOWN,
        "NodeLost",
        "node-1",
    ),
    (
        container(RUNNING, started=True, ready=True) | {"conditions": [condition("Ready", "True")]},
        ReplicaState.READY,
        "",
        "",
    ),
    (
        container(RUNNING, started=True, lastState=terminated("OOMKilled", 137)),
        ReplicaState.STARTING,
        "OOMKilled",
        "and runs again",
    ),
    (
        container(
            {"running": {"startedAt": "2026-01-01T11:00:00Z"}},
            started=True,
            lastState=terminated("OOMKilled", 137),
        ),
        ReplicaState.UNKNOWN,
        "ProbeFails",
        "health check",
    ),
    (
        {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
        ReplicaState.EXITED,
        "Evicted",
        "low on memory",
    ),
    (
        container({"waiting": {"reason": "ContainerCreating"}}),
        ReplicaState.STARTING,
        "",
        "containers are being created",
    ),
]


@pytest.mark.parametrize(("status", "state", "reason", "words"), CASES)
def test_pod_reports_its_most_specific_reason(
    status: dict[str, Any], state: ReplicaState, reason: str, words: str
) -> None:
    seen = replica(pod(**status), 0, "worker", ("http",), ("kv-events",), NOON + 10)
    assert (seen.state, seen.reason) == (state, reason)
    assert words in seen.message


def test_pod_addresses() -> None:
    body = pod(**container(RUNNING, restartCount=3))
    seen = replica(body, 4, "worker", ("http", "admin"), ("kv-events",), NOON)
    assert seen.urls == {"http": "http://10.1.2.3:8000"}  # an older revision without an admin port
    assert seen.channels == {"kv-events": "tcp://10.1.2.3:5557"}
    assert seen.containers == ("worker", "sidecar", "prefetch")
    assert (seen.index, seen.restarts, seen.node) == (4, 3, "node-1")
    assert (seen.started_at, seen.created_at) == (NOON + 5, NOON)
    assert seen.spec_hash == "new"
    six = replica(pod(podIP="fd00::1"), 0, "worker", ("http",), (), NOON)
    assert six.urls == {"http": "http://[fd00::1]:8000"}
    none = replica(pod(podIP=""), 0, "worker", ("http",), (), NOON)
    assert none.urls == {}


def test_deleted_pod_is_stopping_and_then_stuck() -> None:
    body = pod(**container(RUNNING), conditions=[condition("Ready", "True")])
    body["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    soon = replica(body, 0, "worker", (), (), NOON + 5)
    late = replica(body, 0, "worker", (), (), NOON + 120)
    assert (soon.state, soon.reason) == (ReplicaState.STOPPING, "")
    assert (late.state, late.reason) == (ReplicaState.STOPPING, "StuckTerminating")
    assert "node-1" in late.message


def deployment(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "demo", "generation": 3},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 3, **status},
    }


def looked(
    workload: dict[str, Any] | None, *pods: dict[str, Any], **kept: Any
) -> WorkloadObservation:
    fields: dict[str, Any] = {
        "role": "worker",
        "wanted_hash": "new",
        "ports": ("http",),
        "items": frozenset({DEPLOYMENT}),
        "digest": "x",
    }
    kind = kinds.DEPLOYMENT
    return WorkloadObservation(
        "demo", AnchorRecord(**fields | kept), kind, workload, pods, (), NOON
    )


DONE = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
GAVE_UP = condition("Progressing", "False", "ProgressDeadlineExceeded", "has timed out")


def test_rollout_is_ready_after_the_old_pods_are_gone() -> None:
    done = related_objects.rollout(deployment(**DONE), kinds.DEPLOYMENT)
    assert done.ready is True
    over = related_objects.rollout(deployment(**DONE | {"replicas": 3}), kinds.DEPLOYMENT)
    assert (over.ready, over.reason) == (None, "RollingOut")
    assert "1 of an older one" in over.message
    unseen = deployment(**DONE)
    unseen["metadata"]["generation"] = 4
    assert related_objects.rollout(unseen, kinds.DEPLOYMENT).ready is None
    quota = condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota: team")
    refused = related_objects.rollout(deployment(conditions=[quota]), kinds.DEPLOYMENT)
    assert (refused.ready, refused.reason, refused.since) == (False, "QuotaExceeded", NOON)
    assert related_objects.rollout(None, kinds.DEPLOYMENT).ready is None


def test_exceeded_progress_deadline_is_reported_with_its_reason() -> None:
    bad = pod(**container(BACKOFF, lastState=terminated("OOMKilled", 137)))
    seen = to_observation(looked(deployment(conditions=[GAVE_UP]), bad))
    assert seen.failed == "ProgressDeadlineExceeded"
    assert "OOMKilled" in seen.message
    assert seen.parts[0].reason == "ProgressDeadlineExceeded"
    stale = deployment(conditions=[GAVE_UP])
    stale["metadata"]["generation"] = 4  # the next revision is not evaluated yet
    assert to_observation(looked(stale, bad)).failed == ""


def test_stateful_set_pods_have_a_console_deadline() -> None:
    bad = pod("demo-1", **container(RUNNING, started=False))
    found = dataclasses.replace(
        looked(deployment(), bad, startup_s=600), kind=kinds.STATEFUL_SET, now=NOON + 599
    )
    assert to_observation(found).failed == ""
    late = to_observation(dataclasses.replace(found, now=NOON + 601))
    assert late.failed == "ProgressDeadlineExceeded"
    assert late.replicas[0].index == 1


def test_pods_are_sorted_by_age_and_ended_ones_are_history() -> None:
    young, old, over = pod("demo-x-a"), pod("demo-x-z"), pod("demo-x-b", phase="Failed")
    old["metadata"]["creationTimestamp"] = "2026-01-01T11:00:00Z"
    seen = to_observation(looked(deployment(), young, over, old))
    assert [(r.name, r.index) for r in seen.replicas] == [("demo-x-z", 0), ("demo-x-a", 1)]
    ending = to_observation(looked(deployment(), young, ending=True))
    assert ending.replicas[0].state is ReplicaState.STOPPING
    assert ending.message == "Being removed."


def test_count_is_owned_by_an_autoscaler_only_if_present() -> None:
    assert to_observation(looked(deployment())).wanted is None
    scaler = OwnedItem("autoscaling/v2", "HorizontalPodAutoscaler", "demo")
    items = frozenset({DEPLOYMENT, scaler})
    assert to_observation(looked(deployment(), items=items)).wanted == 2


def test_deleted_deployment_is_reported() -> None:
    assert "Deployment demo was deleted" in to_observation(looked(None)).message


ROUTE = {"spec": {"hostnames": ["demo.example"]}}
BALANCED = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}


def parent(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"parents": [{"conditions": list(conditions)}]}


@pytest.mark.parametrize(
    ("kind", "body", "ready", "reason"),
    [
        (kinds.HTTP_ROUTE, ROUTE, None, "NoGateway"),
        (
            kinds.HTTP_ROUTE,
            ROUTE | {"status": parent(condition("Accepted", "True", "Accepted"))},
            True,
            "Accepted",
        ),
        (
            kinds.HTTP_ROUTE,
            ROUTE
            | {
                "status": parent(
                    condition("Accepted", "True"),
                    condition("ResolvedRefs", "False", "BackendNotFound"),
                )
            },
            False,
            "BackendNotFound",
        ),
        (kinds.INGRESS, {}, None, "NoAddress"),
        (kinds.INGRESS, {"status": BALANCED}, True, ""),
        (
            kinds.CERTIFICATE,
            {"status": {"conditions": [condition("Ready", "False", "Issuing", "wait")]}},
            False,
            "Issuing",
        ),
        (kinds.CERTIFICATE, {}, None, ""),
        (
            kinds.HPA,
            {
                "status": {
                    "conditions": [
                        condition("AbleToScale", "True"),
                        condition("ScalingActive", "False", "FailedGetResourceMetric"),
                    ]
                }
            },
            False,
            "FailedGetResourceMetric",
        ),
        (kinds.SERVICE, {"spec": {"type": "LoadBalancer"}}, None, "NoAddress"),
    ],
)
def test_related_objects_report_their_state(
    kind: kinds.ObjectKind, body: dict[str, Any], ready: bool | None, reason: str
) -> None:
    (part,) = related_objects.related_conditions([(kind, body)])
    assert (part.ready, part.reason) == (ready, reason)


def test_cluster_ip_service_reports_no_address() -> None:
    assert (
        related_objects.related_conditions([(kinds.SERVICE, {"spec": {"type": "ClusterIP"}})]) == []
    )


@pytest.mark.parametrize(
    ("kind", "body", "secure", "url"),
    [
        (kinds.INGRESS, {"spec": {"rules": [{"host": "a.b"}]}}, False, ""),
        (
            kinds.INGRESS,
            {"spec": {"rules": [{"host": "a.b"}], "tls": [{}]}, "status": BALANCED},
            True,
            "https://a.b",
        ),
        (kinds.INGRESS, {"spec": {"rules": [{}]}, "status": BALANCED}, False, "http://1.2.3.4"),
        (kinds.HTTP_ROUTE, ROUTE, True, ""),
        (
            kinds.HTTP_ROUTE,
            ROUTE | {"status": parent(condition("Accepted", "True"))},
            True,
            "https://demo.example",
        ),
        (
            kinds.SERVICE,
            {"spec": {"type": "LoadBalancer", "ports": [{"port": 8080}]}, "status": BALANCED},
            False,
            "http://1.2.3.4:8080",
        ),
        (
            kinds.SERVICE,
            {"spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}, "status": BALANCED},
            False,
            "https://1.2.3.4",
        ),
    ],
)
def test_external_address_is_reported_once_assigned(
    kind: kinds.ObjectKind, body: dict[str, Any], secure: bool, url: str
) -> None:
    assert related_objects.external_url([(kind, body)], secure=secure) == url


def event(kind: str, name: str, **more: Any) -> dict[str, Any]:
    last = {"lastTimestamp": "2026-01-01T12:00:00Z", "type": "Warning", "reason": "Failed"}
    return {"involvedObject": {"kind": kind, "name": name}, **last, **more}


def test_events_are_limited_to_the_workload() -> None:
    found = [
        event("Pod", "demo-7d4b9f8c6d-x2x2x"),
        event("ReplicaSet", "demo-7d4b9f8c6d"),
        event("Deployment", "demo"),
        event("ConfigMap", "demo"),
        event("Pod", "demo-1"),
        event("PersistentVolumeClaim", "data-demo-1"),
        event("Pod", "demo-worker-7d4b9f8c6d-x2x2x"),
        event("ReplicaSet", "demo-worker"),
        event("Deployment", "demo-1"),
        event("Node", "demo"),
    ]
    seen = observation.workload_events(found, "demo", [DEPLOYMENT])
    assert {one.subject for one in seen} == {
        "Pod/demo-7d4b9f8c6d-x2x2x",
        "ReplicaSet/demo-7d4b9f8c6d",
        "Deployment/demo",
        "ConfigMap/demo",
        "Pod/demo-1",
        "PersistentVolumeClaim/data-demo-1",
    }


def test_repeated_event_states_count_and_first_time() -> None:
    series = {"count": 7, "lastObservedTime": "2026-01-01T12:05:00.123456Z"}
    new = event("Deployment", "demo", series=series, eventTime="2026-01-01T12:00:00.000000Z")
    del new["lastTimestamp"]
    old = event("Deployment", "demo", firstTimestamp="2026-01-01T11:00:00Z", count=3)
    first, second = observation.workload_events([new, old], "demo", [DEPLOYMENT])
    assert (first.count, first.first_at, first.last_at) == (3, NOON - 3600, NOON)
    assert (second.count, second.first_at) == (7, NOON)
    assert second.last_at == pytest.approx(NOON + 300.123456)
    assert second.warning
