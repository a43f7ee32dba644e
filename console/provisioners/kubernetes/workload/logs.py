"""Pod logs: the last lines of each pod, or a live stream of one container.

A container without a log is no error; after a crash, the log of the failed process is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from console.provisioners.base import PermanentError
from console.provisioners.crash_cause import crash_cause
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.rendering.names import COMPONENT, WORKLOAD
from console.provisioners.kubernetes.workload import pods as workload_pods

Json = dict[str, Any]
_MOST_BYTES = 256 * 1024
_CAUSE_LINES = 400
_QUIET_S = 30.0
"""Silence after which the container's state is checked."""


def last_lines(client: KubernetesClient, name: str, lines: int) -> dict[str, str]:
    listed = client.listed(kinds.POD, f"{WORKLOAD}={name}")
    pods = [pod for pod in listed if not workload_pods.has_ended(pod)]
    texts = {}
    for pod in sorted(pods, key=workload_pods.order):
        texts[pod["metadata"]["name"]] = _pod_log(client, pod, lines) if lines > 0 else ""
    return texts


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Start at `since` (epoch seconds), 0: the last `tail` lines; `stay` to follow new ones."""

    since: float = 0.0
    tail: int = 100
    stay: bool = True


def follow(
    client: KubernetesClient, name: str, pod: str, container: str, begin: LogPosition
) -> Iterator[str]:
    """Yield lines prefixed with their time until the container ends. Pods of other workloads are
    rejected.
    """
    body = client.get(kinds.POD, pod)
    if body is None or (body["metadata"].get("labels") or {}).get(WORKLOAD) != name:
        raise PermanentError("NoReplica", f"{name!r} has no replica {pod!r}: choose another one.")
    last = ""
    while True:
        query = [("container", container), ("timestamps", "true")]
        query += [("follow", "true")] if begin.stay else []
        since = _seconds(last) or begin.since
        query.append(("sinceTime", _stamp(since)) if since else ("tailLines", str(begin.tail)))
        for line in client.follow(pod, query, _QUIET_S):
            stamp = line.partition(" ")[0]
            if _order(stamp) > _order(last):  # otherwise already sent before the reconnect
                last = stamp
                yield line
        if not begin.stay or not _runs(client, pod, container):
            return


def _pod_log(client: KubernetesClient, pod: Json, lines: int) -> str:
    """Return the main container's log; after a restart and until ready, that of the process that
    ended first.
    """
    role = str((pod["metadata"].get("labels") or {}).get(COMPONENT, ""))
    name, status = workload_pods.main_container(pod, role), workload_pods.main_status(pod, role)
    state = status.get("state") or {}
    died = "" if status.get("ready") else terminated_log(client, pod, status, lines)
    if died and "running" not in state:
        return died
    now = client.log(pod["metadata"]["name"], _query(name, lines)) or ""
    return f"{died.rstrip()}\n--- restarted ---\n{now}" if died else now


def terminated_log(client: KubernetesClient, pod: Json, status: Json, lines: int) -> str:
    """Return the log of a container's last terminated process, "" if none."""
    if not workload_pods.last_termination(status):
        return ""
    query = _query(str(status["name"]), lines)
    if "terminated" not in (status.get("state") or {}):
        query.append(("previous", "true"))
    return client.log(pod["metadata"]["name"], query) or ""


def cause_of_death(client: KubernetesClient, pod: Json, status: Json) -> str:
    """Return the cause of an exit from the end of the log (a termination message has at most 2048
    bytes), "" if unknown.
    """
    return crash_cause(terminated_log(client, pod, status, _CAUSE_LINES))


def _query(container: str, lines: int) -> list[tuple[str, str]]:
    return [("container", container), ("tailLines", str(lines)), ("limitBytes", str(_MOST_BYTES))]


def _runs(client: KubernetesClient, pod: str, container: str) -> bool:
    body = client.get(kinds.POD, pod)
    status = (body or {}).get("status") or {}
    for key in ("containerStatuses", "initContainerStatuses"):
        for state in status.get(key) or []:
            if state.get("name") == container:
                return "running" in (state.get("state") or {})
    return False


def _order(stamp: str) -> tuple[str, str]:
    """Sort key for RFC 3339 timestamps with any number of fractional digits."""
    seconds, _, digits = stamp.rstrip("Z").partition(".")
    return seconds, digits.ljust(9, "0")


def _seconds(stamp: str) -> float:
    try:
        return datetime.fromisoformat(_order(stamp)[0]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _stamp(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
