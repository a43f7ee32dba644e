"""Replacement of routers that run but do not respond, such as a stopped or deadlocked process.

Only of routers: they hold no state, and their event loop answers within milliseconds. A worker
that computes may be silent for longer than any limit; the router ejects it meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable

from console.provisioners.base import ReplicaObservation, ReplicaState

HUNG_S = 15.0
ROLES = frozenset({"router"})
_FORGET_S = 300.0
log = logging.getLogger(__name__)


class HungProcesses:
    """Processes whose health checks time out, with the time of the first one."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def end(self, role: str, replicas: Iterable[ReplicaObservation]) -> None:
        """Kill processes that have been hung for HUNG_S; their supervisor starts new ones."""
        if role not in ROLES:
            return
        now = time.monotonic()
        for replica in replicas:
            process = (replica.name, replica.pid)
            if replica.state is not ReplicaState.UNKNOWN or not replica.pid:
                self._since.pop(process, None)
            elif now - self._since.setdefault(process, now) >= HUNG_S:
                del self._since[process]
                log.warning(
                    "%s (pid %d) has not responded for %.0f s: killing it, so that it is started "
                    "again",
                    *process,
                    HUNG_S,
                )
                with contextlib.suppress(ProcessLookupError):
                    os.kill(replica.pid, signal.SIGKILL)
        if len(self._since) > 1000:  # of processes that ended while hung
            self._since = {
                process: since for process, since in self._since.items() if now - since < _FORGET_S
            }


hung_processes = HungProcesses()
