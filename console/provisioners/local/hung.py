"""Replacement of processes that run but do not respond, such as a stopped or deadlocked one."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from console.provisioners.base import HUNG, ReplicaObservation, ReplicaState

# By role. A router's event loop answers within milliseconds. A worker and the console's web process
# have as long as liveness probes on a cluster allow; the router ejects a worker meanwhile. Cache
# nodes answer or are left alone.
HUNG_S = {"router": 15.0, "worker": 60.0, "web": 60.0}
_FORGET_S = 300.0
_RESTARTING = (ReplicaState.STARTING, ReplicaState.BACKOFF)
log = logging.getLogger(__name__)


class HungProcesses:
    """Processes whose health checks time out, with the time of the first one, and those killed."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}
        self._killed: dict[str, float] = {}

    def end(
        self, role: str, replicas: Sequence[ReplicaObservation]
    ) -> tuple[ReplicaObservation, ...]:
        """Kill processes that have been hung too long; their supervisor starts new ones. Return the
        replicas, those that hung with that reason.
        """
        longest_s = HUNG_S.get(role)
        if longest_s is None:
            return tuple(replicas)
        now = time.monotonic()
        self._forget(now)
        return tuple(self._end(replica, longest_s, now) for replica in replicas)

    def _end(self, replica: ReplicaObservation, longest_s: float, now: float) -> ReplicaObservation:
        process = (replica.name, replica.pid)
        if replica.state is not ReplicaState.UNKNOWN or not replica.pid:
            self._since.pop(process, None)
            if replica.state in _RESTARTING and replica.name in self._killed:
                return _mark(replica, f"It did not respond for {longest_s:g} s and was restarted.")
            return replica
        if now - self._since.setdefault(process, now) >= longest_s:
            del self._since[process]
            self._killed[replica.name] = now
            text = "%s (pid %d) has not responded for %.0f s: killing it, so that it is restarted"
            log.warning(text, *process, longest_s)
            _kill(replica.pid)
        return _mark(replica, f"{replica.message} It is restarted after {longest_s:g} s.")

    def _forget(self, now: float) -> None:
        """Drop what is over: processes that ended while hung, restarts of some minutes ago."""
        self._since = {key: since for key, since in self._since.items() if now - since <= _FORGET_S}
        self._killed = {
            name: since for name, since in self._killed.items() if now - since <= _FORGET_S
        }


def _mark(replica: ReplicaObservation, message: str) -> ReplicaObservation:
    """A cause that is known goes first, such as a port in use."""
    return replica if replica.reason else replace(replica, reason=HUNG, message=message)


def _kill(pid: int) -> None:
    """Kill a process with its children, which an engine's are: supervisord gives it a group."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


hung_processes = HungProcesses()
