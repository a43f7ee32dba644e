"""Rendering around the pods: network policy, scaling, exposure, monitoring. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.rendering.anchor import OwnedItem, inventory, set_owner
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, declined
from console.provisioners.pods import Autoscale, Exposure, Peer, Scrape
from tests.console.provisioners.kubernetes.rendering.matrix import (
    BARE,
    EVERYTHING,
    ROUTERS,
    SECRETS,
    SPECS,
    TARGET,
    WORKER,
    around_changed,
    exposed,
    pod_changed,
    rendered,
)


def refused(spec: WorkloadSpec, target: RenderingTarget = TARGET) -> str:
    with pytest.raises(PermanentError) as caught:
        render(spec, target, SECRETS)
    return f"{caught.value.reason}: {caught.value.message}"


def without(*capabilities: str) -> RenderingTarget:
    return RenderingTarget("models", EVERYTHING - set(capabilities))


@pytest.mark.parametrize("name", SPECS)
def test_the_anchor_comes_first_and_lists_the_rest(name: str) -> None:
    anchor, *others = render(SPECS[name], TARGET, SECRETS)
    assert (anchor["kind"], anchor["metadata"]["name"]) == ("ConfigMap", SPECS[name].name)
    listed = {
        OwnedItem(data["apiVersion"], data["kind"], data["metadata"]["name"]) for data in others
    }
    assert inventory(anchor) == listed
    assert len(listed) == len(others)
    for data in others:
        assert kinds.kind_of(data)


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["a"]]', "null"])
def test_an_inventory_somebody_broke_is_empty(text: str) -> None:
    assert inventory({"data": {"inventory": text}}) == frozenset()


def test_the_anchor_owns_what_is_in_its_namespace() -> None:
    for data in render(SPECS["worker-s3"], TARGET, SECRETS)[1:]:
        mine = set_owner(data, "demo-worker", "u-1")["metadata"]
        if data["kind"] == "PersistentVolume":
            assert "ownerReferences" not in mine
        else:
            (owner,) = mine["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("ConfigMap", "u-1")
            assert owner["blockOwnerDeletion"] is True
        assert "ownerReferences" not in data["metadata"]


def test_somebody_elses_object_owns_the_anchor_only() -> None:
    objects = rendered(ROUTERS)
    owners = [name for name, data in objects.items() if "ownerReferences" in data["metadata"]]
    assert owners == ["ConfigMap/demo-router"]


def rules(spec: WorkloadSpec) -> dict[int, list[dict[str, Any]] | None]:
    """Return the allowed peers by port; None: everybody."""
    policy = rendered(spec)[f"NetworkPolicy/{spec.name}"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    return {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}


def test_only_the_endpoints_own_router_reaches_a_channel() -> None:
    for port in (5557, 5558):
        (peer,) = rules(WORKER)[port] or ()
        assert "namespaceSelector" not in peer
        labels = peer["podSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] == "router"
        assert labels["emberline.dev/owner"] == "endpoint.demo"


def test_what_is_not_named_is_closed() -> None:
    closed = around_changed(WORKER, reach={}, scrape=())
    assert rules(closed) == {}


def test_a_role_anywhere_is_looked_for_everywhere() -> None:
    spec = around_changed(WORKER, reach={"http": (Peer("worker"),)}, scrape=())
    (peer,) = rules(spec)[8000] or ()
    assert peer["namespaceSelector"] == {}
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"


def test_prometheus_reaches_what_it_scrapes() -> None:
    spec = around_changed(WORKER, reach={}, scrape=(Scrape("http"),))
    names = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
        for peer in rules(spec)[8000] or ()
    ]
    assert names == ["emberline", "prometheus"]
    open_ = around_changed(WORKER, reach={"http": ()}, scrape=(Scrape("http"),))
    assert rules(open_)[8000] is None


def test_what_is_exposed_is_open() -> None:
    spec = around_changed(ROUTERS, reach={"http": (Peer("console"),)})
    assert rules(spec)[8080] is None
    assert rules(spec)[9090] is not None


def test_a_port_nobody_has() -> None:
    spec = around_changed(WORKER, reach={"htpp": ()})
    assert refused(spec).startswith("UnknownPort")


def test_rights_for_slices_of_its_own_namespace_and_nothing_else() -> None:
    role = rendered(ROUTERS)["Role/demo-router"]
    assert role["rules"] == [
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    assert role["metadata"]["namespace"] == "models"
    assert not [name for name in rendered(WORKER) if name.startswith("Role")]


def test_an_account_that_is_given_gets_the_right() -> None:
    objects = rendered(SPECS["router-account"])
    assert "ServiceAccount/demo-router" not in objects
    assert objects["RoleBinding/demo-router"]["subjects"][0]["name"] == "routers"


def test_no_rights_in_another_namespace() -> None:
    assert "'other/x'" in refused(around_changed(ROUTERS, watches_services=("other/x",)))
    render(around_changed(ROUTERS, watches_services=("models/x",)), TARGET, SECRETS)


def test_an_autoscaler_decides_alone() -> None:
    objects = rendered(ROUTERS)
    assert "replicas" not in objects["Deployment/demo-router"]["spec"]
    assert objects["HorizontalPodAutoscaler/demo-router"]["spec"]["minReplicas"] == 2
    objects = rendered(SPECS["worker-keda"])
    assert "replicas" not in objects["Deployment/demo-worker"]["spec"]
    assert "HorizontalPodAutoscaler/demo-worker" not in objects


def test_a_pause_decides_above_an_autoscaler() -> None:
    objects = rendered(SPECS["worker-paused"])
    assert objects["Deployment/demo-worker"]["spec"]["replicas"] == 0
    assert "ScaledObject/demo-worker" not in objects


def test_triggers_are_text_to_keda() -> None:
    body = rendered(SPECS["worker-keda"])["ScaledObject/demo-worker"]["spec"]
    first = body["triggers"][0]["metadata"]
    assert (first["threshold"], first["ignoreNullValues"]) == ("5", "false")
    assert body["triggers"][-1]["metadata"] == {"value": "80"}
    assert (body["minReplicaCount"], body["maxReplicaCount"]) == (0, 20)


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (Autoscale(3, 2, cpu_percent=70), "not a valid range"),
        (Autoscale(0, 0, ({"type": "cron"},)), "not a valid range"),
        (Autoscale(1, 2), "neither a trigger"),
        (Autoscale(0, 2, cpu_percent=70), "scaling to 0"),
    ],
)
def test_what_cannot_be_scaled(scale: Autoscale, said: str) -> None:
    assert said in refused(around_changed(WORKER, autoscale=scale))


def test_a_share_of_cpu_is_of_what_is_asked_for() -> None:
    spec = around_changed(replace(WORKER, cpus=0), autoscale=Autoscale(1, 2, cpu_percent=70))
    assert "CPU request" in refused(spec)
    render(pod_changed(spec, resources={"requests": {"cpu": "1"}}), TARGET, SECRETS)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("worker-keda", "keda"),
        ("router", "metrics-server"),
        ("router", "ingress"),
        ("router-gateway", "gateway-api"),
        ("router-loadbalancer", "load-balancer"),
        ("router-ingress-tls", "cert-manager"),
        ("router-own-gateway", "cert-manager"),
    ],
)
def test_what_is_asked_for_and_not_there(name: str, capability: str) -> None:
    said = refused(SPECS[name], without(capability))
    assert said.startswith("MissingCapability: ")
    assert "demo-" in said


def test_what_is_only_nice_is_done_without_and_said() -> None:
    plain = replace(SPECS["worker-gpu"], around=WORKER.around)
    kinds_made = {name.partition("/")[0] for name in rendered(plain, BARE)}
    assert "PodMonitor" not in kinds_made
    assert {(part.part, part.reason) for part in declined(plain, BARE)} == {
        ("PodMonitor", "NoPrometheusOperator"),
        ("NetworkPolicy", "NotEnforced"),
        ("Nodes", "NoGpuNode"),
    }
    assert all(part.ready is None and part.message for part in declined(plain, BARE))
    rule = [part.part for part in declined(ROUTERS, BARE)]
    assert "PrometheusRule" in rule
    assert declined(plain, TARGET) == ()


def test_without_an_operator_services_are_annotated() -> None:
    notes = rendered(WORKER, BARE)["Service/demo-worker-pods"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == "8000"
    assert "annotations" not in rendered(WORKER)["Service/demo-worker-pods"]["metadata"]
    assert "annotations" not in rendered(WORKER, BARE)["Service/demo-worker"]["metadata"]


def test_metrics_are_labelled_as_the_consoles_own_targets() -> None:
    for spec, job, label, value in (
        (WORKER, "vllm", "endpoint_name", "demo"),
        (ROUTERS, "router", "endpoint_name", "demo"),
        (SPECS["cache"], "l2", "pool", "shared"),
    ):
        (end,) = rendered(spec)[f"PodMonitor/{spec.name}"]["spec"]["podMetricsEndpoints"]
        labels = {
            entry["targetLabel"]: entry["replacement"]
            for entry in end["relabelings"]
            if "targetLabel" in entry
        }
        assert labels == {"job": job, label: value}


def test_a_stream_is_not_cut_on_its_way() -> None:
    notes = rendered(ROUTERS)["Ingress/demo-router"]["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/proxy-read-timeout"] == "3600"
    mine = {"nginx.ingress.kubernetes.io/proxy-read-timeout": "9"}
    notes = rendered(exposed("ingress", annotations=mine))["Ingress/demo-router"]["metadata"]
    assert notes["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"] == "9"
    (rule,) = rendered(SPECS["router-gateway"])["HTTPRoute/demo-router"]["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s"}


def test_a_certificate_lies_where_the_ingress_looks() -> None:
    objects = rendered(SPECS["router-ingress-tls"])
    certificate = objects["Certificate/demo-router"]["spec"]
    assert objects["Ingress/demo-router"]["spec"]["tls"][0]["secretName"] == "demo-certificate"
    assert certificate["secretName"] == "demo-certificate"
    assert certificate["issuerRef"]["kind"] == "Issuer"
    assert certificate["dnsNames"] == ["demo.example.org"]


def test_a_gateway_of_its_own_ends_tls() -> None:
    objects = rendered(SPECS["router-own-gateway"])
    (listener,) = objects["Gateway/demo-router"]["spec"]["listeners"]
    assert (listener["port"], listener["protocol"]) == (443, "HTTPS")
    assert listener["tls"]["certificateRefs"][0]["name"] == "demo-router-tls"
    assert objects["Certificate/demo-router"]["spec"]["issuerRef"]["kind"] == "ClusterIssuer"
    plain = rendered(exposed("gateway", class_name="envoy"))["Gateway/demo-router"]["spec"]
    assert (plain["listeners"][0]["port"], plain["listeners"][0]["protocol"]) == (80, "HTTP")


def test_only_the_exposed_port_is_out_there() -> None:
    service = rendered(SPECS["router-loadbalancer"])["Service/demo-router-public"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    notes = service["metadata"]["annotations"]
    assert notes["external-dns.alpha.kubernetes.io/hostname"] == "demo.example.org"
    certificate = {"service.beta.kubernetes.io/aws-load-balancer-ssl-cert": "arn:x"}
    secure = rendered(exposed("loadbalancer", annotations=certificate, class_name="c"))
    service = secure["Service/demo-router-public"]["spec"]
    assert (service["ports"][0]["port"], service["loadBalancerClass"]) == (443, "c")


@pytest.mark.parametrize(
    ("exposure", "said"),
    [
        (Exposure("carrier-pigeon", "http"), "ingress, gateway, loadbalancer"),
        (Exposure("ingress", "htpp"), "'htpp'"),
        (Exposure("gateway", "http"), "name a Gateway"),
        (Exposure("gateway", "http", gateway="a/b", tls_secret="s"), "TLS is configured on"),
        (Exposure("loadbalancer", "http", tls_secret="s"), "cannot terminate TLS"),
        (Exposure("ingress", "http", issuer="x"), "host name"),
    ],
)
def test_what_cannot_be_exposed(exposure: Exposure, said: str) -> None:
    assert said in refused(around_changed(ROUTERS, exposure=exposure))


def test_a_node_with_a_broken_pod_can_still_be_emptied() -> None:
    body = rendered(WORKER)["PodDisruptionBudget/demo-worker"]["spec"]
    assert (body["maxUnavailable"], body["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_without_anything_around_nothing_is() -> None:
    made = {name.partition("/")[0] for name in rendered(SPECS["plain"])}
    assert made == {"ConfigMap", "Service", "Deployment"}
