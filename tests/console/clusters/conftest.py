from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.http_stub import Stub, http_stub


def kubeconfig(server: str, **user: Any) -> str:
    return json.dumps(
        {
            "current-context": "work",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "s3cret-t0ken", **user}}],
            "contexts": [
                {"name": "work", "context": {"cluster": "c", "user": "u", "namespace": "llm"}}
            ],
        }
    )


def listed(*items: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"items": list(items)}


def refused(path: str, _body: bytes) -> tuple[int, dict[str, Any]]:
    return 403, {"kind": "Status", "message": f"forbidden: {path}"}


def node(name: str, gpus: int = 0, **labels: str) -> dict[str, Any]:
    allocatable = {"cpu": "16", "memory": "64Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"aws:///{name}"},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


EVERYTHING = {"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}


@pytest.fixture
def api() -> Iterator[Stub]:
    """A cluster with one GPU node, KEDA and every right; a test changes `answers`."""
    groups = [{"name": name} for name in ("apps", "keda.sh", "cilium.io")]
    a10g = {"node.kubernetes.io/instance-type": "g5.xlarge", "nvidia.com/gpu.product": "A10G"}
    reviews = "/apis/authorization.k8s.io/v1"
    answers: dict[str, Any] = {
        "/version": (200, {"gitVersion": "v1.36.2"}),
        "/apis": (200, {"groups": groups}),
        "/apis/keda.sh/v1alpha1": (200, {"resources": [{"name": "scaledobjects"}]}),
        "/api/v1/nodes": listed(node("n1", 1, **a10g)),
        "/api/v1/pods": listed(),
        "/apis/authentication.k8s.io/v1/selfsubjectreviews": (
            201,
            {"status": {"userInfo": {"username": "system:serviceaccount:ops:emberline"}}},
        ),
        f"{reviews}/selfsubjectrulesreviews": (201, {"status": EVERYTHING}),
        f"{reviews}/selfsubjectaccessreviews": (201, {"status": {"allowed": True}}),
    }
    with http_stub(answers) as stub:
        yield stub
