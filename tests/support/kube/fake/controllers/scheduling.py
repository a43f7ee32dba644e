"""Scheduling, reasons for unschedulable pods, and pods of lost nodes."""

from __future__ import annotations

import time
from collections import Counter
from decimal import Decimal
from typing import Any

from tests.support.kube.fake.controllers.controller_client import (
    ControllerClient,
    condition,
    conditions,
    leaving,
)
from tests.support.kube.fake.quantity import number, requests
from tests.support.kube.fake.selectors import expression
from tests.support.kube.fake.store import Object

TOLERATION_S = 1.0  # for unreachable nodes, as in `defaults`


def run(client: ControllerClient, namespace: str) -> None:
    waiting = [pod for pod in client.alive("Pod", namespace) if not pod["spec"].get("nodeName")]
    if not waiting:
        return
    used = _used(client)
    for pod in waiting:
        _place(client, pod, used)


def _used(client: ControllerClient) -> dict[str, Counter[str]]:
    used: dict[str, Counter[str]] = {}
    for pod in client.list("Pod"):
        node = pod["spec"].get("nodeName", "")
        if node and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            _add(used.setdefault(node, Counter()), pod)
    return used


def _add(total: Any, pod: Object) -> None:
    for name, value in requests(pod["spec"]).items():
        total[name] = total.get(name, Decimal(0)) + value


def _place(client: ControllerClient, pod: Object, used: dict[str, Counter[str]]) -> None:
    reasons: Counter[str] = Counter()
    fitting = []
    for node in client.list("Node"):
        why = _refusal(node, pod, used.get(node["metadata"]["name"], Counter()))
        if why:
            reasons[why] += 1
        else:
            fitting.append(node)
    if not fitting:
        spelled = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
        text = f"0/{sum(reasons.values())} nodes are available: {spelled}."
        content = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        if condition(pod, "PodScheduled").get("message") != text:
            client.event(pod, "FailedScheduling", text, warning=True)
        client.status(pod, conditions=conditions(pod, {**content, "message": text}))
        return
    best = max(
        fitting,
        key=lambda node: (
            _preference(node, pod),
            -used.get(node["metadata"]["name"], Counter()).get("pods", 0),
            node["metadata"]["name"],
        ),
    )
    name = best["metadata"]["name"]
    _add(used.setdefault(name, Counter()), pod)
    client.event(pod, "Scheduled", f"Successfully assigned {pod['metadata']['name']} to {name}")
    bound = client.write({**pod, "spec": {**pod["spec"], "nodeName": name}}, "kube-scheduler")
    content = {"type": "PodScheduled", "status": "True"}
    found = [item for item in conditions(bound, content) if item["type"] != "PodScheduled"]
    client.status(bound, conditions=[*found, conditions({}, content)[0]])


def _refusal(node: Object, pod: Object, used: Any) -> str:
    spec = pod["spec"]
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] != "PreferNoSchedule" and not _tolerates(spec, taint):
            return f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
    if condition(node, "Ready").get("status") != "True" or node["spec"].get("unschedulable"):
        return "node(s) were not ready"
    labels = node["metadata"].get("labels", {})
    chosen = spec.get("nodeSelector") or {}
    if any(labels.get(k) != v for k, v in chosen.items()) or not _required(spec, labels):
        return "node(s) didn't match Pod's node affinity/selector"
    has = node.get("status", {}).get("allocatable", {})
    for name, value in requests(spec).items():
        if used.get(name, Decimal(0)) + value > number(has.get(name, 0)):
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return ""


def _tolerates(spec: Object, taint: Object) -> bool:
    for item in spec.get("tolerations") or ():
        if item.get("effect") not in (None, "", taint["effect"]):
            continue
        if item.get("operator") == "Exists" and item.get("key") in (None, "", taint["key"]):
            return True
        if item.get("key") == taint["key"] and item.get("value", "") == taint.get("value", ""):
            return True
    return False


def _affinity(spec: Object) -> Object:
    found: Object = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return found


def _required(spec: Object, labels: dict[str, str]) -> bool:
    must = _affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not must:
        return True
    return any(_term(term, labels) for term in must["nodeSelectorTerms"])


def _term(term: Object, labels: dict[str, str]) -> bool:
    return all(expression(item, labels) for item in term.get("matchExpressions") or ())


def _preference(node: Object, pod: Object) -> int:
    preferences = (
        _affinity(pod["spec"]).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    )
    labels = node["metadata"].get("labels", {})
    return sum(
        preference["weight"]
        for preference in preferences
        if _term(preference["preference"], labels)
    )


def evict(client: ControllerClient, namespace: str) -> None:
    """Evict pods of unreachable nodes after their toleration; remove pods of deleted nodes at
    once."""
    for pod in client.list("Pod", namespace):
        name = pod["spec"].get("nodeName", "")
        if not name:
            continue
        node = client.store.find("Node", "", name)
        if node is None:
            client.delete(pod, 0)
        elif condition(node, "Ready").get("status") == "Unknown":
            _give_up(client, pod)


def _give_up(client: ControllerClient, pod: Object) -> None:
    if condition(pod, "Ready").get("status") == "True":
        content = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
        client.status(pod, conditions=conditions(pod, content))
        client.event(pod, "NodeNotReady", "Node is not ready", warning=True)
    key = "lost", pod["metadata"]["uid"]
    left = client.since.setdefault(key, time.time()) + TOLERATION_S - time.time()
    if left > 0:
        client.later(left, pod["metadata"]["namespace"])
    elif not leaving(pod):
        client.event(pod, "TaintManagerEviction", "Marking for deletion Pod")
        client.delete(pod)
