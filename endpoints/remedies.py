"""What a person can do about a phase that is not Ready; must not know Django."""

from __future__ import annotations

from endpoints.choices import Phase, Reason
from endpoints.lifecycle import Verdict

_OF_CLUSTERS = {
    "Unschedulable": "No node has room, or none is of the wanted kind. Add nodes, ask for fewer "
    "GPUs or less memory, or allow more instance types; it is placed as soon as one fits.",
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
    Reason.WORKERS_CRASH_LOOPING: "Read the last lines of its log below: mostly it is a worker "
    "argument, the model, or memory. Edit the endpoint; it is tried again by itself.",
    Reason.DEADLINE_EXCEEDED: "Read the log of the worker that is not ready. If the model is only "
    "slow to load, wait: it is still being watched.",
    Reason.WORKER_UNAVAILABLE: "Nothing has to be done: the worker is started again, the others "
    "serve. If it repeats, read its log.",
    Reason.NO_WORKER_AVAILABLE: "The workers are started again. If they do not come back, read "
    "their logs.",
    Reason.ROUTER_UNAVAILABLE: "The router is started again. If it does not come back, read its "
    "log.",
    Reason.L2_UNAVAILABLE: "Requests go on: workers compute what they would have found in L2. "
    "Look at the Cache page, or at the Redis whose address was given.",
    Reason.NOT_SERVING: "Send a prompt from this page to see the answer, and read the logs of "
    "router and workers.",
    Reason.WAITING_FOR_CACHE_TIER: "Look at the Cache page if this lasts for more than a minute.",
    Reason.PODS_UNREACHABLE: "Run this console in the cluster (or in a network which routes to its "
    "pods): it asks routers and workers at their own addresses. Callers do not need that.",
    Reason.ROUTER_PORT_TAKEN: "Stop that process: the endpoint then serves at its address again by "
    "itself. To give it another address, delete and create it.",
    Reason.EXPOSURE_UNAVAILABLE: "Read the conditions below: mostly it is the name of the class, "
    "the gateway or the issuer, or a DNS name which does not lead to the cluster yet.",
    Reason.DRIFTED: "Heal it to get back what is wanted, or adopt what is there.",
    Reason.SCALED_TO_ZERO: "Nothing has to be done. To keep workers always, set the minimum of its "
    "scaling above 0.",
    Reason.PAUSED: "Resume it, or set replicas above 0.",
}


def remedy(verdict: Verdict) -> str:
    """A sentence, "" when nothing has to be done."""
    if verdict.remedy:
        return verdict.remedy
    known = _REMEDIES.get(verdict.reason, "")
    if known:
        return known
    if verdict.phase is Phase.FAILED:
        return "Correct what the message names; the endpoint is tried again by itself."
    if verdict.phase is Phase.DEGRADED:
        return "It is tried again every few seconds. If it lasts, read the events and the logs."
    return ""
