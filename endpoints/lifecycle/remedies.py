"""Remedies for phases other than Ready."""

from __future__ import annotations

import re
from dataclasses import dataclass

from endpoints.choices import Phase, PhaseReason
from endpoints.lifecycle.facts import CRASHES_TO_LOOP, LifecycleFacts
from endpoints.lifecycle.phases import PhaseDecision

_SCHEDULER = re.compile(r"\b\d+/\d+ nodes are available: (.*)", re.DOTALL)
# Messages of the scheduler's plug-ins, in the order in which to act on them.
_NOT_PLACED = (
    (r"Insufficient \S+/gpu", "Free GPUs, add nodes with GPUs, or lower resources.gpus."),
    (r"Insufficient cpu", "Add nodes, or lower the CPU request."),
    (r"Insufficient memory", "Add nodes, or lower resources.memory_gib or cache.l1.size_gib."),
    (r"Insufficient (?!cpu|memory)(?!\S+/gpu)", "Add nodes that offer the named resource."),
    (r"Too many pods", "Add nodes, or raise the pod limit of the nodes."),
    (r"were unschedulable", "Uncordon the drained nodes (kubectl uncordon NODE), or add nodes."),
    (r"untolerated taint", "Add the taint to placement.tolerations, or remove it from a node."),
    (
        r"node affinity/selector",
        "Correct placement.instance_types, node_selector or node_affinity, or label a node.",
    ),
    (r"volume node affinity", "Add a node in the zone of the volume."),
    (
        r"(?i)persistentvolume",
        "Create the volume that the claim asks for, or correct source.claim.",
    ),
    (r"topology spread|anti-affinity", "Add nodes or zones to spread over."),
    (r"free ports", "Add nodes, or remove host ports from the pod."),
)
_OF_CLUSTERS = {
    "Unschedulable": "No node has room, or none is of the wanted kind. Add nodes, ask for fewer "
    "GPUs or less memory, or allow more instance types; it is placed as soon as one fits.",
    "SchedulingGated": "Remove the pod's scheduling gates, or wait for the controller that set "
    "them.",
    "Hung": "The kubelet restarts a worker that does not answer its health check. If it repeats, "
    "read its log, and lower the load or the context length.",
    "CreateContainerConfigError": "Create the Secret, ConfigMap or key that the message names.",
    "ImagePullBackOff": "Correct the image's name, or give the pull secret its registry wants.",
    "ErrImagePull": "Correct the image's name, or give the pull secret its registry wants.",
    "FieldConflict": "Somebody else holds a field which this endpoint sets: Heal takes it back, "
    "Adopt leaves it to them. Both are on its page, under Drift.",
    "QuotaExceeded": "The namespace's quota is used up: raise it, or scale something else down.",
    "OOMKilled": "A worker used more memory than it may: raise its memory, or lower the context.",
    "ProgressDeadlineExceeded": "Read the events below. With an earlier revision that served and "
    "automatic rollback on, the endpoint goes back to it by itself.",
}
_REMEDIES: dict[str, str] = {
    **_OF_CLUSTERS,
    PhaseReason.WORKERS_CRASH_LOOPING: (
        "Read the last lines of its log below: mostly it is a worker argument, the model, or "
        "memory. Edit the endpoint; it is tried again by itself."
    ),
    PhaseReason.DEADLINE_EXCEEDED: (
        "Read the log of the worker that is not ready. If the model is only slow to load, wait: "
        "it is still being watched."
    ),
    PhaseReason.WORKER_UNAVAILABLE: (
        "Nothing has to be done: the worker is started again, the others serve. If it repeats, "
        "read its log."
    ),
    PhaseReason.NO_WORKER_AVAILABLE: (
        "The workers are started again. If they do not come back, read their logs."
    ),
    PhaseReason.ROUTER_UNAVAILABLE: (
        "The router is started again. If it does not come back, read its log."
    ),
    PhaseReason.L2_UNAVAILABLE: "Requests go on: workers compute what they would have found in L2. "
    "Look at the Cache page, or at the Redis whose address was given.",
    PhaseReason.NOT_SERVING: "Send a prompt from this page to see the answer, and read the logs of "
    "router and workers.",
    PhaseReason.WAITING_FOR_CACHE_TIER: (
        "Look at the Cache page if this lasts for more than a minute."
    ),
    PhaseReason.PODS_UNREACHABLE: (
        "Run this console in the cluster (or in a network which routes to its pods): it asks "
        "routers and workers at their own addresses. Callers do not need that."
    ),
    PhaseReason.ROUTER_PORT_TAKEN: (
        "Stop that process: the endpoint then serves at its address again by itself. To give it "
        "another address, delete and create it."
    ),
    PhaseReason.EXPOSURE_UNAVAILABLE: (
        "Read the conditions below: mostly it is the name of the class, the gateway or the "
        "issuer, or a DNS name which does not lead to the cluster yet."
    ),
    PhaseReason.DRIFTED: "Heal it to get back what is wanted, or adopt what is there.",
    PhaseReason.SCALED_TO_ZERO: (
        "Nothing has to be done. To keep workers always, set the minimum of its scaling above 0."
    ),
    PhaseReason.PAUSED: "Resume it, or set replicas above 0.",
}


def remedy_of(verdict: PhaseDecision) -> str:
    if verdict.remedy:
        return verdict.remedy
    placed = scheduling_remedy(verdict.message)
    if placed:
        return placed
    known = _REMEDIES.get(verdict.reason, "")
    if known:
        return known
    if verdict.phase is Phase.FAILED:
        return "Correct what the message names; the endpoint is tried again by itself."
    if verdict.phase is Phase.DEGRADED:
        return "It is tried again every few seconds. If it lasts, read the events and the logs."
    return ""


def scheduling_remedy(message: str) -> str:
    """Return the fix for each scheduler message, "" for unknown ones."""
    said = _SCHEDULER.search(message)
    if said is None:
        return ""
    why = said[1].partition("preemption:")[0]
    known = [text for pattern, text in _NOT_PLACED if re.search(pattern, why)]
    if not known:
        return ""
    return f"{' Or: '.join(known)} Pending workers are placed as soon as a node fits."


REVISION_ERRORS = frozenset({"RefusedByCluster", "MissingCapability", "InvalidSpec"})
"""Provisioner errors caused by the spec."""


@dataclass(frozen=True, slots=True)
class Blame:
    reason: str
    message: str


def find_blame(facts: LifecycleFacts) -> Blame | None:
    """Return None while the rollout may still succeed, or if nothing served before it."""
    if facts.deleting or facts.served or not facts.served_once or not facts.wanted:
        return None
    trouble = facts.trouble
    if trouble is not None:
        by_spec = trouble.reason in REVISION_ERRORS
        return Blame(trouble.reason, trouble.message) if by_spec else None
    if facts.complete and not facts.overdue:
        return None
    if facts.failed is not None:
        return Blame(facts.failed.reason, facts.failed.message)
    if facts.looping:
        worker = facts.looping[0]
        text = f"{worker.name} died {CRASHES_TO_LOOP} times without becoming ready."
        return Blame(PhaseReason.WORKERS_CRASH_LOOPING, f"{text} {worker.message}".strip())
    if facts.overdue:
        why = facts.stuck.message if facts.stuck else facts.proof_error
        text = f"{facts.current_ready} of {facts.wanted} new workers were ready at the deadline."
        return Blame(PhaseReason.DEADLINE_EXCEEDED, f"{text} {why}".strip())
    return None
