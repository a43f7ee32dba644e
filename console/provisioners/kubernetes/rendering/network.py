"""Who may reach a workload's ports: one NetworkPolicy, everything not named in it closed.

Promises that a channel (a socket without a login) is open to those a spec names and to nobody else,
on a cluster whose network enforces policies. Must not know what a port is for.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.monitors import scrape_annotations
from console.provisioners.kubernetes.rendering.names import (
    COMPONENT,
    MANAGER,
    NAME,
    OWNER,
    made,
    numbers,
    owner_label,
    pods_name,
    selector,
)
from console.provisioners.kubernetes.rendering.target import RenderingTarget
from console.provisioners.pods import Around, Peer

PROMETHEUS = "prometheus"
"""A role which others' pods have: Prometheus' charts give its pods this name."""


def network_policies(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    if spec.around is None:
        return []
    body = {
        "podSelector": {"matchLabels": selector(spec.name)},
        "policyTypes": ["Ingress"],
        "ingress": _rules(spec, spec.around),
    }
    kind, version = "NetworkPolicy", "networking.k8s.io/v1"
    return [made(spec, target.namespace, version, kind, spec.name, {"spec": body})]


def _rules(spec: WorkloadSpec, around: Around) -> list[dict[str, Any]]:
    """Ports with the same peers share a rule; no `from` means everybody."""
    known = numbers(spec)
    shared: dict[tuple[Peer, ...], list[int]] = {}
    for name, peers in _reach(around).items():
        if name not in known:
            raise PermanentError(
                "UnknownPort",
                f"{spec.name!r} opens port {name!r}; it has: {', '.join(known) or 'none'}.",
            )
        shared.setdefault(peers, []).append(known[name])
    return [
        {
            **({"from": [one for peer in peers for one in _peers(peer)]} if peers else {}),
            "ports": [{"port": number, "protocol": "TCP"} for number in sorted(ports)],
        }
        for peers, ports in shared.items()
    ]


def _reach(around: Around) -> dict[str, tuple[Peer, ...]]:
    """As the spec has it; what is exposed is for everybody, what is scraped for Prometheus too."""
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
    """An owner's pods are in its own namespace; labels of other namespaces could be anybody's."""
    labels = {NAME: MANAGER, COMPONENT: peer.role}
    if peer.owner:
        return [{"podSelector": {"matchLabels": {**labels, OWNER: owner_label(peer.owner)}}}]
    anywhere: dict[str, Any] = {"namespaceSelector": {}}
    out = [{**anywhere, "podSelector": {"matchLabels": labels}}]
    if peer.role == PROMETHEUS:
        out.append({**anywhere, "podSelector": {"matchLabels": {NAME: PROMETHEUS}}})
    return out


def services(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    """`NAME` has the ports; `NAME-pods` has no address of its own, and the channels as well."""
    known = numbers(spec)
    own = [_port(name, known[name]) for name in spec.ports]
    each = [_port(name, number) for name, number in known.items()]
    common = {"selector": selector(spec.name), "type": "ClusterIP"}
    headless = {
        **common,
        "clusterIP": "None",
        # A pod that is not ready, or is about to end, is not to be found.
        "publishNotReadyAddresses": False,
        "ports": each,
    }
    space, notes = target.namespace, scrape_annotations(spec, target)
    body = {"spec": {**common, "ports": own}}
    return [
        made(spec, space, "v1", "Service", spec.name, body),
        made(spec, space, "v1", "Service", pods_name(spec.name), {"spec": headless}, notes),
    ]


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}
