"""Logs of a workload's pods."""

from __future__ import annotations

from typing import Any, cast

from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.rendering.names import COMPONENT
from console.provisioners.kubernetes.workload import logs


class _Pods:
    def __init__(self, pod: dict[str, Any]) -> None:
        self._pod = pod

    def listed(self, kind: Any, labels: str) -> list[dict[str, Any]]:
        return [self._pod]

    def log(self, pod: str, query: list[tuple[str, str]]) -> str:
        return f"log of {dict(query)['container']}"


def test_log_is_the_workers_where_admission_put_a_sidecar_first() -> None:
    pod = {
        "metadata": {"name": "chat-worker-0", "labels": {COMPONENT: "worker"}},
        "spec": {"containers": [{"name": "istio-proxy"}, {"name": "worker"}]},
        "status": {"containerStatuses": [{"name": "worker", "ready": True}]},
    }
    client = cast(KubernetesClient, _Pods(pod))
    assert logs.last_lines(client, "chat-worker", 10) == {"chat-worker-0": "log of worker"}
