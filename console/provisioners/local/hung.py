"""Replacement of processes that run but do not respond, such as a stopped or deadlocked one."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable

from console.provisioners.base import ReplicaObservation, ReplicaState

# By role. A router's event loop answers within milliseconds. A worker has as long as its liveness
# probe on a cluster allows; the router ejects it meanwhile. Cache nodes answer or are left alone.
HUNG_S = {"router": 15.0, "worker": 60.0}
_FORGET_S = 300.0
log = logging.getLogger(__name__)


class HungProcesses:
    """Processes whose health checks time out, with the time of the first one."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def end(self, role: str, replicas: Iterable[ReplicaObservation]) -> None:
        """Kill processes that have been hung too long; their supervisor starts new ones."""
        longest_s = HUNG_S.get(role)
        if longest_s is None:
            return
        now = time.monotonic()
        for replica in replicas:
            process = (replica.name, replica.pid)
            if replica.state is not ReplicaState.UNKNOWN or not replica.pid:
                self._since.pop(process, None)
            elif now - self._since.setdefault(process, now) >= longest_s:
                del self._since[process]
                log.warning(
                    "%s (pid %d) has not responded for %.0f s: killing it, so that it is started "
                    "again",
                    *process,
                    longest_s,
                )
                _kill(replica.pid)
        if len(self._since) > 1000:  # of processes that ended while hung
            self._since = {
                process: since for process, since in self._since.items() if now - since < _FORGET_S
            }


def _kill(pid: int) -> None:
    """Kill a process with its children, which an engine's are: supervisord gives it a group."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


hung_processes = HungProcesses()
