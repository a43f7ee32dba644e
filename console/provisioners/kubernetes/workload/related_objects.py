"""Conditions of the objects around the pods: rollout, autoscaler, route, certificate.

One `PartCondition` per object with a status; `ready` is None while unknown. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from console.provisioners.base import PartCondition
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.kinds import ObjectKind
from console.provisioners.kubernetes.workload.fields import parse_time
from console.provisioners.kubernetes.workload.pods import condition

Json = dict[str, Any]

KINDS_WITH_STATUS = (
    kinds.HPA,
    kinds.SCALED_OBJECT,
    kinds.INGRESS,
    kinds.HTTP_ROUTE,
    kinds.CERTIFICATE,
    kinds.SERVICE,
)
"""Kinds whose objects are each observed if a workload has one (Services: load balancers)."""


def rollout(workload: Json | None, kind: ObjectKind | None) -> PartCondition:
    if workload is None:
        return PartCondition("rollout", ready=None)
    status = workload.get("status") or {}
    replicas = int((workload.get("spec") or {}).get("replicas") or 0)
    current = int(status.get("updatedReplicas") or 0)
    ready = int(status.get("readyReplicas") or 0)
    replica_failure = condition(status, "ReplicaFailure")
    progressing = condition(status, "Progressing")
    if replica_failure.get("status") == "True":
        text = str(replica_failure.get("message") or "")
        reason = "QuotaExceeded" if "exceeded quota" in text else str(replica_failure["reason"])
        since = parse_time(replica_failure.get("lastTransitionTime"))
        return PartCondition("rollout", False, reason, text, since)
    if is_rollout_abandoned(workload):
        text, since = (
            str(progressing.get("message")),
            parse_time(progressing.get("lastTransitionTime")),
        )
        return PartCondition("rollout", False, "ProgressDeadlineExceeded", text, since)
    behind = int(status.get("observedGeneration") or 0) < int(
        workload["metadata"].get("generation") or 0
    )
    old = int(status.get("replicas") or 0) - current
    text = f"{current} of {replicas} are of the current revision, {ready} are ready"
    text += f", {old} of an older one." if old > 0 else "."
    if kind == kinds.STATEFUL_SET and "updatedReplicas" not in status:
        current = replicas if status.get("currentRevision") == status.get("updateRevision") else 0
    done = not behind and current >= replicas and ready >= replicas and old <= 0
    since = parse_time(progressing.get("lastTransitionTime"))
    return PartCondition("rollout", done or None, "" if done else "RollingOut", text, since)


def is_rollout_abandoned(workload: Json) -> bool:
    """Return whether the Deployment exceeded its progress deadline on the current revision."""
    status = workload.get("status") or {}
    generation = int(status.get("observedGeneration") or 0)
    current = generation >= int(workload["metadata"].get("generation") or 0)
    progressing = condition(status, "Progressing")
    return current and progressing.get("reason") == "ProgressDeadlineExceeded"


def related_conditions(found: Iterable[tuple[ObjectKind, Json]]) -> list[PartCondition]:
    parts = (_PARTS[kind](body) for kind, body in found)
    return [part for part in parts if part is not None]


def external_url(found: Iterable[tuple[ObjectKind, Json]], *, secure: bool) -> str:
    """Return the external URL once an address is assigned."""
    for kind, body in found:
        spec, status = body.get("spec") or {}, body.get("status") or {}
        if kind == kinds.INGRESS:
            host, address = _ingress_host(spec), _balanced(status)
            scheme = "https" if spec.get("tls") else "http"
            if address:
                return f"{scheme}://{host or address}"
        if kind == kinds.HTTP_ROUTE and spec.get("hostnames") and _accepted(status):
            return f"{'https' if secure else 'http'}://{spec['hostnames'][0]}"
        if kind == kinds.SERVICE and spec.get("type") == "LoadBalancer" and _balanced(status):
            port = int(spec["ports"][0]["port"])
            scheme = "https" if secure or port == 443 else "http"
            usual = port == (443 if scheme == "https" else 80)
            return f"{scheme}://{_balanced(status)}" + ("" if usual else f":{port}")
    return ""


def _of_condition(part: str, kind: str, body: Json) -> PartCondition:
    entry = condition(body.get("status") or {}, kind)
    ready = {"True": True, "False": False}.get(str(entry.get("status")))
    reason, text = str(entry.get("reason") or ""), str(entry.get("message") or "")
    return PartCondition(part, ready, reason, text, parse_time(entry.get("lastTransitionTime")))


def _autoscaler(body: Json) -> PartCondition:
    able = _of_condition("autoscaler", "AbleToScale", body)
    active = _of_condition("autoscaler", "ScalingActive", body)
    return able if able.ready is False else active


def _service(body: Json) -> PartCondition | None:
    if (body.get("spec") or {}).get("type") != "LoadBalancer":
        return None
    return _addressed("load balancer", "Not assigned by the cluster yet.", body)


def _addressed(part: str, missing: str, body: Json) -> PartCondition:
    address = _balanced(body.get("status") or {})
    if address:
        return PartCondition(part, True, "", f"Its address is {address}.")
    return PartCondition(part, None, "NoAddress", f"It has no address: {missing}")


def _route(body: Json) -> PartCondition:
    parents = (body.get("status") or {}).get("parents") or []
    for kind in ("Accepted", "ResolvedRefs"):
        for parent in parents:
            route = _of_condition("route", kind, {"status": parent})
            if route.ready is False:
                return route
    if not parents:
        return PartCondition("route", None, "NoGateway", "Not accepted by a Gateway yet.")
    return _of_condition("route", "Accepted", {"status": parents[0]})


def _accepted(status: Json) -> bool:
    parents = status.get("parents") or []
    return any(condition(parent, "Accepted").get("status") == "True" for parent in parents)


def _ingress_host(spec: Json) -> str:
    return next((str(rule["host"]) for rule in spec.get("rules") or [] if rule.get("host")), "")


def _balanced(status: Json) -> str:
    ingress = (status.get("loadBalancer") or {}).get("ingress") or []
    return next((str(entry.get("hostname") or entry.get("ip") or "") for entry in ingress), "")


_PARTS: dict[ObjectKind, Callable[[Json], PartCondition | None]] = {
    kinds.HPA: _autoscaler,
    kinds.SCALED_OBJECT: partial(_of_condition, "scaled object", "Ready"),
    kinds.INGRESS: partial(_addressed, "ingress", "Not assigned by an Ingress controller yet."),
    kinds.HTTP_ROUTE: _route,
    kinds.CERTIFICATE: partial(_of_condition, "certificate", "Ready"),
    kinds.SERVICE: _service,
}
