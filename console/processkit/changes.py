"""Change notices between the processes of one machine, as datagrams to a Unix socket.

A notice names what changed, `endpoint/demo` or `program/demo-worker-0`, and carries no state. It is
lost while there is no listener, so a listener observes everything when it begins, and
periodically. One that the listener's buffer has no room for is sent again. The socket's path is in
the environment, which supervisord passes on to every program of the machine; without it nothing is
sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

SOCKET = "EMBERLINE_CHANGES_SOCKET"
PROGRAM = "program/"
ENDPOINT = "endpoint/"
_NOTICE_BYTES = 256
_MAX_UNSENT = 1000
_GATHER_S = 0.05
"""Wait after the first notice for more: one crash sends several."""


def socket_path(env: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of this machine's socket, None where nothing is announced."""
    named = env.get(SOCKET, "")
    return Path(named) if named else None


class ChangeSender:
    """Sender that never blocks and never raises."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._unsent: dict[str, None] = {}

    def send(self, subject: str) -> bool:
        """Return whether a listener's buffer took the notice; `resend` sends it if it was full."""
        if self._path is None:
            return False
        self._unsent.pop(subject, None)
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(subject.encode()[:_NOTICE_BYTES], str(self._path))
        except BlockingIOError:
            if len(self._unsent) < _MAX_UNSENT:
                self._unsent[subject] = None
            return False
        except OSError:
            return False
        return True

    def resend(self) -> None:
        """Send notices for which the buffer had no room; called every few seconds."""
        for subject in list(self._unsent):
            if not self.send(subject):
                return

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class ChangeReceiver:
    """Receiver of the notices of one machine; the last one opened gets them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        try:
            self._socket.bind(str(path))
            path.chmod(0o600)
        except OSError:
            self._socket.close()
            raise

    def receive(self) -> set[str]:
        """Wait for notices and return their subjects; an empty set after `wake`."""
        first = self._socket.recv(_NOTICE_BYTES)
        time.sleep(_GATHER_S)
        changes = {first}
        with contextlib.suppress(BlockingIOError):
            while True:
                changes.add(self._socket.recv(_NOTICE_BYTES, socket.MSG_DONTWAIT))
        return {subject.decode(errors="replace") for subject in changes if subject}

    def wake(self) -> None:
        """Make a waiting `receive` return."""
        sender = ChangeSender(self._path)
        sender.send("")
        sender.close()

    def close(self) -> None:
        self._socket.close()
