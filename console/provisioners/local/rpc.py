"""supervisord XML-RPC client over its Unix socket, with deadlines and `ProvisionError`s.

Every step of a call has the deadline, and requesting the current state is no error.
"""

from __future__ import annotations

import http.client
import socket
import xmlrpc.client
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

from console.processkit import descriptors
from console.provisioners.base import PermanentError, TemporaryError

DEADLINE_S = 10.0
REMEDY = "Start it with `make up`."
_NO_DESCRIPTOR = (
    "This process of the console has no file descriptor left. Raise its limit (ulimit -n), and "
    "restart it."
)


class ProcessState(IntEnum):
    STOPPED = 0
    STARTING = 10
    RUNNING = 20
    BACKOFF = 30
    STOPPING = 40
    EXITED = 100
    FATAL = 200
    UNKNOWN = 1000


# No process in these states: supervisord allows removal of the group.
AT_REST = frozenset({ProcessState.STOPPED, ProcessState.EXITED, ProcessState.FATAL})


class _Fault(IntEnum):
    SHUTDOWN_STATE = 6
    BAD_NAME = 10
    NOT_RUNNING = 70
    ALREADY_ADDED = 90
    STILL_RUNNING = 91
    CANT_REREAD = 92


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    group: str
    state: ProcessState
    pid: int
    started_at: float
    spawn_error: str


class Supervisor:
    """Client with one connection per call: supervisord closes idle ones, and threads share this
    object.
    """

    def __init__(self, path: Path, deadline_s: float = DEADLINE_S) -> None:
        self._path = path
        self._deadline_s = deadline_s

    def all(self) -> dict[str, ProcessInfo]:
        """Return every process by group (each of our groups has one process)."""
        return _infos(self._call("getAllProcessInfo"))

    def some(self, groups: Iterable[str]) -> dict[str, ProcessInfo]:
        """Return these groups' processes as in `all`, without unknown ones. The cost is
        independent of the other programs.
        """
        calls = [{"methodName": "supervisor.getProcessInfo", "params": [name]} for name in groups]
        if not calls:
            return {}
        programs = []
        for answer in cast(list[Any], self._call("system.multicall", calls)):
            if "faultCode" not in answer:
                programs.append(answer)
            elif answer["faultCode"] != _Fault.BAD_NAME:
                fault = xmlrpc.client.Fault(answer["faultCode"], answer["faultString"])
                raise _retyped("getProcessInfo", fault)
        return _infos(programs)

    def snapshot(self) -> tuple[int, dict[str, ProcessInfo]]:
        """Return supervisord's pid and every process as in `all`, from the same supervisord."""
        calls = [
            {"methodName": f"supervisor.{method}", "params": []}
            for method in ("getPID", "getAllProcessInfo")
        ]
        pid, infos = cast(list[Any], self._call("system.multicall", calls))
        for answer in (pid, infos):
            if isinstance(answer, dict):
                fault = xmlrpc.client.Fault(answer["faultCode"], answer["faultString"])
                raise _retyped("system.multicall", fault)
        return pid, _infos(infos)

    def reread(self) -> None:
        """Re-read the configuration files; starts and stops nothing."""
        self._call("reloadConfig")

    def add(self, group: str) -> None:
        """Start `group`, which must be known since the last `reread`."""
        self._call("addProcessGroup", group, unless=_Fault.ALREADY_ADDED)

    def stop(self, group: str) -> None:
        """Request a stop without waiting."""
        # NAME:* addresses the group; each of ours has one process.
        self._call("stopProcess", f"{group}:{group}", False, unless=_Fault.NOT_RUNNING)

    def stop_again(self, group: str) -> None:
        """Repeat the TERM of a stop in progress. supervisord sends it once, and it is lost on a
        forked process that has not executed its program yet.
        """
        self._call("signalProcess", f"{group}:{group}", "TERM", unless=_Fault.NOT_RUNNING)

    def hang_up(self, group: str) -> None:
        """Send HUP to a running program that handles it, to re-read its files."""
        self._call("signalProcess", f"{group}:{group}", "HUP", unless=_Fault.NOT_RUNNING)

    def remove(self, group: str) -> bool:
        """Remove a stopped group; return False while it still runs."""
        try:
            self._call("removeProcessGroup", group, unless=_Fault.BAD_NAME)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == _Fault.STILL_RUNNING:
                return False
            raise
        return True

    def shut_down(self) -> None:
        """Request that supervisord stop every program and exit; does not wait."""
        self._call("shutdown")

    def _call(self, method: str, *args: object, unless: _Fault | None = None) -> object:
        transport = _Transport(self._path, self._deadline_s)
        proxy = xmlrpc.client.ServerProxy("http://localhost", transport=transport)
        try:
            name = method if "." in method else f"supervisor.{method}"
            return cast(object, getattr(proxy, name)(*args))
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == unless:
                return None
            if fault.faultCode == _Fault.STILL_RUNNING:
                raise
            raise _retyped(method, fault) from fault
        except TimeoutError as error:
            raise TemporaryError(
                "SupervisorSlow", f"supervisord did not respond within {self._deadline_s:g} s."
            ) from error
        except PermissionError as error:
            raise PermanentError(
                "SupervisorForbidden",
                f"{self._path} belongs to another user: run the console as that user.",
            ) from error
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            if descriptors.is_own_limit(error):
                raise TemporaryError("NoFileDescriptor", _NO_DESCRIPTOR) from error
            raise TemporaryError(
                "SupervisorUnavailable", f"supervisord does not respond at {self._path}. {REMEDY}"
            ) from error
        finally:
            transport.close()


def _infos(answer: object) -> dict[str, ProcessInfo]:
    process_infos = {}
    for info_fields in cast(list[dict[str, Any]], answer):
        info = ProcessInfo(
            group=info_fields["group"],
            state=ProcessState(info_fields["state"]),
            pid=info_fields["pid"],
            started_at=float(info_fields["start"]) if info_fields["pid"] else 0.0,
            spawn_error=info_fields["spawnerr"],
        )
        process_infos[info.group] = info
    return process_infos


def _retyped(method: str, fault: xmlrpc.client.Fault) -> TemporaryError:
    if fault.faultCode == _Fault.SHUTDOWN_STATE:
        return TemporaryError("SupervisorUnavailable", f"supervisord is shutting down. {REMEDY}")
    if fault.faultCode == _Fault.CANT_REREAD:
        return TemporaryError(  # one invalid file blocks every change
            "SupervisorConfigInvalid",
            f"supervisord rejects its configuration: {fault.faultString[:300]}",
            delay_s=30.0,
        )
    return TemporaryError(
        "SupervisorRefused", f"supervisord rejected {method}: {fault.faultString[:300]}"
    )


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: Path, deadline_s: float) -> None:
        super().__init__()
        self._path = path
        self._deadline_s = deadline_s

    def make_connection(self, host: object) -> http.client.HTTPConnection:
        # Stored where the base class's close() finds it.
        connection = _UnixConnection(self._path, self._deadline_s)
        self._connection = (cast(str, host), connection)
        return connection


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, deadline_s: float) -> None:
        super().__init__("localhost", timeout=deadline_s)
        self._deadline_s = deadline_s
        self._socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._deadline_s)
        self.sock.connect(str(self._socket_path))
