"""What pods print: the last lines of each, or one container's as they come.

Promises that a container without a log yet is no error, and that of one which died the log that
tells why is given. Must not know what a workload is for.
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
from console.provisioners.kubernetes.rendering.names import WORKLOAD
from console.provisioners.kubernetes.workload import pods as workload_pods

Json = dict[str, Any]
_MOST_BYTES = 256 * 1024
_CAUSE_LINES = 400
_QUIET_S = 30.0
"""After so long without a line it is asked whether the container still runs."""


def last_lines(client: KubernetesClient, name: str, lines: int) -> dict[str, str]:
    found = client.listed(kinds.POD, f"{WORKLOAD}={name}")
    pods = [pod for pod in found if not workload_pods.ended(pod)]
    texts = {}
    for pod in sorted(pods, key=workload_pods.order):
        texts[pod["metadata"]["name"]] = _of(client, pod, lines) if lines > 0 else ""
    return texts


@dataclass(frozen=True, slots=True)
class Begin:
    """From `since` (epoch seconds) on, 0 for the last `tail` lines; `stay` for what is to come."""

    since: float = 0.0
    tail: int = 100
    stay: bool = True


def follow(
    client: KubernetesClient, name: str, pod: str, container: str, begin: Begin
) -> Iterator[str]:
    """Lines with their time before them. Ends with the container. Only pods of the workload are
    read, whatever the caller names."""
    found = client.get(kinds.POD, pod)
    if found is None or (found["metadata"].get("labels") or {}).get(WORKLOAD) != name:
        raise PermanentError("NoReplica", f"{name!r} has no replica {pod!r}: choose another one.")
    last = ""
    while True:
        query = [("container", container), ("timestamps", "true")]
        query += [("follow", "true")] if begin.stay else []
        since = _seconds(last) or begin.since
        query.append(("sinceTime", _stamp(since)) if since else ("tailLines", str(begin.tail)))
        for line in client.follow(pod, query, _QUIET_S):
            stamp = line.partition(" ")[0]
            if _order(stamp) > _order(last):  # else it was told before the connection was lost
                last = stamp
                yield line
        if not begin.stay or not _runs(client, pod, container):
            return


def _of(client: KubernetesClient, pod: Json, lines: int) -> str:
    """Of one which restarted and is not ready again, the log of the process that died first."""
    name = (pod.get("spec") or {})["containers"][0]["name"]
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    status: Json = next((one for one in statuses if one.get("name") == name), {})
    state = status.get("state") or {}
    died = "" if status.get("ready") else of_dead(client, pod, status, lines)
    if died and "running" not in state:
        return died
    now = client.log(pod["metadata"]["name"], _query(name, lines)) or ""
    return f"{died.rstrip()}\n--- restarted ---\n{now}" if died else now


def of_dead(client: KubernetesClient, pod: Json, status: Json, lines: int) -> str:
    """The log of a container's process that ended last, "" if none did."""
    if not workload_pods.last_end(status):
        return ""
    query = _query(str(status["name"]), lines)
    if "terminated" not in (status.get("state") or {}):
        query.append(("previous", "true"))
    return client.log(pod["metadata"]["name"], query) or ""


def cause_of_death(client: KubernetesClient, pod: Json, status: Json) -> str:
    """Why a container's process ended, by the end of its log: a termination message has 2048 bytes
    of it at most. "" where the log does not tell."""
    return crash_cause(of_dead(client, pod, status, _CAUSE_LINES))


def _query(container: str, lines: int) -> list[tuple[str, str]]:
    return [
        ("container", container),
        ("tailLines", str(lines)),
        ("limitBytes", str(_MOST_BYTES)),
    ]


def _runs(client: KubernetesClient, pod: str, container: str) -> bool:
    found = client.get(kinds.POD, pod)
    status = (found or {}).get("status") or {}
    for key in ("containerStatuses", "initContainerStatuses"):
        for one in status.get(key) or []:
            if one.get("name") == container:
                return "running" in (one.get("state") or {})
    return False


def _order(stamp: str) -> tuple[str, str]:
    """Of RFC 3339 with as many digits as the server likes."""
    seconds, _, digits = stamp.rstrip("Z").partition(".")
    return seconds, digits.ljust(9, "0")


def _seconds(stamp: str) -> float:
    try:
        return datetime.fromisoformat(_order(stamp)[0]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _stamp(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
