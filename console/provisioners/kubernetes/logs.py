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
from console.provisioners.kubernetes import kinds, pods_seen
from console.provisioners.kubernetes.client import Client
from console.provisioners.kubernetes.rendering.names import WORKLOAD

Json = dict[str, Any]
_MOST_BYTES = 256 * 1024
_QUIET_S = 30.0
"""After so long without a line it is asked whether the container still runs."""


def last_lines(client: Client, name: str, lines: int) -> dict[str, str]:
    found = client.listed(kinds.POD, f"{WORKLOAD}={name}")
    pods = [pod for pod in found if not pods_seen.ended(pod)]
    texts = {}
    for pod in sorted(pods, key=pods_seen.order):
        texts[pod["metadata"]["name"]] = _of(client, pod, lines) if lines > 0 else ""
    return texts


@dataclass(frozen=True, slots=True)
class Begin:
    """From `since` (epoch seconds) on, 0 for the last `tail` lines; `stay` for what is to come."""

    since: float = 0.0
    tail: int = 100
    stay: bool = True


def follow(client: Client, name: str, pod: str, container: str, begin: Begin) -> Iterator[str]:
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


def _of(client: Client, pod: Json, lines: int) -> str:
    spec, statuses = pod.get("spec") or {}, (pod.get("status") or {}).get("containerStatuses") or []
    name = spec["containers"][0]["name"]
    query = [("container", name), ("tailLines", str(lines)), ("limitBytes", str(_MOST_BYTES))]
    waiting: dict[str, Any] = {}
    for status in statuses:
        if status.get("name") == name:
            waiting = (status.get("state") or {}).get("waiting") or {}
    previous = ("previous", "true")
    died = waiting.get("reason") == "CrashLoopBackOff"
    text = client.log(pod["metadata"]["name"], [*query, previous] if died else query)
    return text or ""


def _runs(client: Client, pod: str, container: str) -> bool:
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
