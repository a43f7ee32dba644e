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
        "Create the volume that the claim requires, or correct source.claim.",
    ),
    (r"topology spread|anti-affinity", "Add nodes or zones to spread over."),
    (r"free ports", "Add nodes, or remove host ports from the pod."),
)
_OF_CLUSTERS = {
    "Unschedulable": "No node fits. Add nodes, request fewer GPUs or less memory, or allow more "
    "instance types; the worker is placed as soon as a node fits.",
    "SchedulingGated": "Remove the pod's scheduling gates, or wait for the controller that set "
    "them.",
    "Hung": "A worker that does not respond for a minute is restarted. If it repeats, read its "
    "log, and lower the load or the context length.",
    "CreateContainerConfigError": "Create the Secret, ConfigMap or key named in the message.",
    "ImagePullBackOff": "Correct the image name, or provide the pull secret of its registry.",
    "ErrImagePull": "Correct the image name, or provide the pull secret of its registry.",
    "FieldConflict": "Another field manager owns a field that this endpoint sets. On the endpoint "
    "page, Heal takes it back, Adopt leaves it to the other manager.",
    "QuotaExceeded": "The namespace quota is exhausted: raise it, or scale another workload down.",
    "OOMKilled": "The worker exceeded its memory limit: raise resources.memory_gib, or lower "
    "cache.l1.size_gib or the context length.",
    "ProgressDeadlineExceeded": "Read the events below. With automatic rollback on, the endpoint "
    "returns to the last revision that served.",
}
# Causes found in a crashed worker's log (see provisioners.crash_cause).
_CRASHED = (
    (r"arguments: -|argument -|arguments are required", "Fix the worker arguments."),
    (
        r"HFValidationError|LocalEntryNotFound|RepositoryNotFound|GatedRepo|valid model identifier",
        "Correct the model name or folder; a gated or private model needs a Hugging Face token.",
    ),
    (
        r"No common block size",
        "Set cache.l1.chunk_tokens to a multiple of the number after MultipleOf.",
    ),
    (r"max_model_len|max seq len", "Lower --max-model-len, or give the worker more memory."),
    (r"attention heads", "Choose a number of GPUs (tensor parallel size) that the model supports."),
    (
        r"(?i)CUDA out of memory|No available memory for the cache|HIP out of memory",
        "Free GPU memory, lower --max-model-len, or set --gpu-memory-utilization to fit.",
    ),
    (
        r"SIGKILL|OOMKilled|MemoryError|Cannot allocate memory",
        "The worker probably ran out of host memory: raise resources.memory_gib, or lower "
        "cache.l1.size_gib.",
    ),
    (r"Address already in use", "Stop the process that holds the port."),
)
_REMEDIES: dict[str, str] = {
    **_OF_CLUSTERS,
    PhaseReason.WORKERS_CRASH_LOOPING: (
        "Fix the worker arguments, the model or the memory limits; the log has the details. "
        "The rollout retries automatically."
    ),
    PhaseReason.DEADLINE_EXCEEDED: (
        "Read the log of the worker that is not ready. If the model is still loading, wait: the "
        "endpoint becomes Ready afterwards."
    ),
    PhaseReason.WORKER_UNAVAILABLE: (
        "No action needed: the worker restarts automatically, the others serve. If it repeats, "
        "read its log."
    ),
    PhaseReason.NO_WORKER_AVAILABLE: (
        "The workers restart automatically. If they do not become ready, read their logs."
    ),
    PhaseReason.ROUTER_UNAVAILABLE: (
        "The router restarts automatically. If it does not become ready, read its log."
    ),
    PhaseReason.L2_UNAVAILABLE: "Requests are served; prompts cached in L2 are recomputed. "
    "Check the cache tier, or the configured Redis.",
    PhaseReason.NOT_SERVING: "Send a prompt from the endpoint page to see the error, and "
    "read the logs of router and workers.",
    PhaseReason.WAITING_FOR_CACHE_TIER: "If this lasts more than a minute, check the cache tier.",
    PhaseReason.PODS_UNREACHABLE: (
        "Run this console in the cluster, or in a network that routes to its pods: it queries "
        "routers and workers at their pod addresses. Clients do not need that."
    ),
    PhaseReason.ROUTER_PORT_TAKEN: (
        "Stop that process; the endpoint then serves at its address again. For another address, "
        "delete and recreate the endpoint."
    ),
    PhaseReason.EXPOSURE_UNAVAILABLE: (
        "Read the conditions below. Common causes: the name of the class, gateway or issuer, or a "
        "DNS name that does not resolve to the cluster yet."
    ),
    PhaseReason.DRIFTED: "Heal to restore the configuration, or adopt the change.",
    PhaseReason.SCALED_TO_ZERO: (
        "No action needed. To keep workers running, set the autoscaling minimum above 0."
    ),
    PhaseReason.PAUSED: "Resume the endpoint, or set replicas above 0.",
}


def remedy_of(verdict: PhaseDecision) -> str:
    if verdict.remedy:
        return verdict.remedy
    placed = scheduling_remedy(verdict.message)
    if placed:
        return placed
    remedy = _crash_remedy(verdict) or _REMEDIES.get(verdict.reason, "")
    if remedy:
        return remedy
    if verdict.phase is Phase.FAILED:
        return "Fix the cause in the message; the endpoint retries automatically."
    if verdict.phase in (Phase.DEGRADED, Phase.UNAVAILABLE):
        return "Retried every few seconds. If it persists, read the events and the logs."
    return ""


def _crash_remedy(verdict: PhaseDecision) -> str:
    """Return the fix of a crash with a known cause."""
    if verdict.reason != PhaseReason.WORKERS_CRASH_LOOPING:
        return ""
    fixes = (fix for pattern, fix in _CRASHED if re.search(pattern, verdict.message))
    fix = next(fixes, "")
    return f"{fix} The rollout retries automatically." if fix else ""


def scheduling_remedy(message: str) -> str:
    """Return the fix for each scheduler message, "" for unknown ones."""
    match = _SCHEDULER.search(message)
    if match is None:
        return ""
    why = match[1].partition("preemption:")[0]
    texts = [text for pattern, text in _NOT_PLACED if re.search(pattern, why)]
    if not texts:
        return ""
    return f"{' Or: '.join(texts)} Pending workers are placed as soon as a node fits."


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
        text = f"{worker.name} crashed {CRASHES_TO_LOOP} times before becoming ready."
        return Blame(PhaseReason.WORKERS_CRASH_LOOPING, f"{text} {worker.message}".strip())
    if facts.overdue:
        why = facts.stuck.message if facts.stuck else facts.proof_error
        text = f"{facts.current_ready}/{facts.wanted} new workers ready at the deadline."
        return Blame(PhaseReason.DEADLINE_EXCEEDED, f"{text} {why}".strip())
    return None
