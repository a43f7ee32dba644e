"""Keep-alive connection pool of one worker, newest first (LIFO)."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import ssl
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from console.processkit.descriptors import NONE_LEFT, is_own_limit
from routing.engine.config import Address
from routing.engine.fleet.worker_connection import WorkerConnection

# uvicorn (vLLM's server) closes idle connections after 5 s; close before it does.
IDLE_S: Final = 4.0


def describe_connect_error(error: OSError) -> tuple[str, bool]:
    """Return the reason why connecting failed, and True if the connection was refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message}", False
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}", False
    # asyncio's message hides the reason; use errno. With several addresses the numbers are only in
    # the message text.
    numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))}
    if error.errno is None and len(numbers) == 1:
        number = numbers.pop()
        if number in (errno.EMFILE, errno.ENFILE):
            return NONE_LEFT, False
        return f"cannot connect: {os.strerror(number)}", number == errno.ECONNREFUSED
    if is_own_limit(error):
        return NONE_LEFT, False
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    return f"cannot connect: {reason}", isinstance(error, ConnectionRefusedError)


class WorkerPool(Protocol):
    """Connections to one worker, as its users see them."""

    idle: list[WorkerConnection]
    connect_timeout_s: float

    def take(self) -> WorkerConnection | None: ...
    def connect(
        self, connected: Callable[[WorkerConnection], None], failed: Callable[[str, bool], None]
    ) -> asyncio.Task[None]: ...
    def tick(self, now: float) -> None: ...
    def renew(self, tls: ssl.SSLContext, tls_name: str) -> None: ...
    def close(self) -> None: ...


class ConnectionPool:
    """Connections to one address.

    `tls_name`: name in its certificate. `connect_timeout_s` may change.
    """

    def __init__(
        self,
        address: Address,
        connect_timeout_s: float,
        tls: ssl.SSLContext | None = None,
        tls_name: str = "",
    ) -> None:
        self._address = address
        self._tls = tls
        self._tls_name = tls_name
        self.connect_timeout_s = connect_timeout_s
        self.idle: list[WorkerConnection] = []
        self._closed = False

    def take(self) -> WorkerConnection | None:
        """Return an idle connection, or None (then use `connect`)."""
        oldest = perf_counter() - IDLE_S
        while self.idle:
            connection = self.idle.pop()
            if connection.idle_since > oldest and not connection.transport.is_closing():
                return connection
            connection.close()
        return None

    def give(self, connection: WorkerConnection) -> None:
        if self._closed or connection.tls is not self._tls:
            connection.close()
            return
        connection.idle_since = perf_counter()
        self.idle.append(connection)

    def connect(
        self, connected: Callable[[WorkerConnection], None], failed: Callable[[str, bool], None]
    ) -> asyncio.Task[None]:
        """Open a connection; exactly one callback is called, unless the task is cancelled.

        `failed(reason, refused)`: refused means that nothing listens at the address.
        """
        return asyncio.get_running_loop().create_task(self._connect(connected, failed))

    async def _connect(
        self, connected: Callable[[WorkerConnection], None], failed: Callable[[str, bool], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        tls = self._tls
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                _, connection = await loop.create_connection(  # type: ignore[type-var]  # acts like one
                    lambda: WorkerConnection(self, tls),
                    self._address.host,
                    self._address.port,
                    ssl=tls,
                    server_hostname=self._tls_name if tls is not None else None,
                )
        except TimeoutError:
            failed("connecting took too long", False)
            return
        except OSError as error:
            failed(*describe_connect_error(error))
            return
        if connection.transport.is_closing():  # lost before this task ran again
            failed("the worker closed the connection", False)
            return
        connected(connection)

    def tick(self, now: float) -> None:
        keep: list[WorkerConnection] = []
        for connection in self.idle:
            if connection.idle_since > now - IDLE_S:
                keep.append(connection)
            else:
                connection.close()
        self.idle = keep

    def lost(self, connection: WorkerConnection) -> None:
        if connection in self.idle:
            self.idle.remove(connection)

    def renew(self, tls: ssl.SSLContext, tls_name: str) -> None:
        """Apply new certificates; connections made with the old ones are closed, busy ones after
        their answer.
        """
        self._tls = tls
        self._tls_name = tls_name
        self._drop_idle()

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        for connection in self.idle:
            connection.close()
        self.idle.clear()
