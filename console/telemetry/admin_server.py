"""Admin port of a console process: `/healthz`, `/readyz` and `/metrics`.

Runs in its own thread, so it responds even if the process's work is stuck. Contains no secret and
rejects every other path. No authentication: for the network of the machine or pod.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from console.processkit.metrics import CONTENT_TYPE
from console.telemetry import meters

log = logging.getLogger(__name__)

Problem = str  # "" if healthy, else the reason
_SLOW_CALLER_S = 5.0


def _no_problem() -> Problem:
    return ""


@dataclass(frozen=True, slots=True)
class AdminSubject:
    """Checks of the process. `alive` returns why a restart would help, `ready` why the process
    cannot work yet.
    """

    program: str
    alive: Callable[[], Problem] = _no_problem
    ready: Callable[[], Problem] = _no_problem
    gauges: Callable[[], Mapping[str, tuple[str, float]]] = field(default=dict)


class AdminServer:
    """Listens from construction on. Raises OSError if the address is unavailable."""

    def __init__(self, address: str, subject: AdminSubject) -> None:
        host, _, port = address.rpartition(":")
        made = type("Handler", (_Handler,), {"subject": subject})
        self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), made)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="admin-port", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def start(address: str, subject: AdminSubject) -> AdminServer | None:
    if not address:
        return None
    server = AdminServer(address, subject)
    log.info("%s: admin port listens on %s", subject.program, address)
    return server


class _Handler(BaseHTTPRequestHandler):
    """Handler of one connection, with http.server's method names."""

    subject: AdminSubject
    timeout = _SLOW_CALLER_S
    server_version = "emberline"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            text = meters.render(self.subject.program, self.subject.gauges())
            self._answer(HTTPStatus.OK, text, CONTENT_TYPE)
        elif path == "/healthz":
            self._verdict(self.subject.alive())
        elif path == "/readyz":
            self._verdict(self.subject.alive() or self.subject.ready())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "Use /healthz, /readyz or /metrics.\n")

    def _verdict(self, why_not: Problem) -> None:
        status = HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK
        body = {"program": self.subject.program, "ok": not why_not, "why": why_not}
        self._answer(status, json.dumps(body) + "\n", "application/json")

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any, **__: Any) -> None:
        """Suppress access logs: probes and scrapes arrive every few seconds."""
