"""Rejected specs of endpoints on a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.core.errors import Problem
from console.provisioners.kubernetes.api import capabilities as able
from endpoints.spec.cluster_rules import ClusterFacts
from endpoints.spec.endpoint_spec import SpecErrors, merge, parse
from endpoints.spec.rules import Context, check
from tests.endpoints.spec.test_endpoint_spec import MACHINE

ALL = frozenset(able.CAPABILITIES)
HF = {"model": "org/big", "engine": "vllm"}


def context(*, lacking: tuple[str, ...] = (), **more: Any) -> Context:
    facts = {"capabilities": ALL - set(lacking), "priority_classes": ("high",), **more}
    return replace(
        MACHINE,
        clusters=frozenset({"prod"}),
        cluster=lambda name: ClusterFacts(name, **facts),
        tiers=frozenset({"default", "chat", "away"}),
        tier_clusters={"default": "", "chat": "prod", "away": "other"},
    )


def refused(
    data: dict[str, Any], changes: dict[str, Any], where: Context | None = None
) -> list[Problem]:
    sent = merge(data, {"placement.cluster": "prod", **HF, **changes})
    try:
        check(sent, where or context())
    except SpecErrors as error:
        return list(error.errors)
    return []


def test_valid_spec_passes_without_a_local_check(data: dict[str, Any]) -> None:
    big = {"resources.memory_gib": 900, "resources.cpus": 96, "resources.gpus": 8, "replicas": 60}
    assert refused(data, big) == []


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"source.type": "huggingface"},
        {"source.type": "s3", "source.bucket": "b"},
        {"source.type": "fsx", "source.file_system": "fs-1", "source.mount_name": "m",
         "source.region": "eu-west-1"},
        {"source.type": "pvc", "source.claim": "c"},
    ],
    ids=lambda source: source.get("source.type", "worker"),
)  # fmt: skip
def test_weights_version_applies_to_every_source(
    data: dict[str, Any], source: dict[str, Any]
) -> None:
    assert refused(data, {**source, "source.weights_version": "2"}) == []


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"placement.cluster": "test"}, "placement.cluster", "unknown_cluster"),
    (
        {"placement.instance_types": ["a"], "placement.node_affinity": {"x": 1}},
        "placement.node_affinity",
        "conflict",
    ),
    ({"placement.priority_class": "low"}, "placement.priority_class", "unknown"),
    ({"source.type": "s3"}, "source.bucket", "required"),
    ({"source.type": "pvc"}, "source.claim", "required"),
    (
        {"source.type": "fsx", "source.file_system": "f", "source.mount_name": "m"},
        "source.dns_name",
        "required",
    ),
    ({"source.bucket": "b"}, "source.bucket", "not_used"),
    (
        {"source.type": "pvc", "source.claim": "c", "source.revision": "v1"},
        "source.revision",
        "not_used",
    ),
    ({"model": "smollm2-135m-instruct"}, "source.type", "required"),
    ({"model": "word", "source.type": "huggingface"}, "model", "unknown_model"),
    ({"scaling.enabled": True, "scaling.min": 9}, "scaling.max", "out_of_range"),
    ({"scaling.enabled": True, "scaling.min": 0}, "scaling.min", "out_of_range"),
    ({"router.replicas": 3, "router.max_replicas": 2}, "router.max_replicas", "out_of_range"),
    ({"router.cpus": 0.5, "router.cpu_limit": 0.25}, "router.cpu_limit", "out_of_range"),
    (
        {"router.memory_gib": 1, "router.memory_limit_gib": 0.5},
        "router.memory_limit_gib",
        "out_of_range",
    ),
    ({"pod.probes": {"readiness": {"terminationGracePeriodSeconds": 5}}}, "pod.probes", "not_used"),
    (
        {"pod.probes": {"readinessProbe": {"terminationGracePeriodSeconds": 5}}},
        "pod.probes",
        "not_used",
    ),
    (
        {"pod.probes": {"liveness": {"terminationGracePeriodSeconds": 0}}},
        "pod.probes",
        "out_of_range",
    ),
    (
        {"pod.probes": {"startup": {"terminationGracePeriodSeconds": -1}}},
        "pod.probes",
        "out_of_range",
    ),
    ({"pod.probes": {"liveness": {"successThreshold": 2}}}, "pod.probes", "out_of_range"),
    ({"exposure.kind": "gateway"}, "exposure.gateway", "required"),
    ({"exposure.kind": "ingress", "exposure.gateway": "a/b"}, "exposure.gateway", "not_used"),
    ({"exposure.kind": "gateway", "exposure.gateway": "b"}, "exposure.gateway", "not_used"),
    (
        {"exposure.kind": "loadbalancer", "exposure.tls": "secret", "exposure.tls_secret": "s"},
        "exposure.tls",
        "not_used",
    ),
    ({"exposure.kind": "ingress", "exposure.tls": "secret"}, "exposure.tls_secret", "required"),
    (
        {"exposure.kind": "ingress", "exposure.tls": "cert-manager", "exposure.host": "a.b"},
        "exposure.issuer",
        "required",
    ),
    (
        {"exposure.kind": "ingress", "exposure.tls": "cert-manager", "exposure.issuer": "I/a"},
        "exposure.host",
        "required",
    ),
    ({"pd.enabled": True}, "pd.enabled", "not_supported"),
    ({"limits.overflow_status": 503}, "limits.overflow_status", "not_supported"),
    ({"cache.l2.enabled": True}, "cache.l2.tier", "tier_elsewhere"),
    ({"cache.l2.enabled": True, "cache.l2.tier": "away"}, "cache.l2.tier", "tier_elsewhere"),
]


@pytest.mark.parametrize(("changes", "path", "code"), REFUSED)
def test_errors_name_field_and_remedy(
    data: dict[str, Any], changes: dict[str, Any], path: str, code: str
) -> None:
    (error,) = refused(data, changes)
    assert (error.field, error.code) == (path, code)
    assert error.message
    assert error.remedy


LACKING: list[tuple[dict[str, Any], str, str]] = [
    ({"source.type": "s3", "source.bucket": "b"}, able.S3_CSI, "source.type"),
    (
        {
            "source.type": "fsx",
            "source.file_system": "f",
            "source.mount_name": "m",
            "source.region": "r",
        },
        able.FSX_CSI,
        "source.type",
    ),
    (
        {"scaling.enabled": True, "scaling.triggers": [{"type": "cpu"}]},
        able.KEDA,
        "scaling.enabled",
    ),
    ({"scaling.enabled": True}, able.METRICS_SERVER, "scaling.enabled"),
    ({"router.max_replicas": 5}, able.METRICS_SERVER, "router.max_replicas"),
    ({"exposure.kind": "ingress"}, able.INGRESS, "exposure.kind"),
    ({"exposure.kind": "gateway", "exposure.class_name": "c"}, able.GATEWAY_API, "exposure.kind"),
    ({"exposure.kind": "loadbalancer"}, able.LOAD_BALANCER, "exposure.kind"),
    (
        {
            "exposure.kind": "ingress",
            "exposure.tls": "cert-manager",
            "exposure.issuer": "Issuer/a",
            "exposure.host": "a.b",
        },
        able.CERT_MANAGER,
        "exposure.tls",
    ),
    ({"resources.gpus": 1}, able.NVIDIA_GPU, "resources.gpus"),
    ({"pod.resources": {"limits": {"amd.com/gpu": "1"}}}, able.AMD_GPU, "resources.gpus"),
]


@pytest.mark.parametrize(("changes", "capability", "path"), LACKING)
def test_missing_cluster_capabilities_are_rejected_with_a_reason(
    data: dict[str, Any], changes: dict[str, Any], capability: str, path: str
) -> None:
    assert refused(data, changes) == []
    (error,) = refused(data, changes, context(lacking=(capability,)))
    assert (error.field, error.code) == (path, "missing_capability")
    assert error.remedy == able.CAPABILITIES[capability].remedy
    content = context(lacking=(capability,), why_not=lambda name: f"{name}: no CRD.")
    assert refused(data, changes, content)[0].remedy == f"{capability}: no CRD."
    assert refused(data, changes, context(capabilities=None)) == [], "nobody has looked yet"


def test_pod_needs_an_image(data: dict[str, Any]) -> None:
    bare = context(worker_image=False, engine_image=False)
    fields = [(e.field, e.code) for e in refused(data, {}, bare)]
    assert fields == [("placement.cluster", "no_image"), ("pod.image", "no_image")]
    (error,) = refused(data, {"pod.image": "vllm/vllm-openai:v1"}, bare)
    assert "EMBERLINE_ENGINE_IMAGE" in error.remedy


def test_tier_of_the_same_cluster_can_be_used(data: dict[str, Any]) -> None:
    assert refused(data, {"cache.l2.enabled": True, "cache.l2.tier": "chat"}) == []
    here = merge(data, {"cache.l2.enabled": True, "cache.l2.tier": "chat"})
    with pytest.raises(SpecErrors) as caught:
        check(here, context())
    assert caught.value.errors[0].code == "tier_elsewhere"


def test_endpoint_stays_on_its_cluster(data: dict[str, Any]) -> None:
    present = parse(merge(data, {**HF, "placement.cluster": "prod", "placement.namespace": "a"}))
    unsaid = merge(data, {**HF, "replicas": 3})
    assert check(unsaid, context(), present).placement == present.placement
    for path, value in (("placement.cluster", ""), ("placement.namespace", "b")):
        with pytest.raises(SpecErrors) as caught:
            check(merge(present.to_dict(), {path: value}), context(), present)
        assert (path, "fixed") in [(e.field, e.code) for e in caught.value.errors]
