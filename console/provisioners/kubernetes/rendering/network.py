"""NetworkPolicy and Services of a workload.

Ports are closed unless listed. If the cluster network enforces policies, a channel (a socket
without authentication) is reachable only by the peers in the spec.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.rendering.monitors import scrape_annotations
from console.provisioners.kubernetes.rendering.names import (
    COMPONENT,
    MANAGER,
    NAME,
    OWNER,
    make_object,
    owner_label,
    pods_name,
    port_numbers,
    selector,
)
from console.provisioners.kubernetes.rendering.target import RenderingTarget
from console.provisioners.pods import Around, Peer

PROMETHEUS = "prometheus"
"""Role of third-party pods: Prometheus' charts give its pods this name."""


def network_policies(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    if spec.around is None:
        return []
    body = {
        "podSelector": {"matchLabels": selector(spec.name)},
        "policyTypes": ["Ingress"],
        "ingress": _rules(spec, spec.around),
    }
    return [make_object(spec, target.namespace, kinds.NETWORK_POLICY, {"spec": body})]


def _rules(spec: WorkloadSpec, around: Around) -> list[dict[str, Any]]:
    """Return ingress rules, one for all ports with the same peers; no `from` admits everybody."""
    ports = port_numbers(spec)
    shared: dict[tuple[Peer, ...], list[int]] = {}
    for name, peers in _reach(around).items():
        if name not in ports:
            raise PermanentError(
                "UnknownPort",
                f"{spec.name!r} opens unknown port {name!r}; known: {', '.join(ports) or 'none'}.",
            )
        shared.setdefault(peers, []).append(ports[name])
    return [
        {
            **({"from": [rule for peer in peers for rule in _peers(peer)]} if peers else {}),
            "ports": [{"port": number, "protocol": "TCP"} for number in sorted(ports)],
        }
        for peers, ports in shared.items()
    ]


def _reach(around: Around) -> dict[str, tuple[Peer, ...]]:
    """Return peers by port: those of the spec, everybody for exposed ports, Prometheus for scraped
    ones.
    """
    out = dict(around.reach)
    for scrape in around.scrape:
        peers = out.get(scrape.port)
        everybody = peers == ()
        if not everybody and Peer(PROMETHEUS) not in (peers or ()):
            out[scrape.port] = (*(peers or ()), Peer(PROMETHEUS))
    if around.exposure is not None:
        out[around.exposure.port] = ()
    return out


def _peers(peer: Peer) -> list[dict[str, Any]]:
    """Select peers in the same namespace: labels in other namespaces are not trustworthy."""
    labels = {NAME: MANAGER, COMPONENT: peer.role}
    if peer.owner:
        return [{"podSelector": {"matchLabels": {**labels, OWNER: owner_label(peer.owner)}}}]
    anywhere: dict[str, Any] = {"namespaceSelector": {}}
    out = [{**anywhere, "podSelector": {"matchLabels": labels}}]
    if peer.role == PROMETHEUS:
        out.append({**anywhere, "podSelector": {"matchLabels": {NAME: PROMETHEUS}}})
    return out


def services(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    """Return Service `NAME` with the ports and headless `NAME-pods` with ports and channels."""
    numbers = port_numbers(spec)
    own = [_port(name, numbers[name]) for name in spec.ports]
    each = [_port(name, number) for name, number in numbers.items()]
    common = {"selector": selector(spec.name), "type": "ClusterIP"}
    headless = {
        **common,
        "clusterIP": "None",
        # Pods that are not ready or are terminating must not be resolved.
        "publishNotReadyAddresses": False,
        "ports": each,
    }
    space, notes = target.namespace, scrape_annotations(spec, target)
    body = {"spec": {**common, "ports": own}}
    return [
        make_object(spec, space, kinds.SERVICE, body),
        make_object(
            spec, space, kinds.SERVICE, {"spec": headless}, name=pods_name(spec.name), notes=notes
        ),
    ]


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}
