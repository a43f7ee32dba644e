"""The API over HTTP/1.1 and TLS, with fault injection."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import ssl
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.certificates import authority
from tests.support.kube.fake.api import Api
from tests.support.kube.fake.rbac import User
from tests.support.kube.fake.refusals import ApiError
from tests.support.kube.fake.requests import Ask, read
from tests.support.kube.fake.store import Object

ANYBODY = User("system:anonymous", ("system:unauthenticated",))


@dataclass
class Fault:
    """Applies to requests whose `METHOD /path?query` matches the pattern, `times` times: respond
    with `status`, or cut the connection without one. With `done` the request is executed first.
    """

    pattern: str
    status: int = 0
    times: int = 1 << 30
    done: bool = False
    message: str = "injected"
    reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    hits: int = 0

    def takes(self, line: str) -> bool:
        if self.hits >= self.times or not re.search(self.pattern, line):
            return False
        self.hits += 1
        return True


class _Cut(Exception):
    """Cuts the client's connection."""


class _Sent(Exception):
    """The response has already been sent."""


class ApiServer:
    def __init__(self, api: Api, tokens: Callable[[], dict[str, User]]) -> None:
        self.api, self._tokens = api, tokens
        self.faults: list[Fault] = []
        self.requests: list[str] = []  # `METHOD /path?query`, in order
        self._connections: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.port = 0
        self.down = threading.Event()

    def start(self) -> None:
        self.down.clear()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._server = _Server(("127.0.0.1", self.port), handler)
        self.port = self._server.server_address[1]
        context = authority().server("127.0.0.1", "localhost")
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is None or self._thread is None:
            return
        self.down.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
        self._server = None
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def user(self, header: str) -> User:
        if not header:
            return ANYBODY
        token = header.removeprefix("Bearer ")
        user = self._tokens().get(token) or self.api.accounts.get(token)
        if user is None:
            raise ApiError(401, "Unauthorized")
        return user


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, address: object) -> None:
        """Ignore client disconnects."""


class _Handler(BaseHTTPRequestHandler):
    server_of: ApiServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    gone = False  # client disconnected; `close_connection` may also be requested

    def setup(self) -> None:
        self.server_of._connections.add(self.request)
        super().setup()

    def finish(self) -> None:
        self.server_of._connections.discard(self.request)
        super().finish()

    def do_GET(self) -> None:
        line = f"{self.command} {self.path}"
        self.server_of.requests.append(line)
        try:
            self._handle(line)
        except ApiError as error:
            self._send(error.code, error.status())
        except _Cut:
            self._cut()
        except _Sent:
            return
        except Exception:
            # Bug of the fake: report it to the test instead of cutting the connection.
            self._send(500, ApiError(500, f"the fake is broken: {traceback.format_exc()}").status())

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_PATCH(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def _handle(self, line: str) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if self.server_of.down.is_set():
            raise _Cut
        fault = next((item for item in self.server_of.faults if item.takes(line)), None)
        if fault is not None and not fault.done:
            self._fail(fault)
        user = self.server_of.user(self.headers.get("authorization", ""))
        media = self.headers.get("content-type", "").partition(";")[0].strip()
        ask = read(self.command, self.path, media, body, self.headers.get("user-agent", ""))
        if ask.watch and ask.method == "GET":
            self._watch(user, ask)
        elif ask.sub == "log":
            self._log(user, ask)
        else:
            answer = self.server_of.api.answer(user, ask)
            if fault is not None:
                self._fail(fault)
            self._send(201 if self.command == "POST" else 200, answer)

    def _fail(self, fault: Fault) -> None:
        if not fault.status:
            raise _Cut
        error = ApiError(fault.status, fault.message, fault.reason)
        self._send(error.code, error.status(), fault.headers)
        raise _Sent

    def _send(self, code: int, data: Any, headers: dict[str, str] | None = None) -> None:
        text = isinstance(data, str)
        body = data.encode() if text else json.dumps(data).encode()
        lines = [f"HTTP/1.1 {code} {http.client.responses.get(code, 'X')}"]
        lines.append(f"Content-Type: {'text/plain' if text else 'application/json'}")
        lines.append(f"Content-Length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self._write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    def _write(self, data: bytes) -> None:
        try:
            self.wfile.write(data)
        except OSError:
            self.gone = self.close_connection = True

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    # --- streams

    def _open(self) -> bool:
        """Return whether the client is connected; it sends nothing, so readable means closed."""
        if self.server_of.down.is_set() or self.gone:
            return False
        return not select.select([self.connection], [], [], 0)[0]

    def _begin(self, media: str) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nTransfer-Encoding: chunked\r\n\r\n"
        self._write(head.encode())

    def _chunk(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def _watch(self, user: User, ask: Ask) -> None:
        events = self.server_of.api.watched(user, ask, self._open)
        self._begin("application/json")
        for event in events:
            self._chunk(json.dumps(event).encode() + b"\n")
            if self.gone:
                return
        if self.server_of.down.is_set():
            raise _Cut
        self._write(b"0\r\n\r\n")

    def _log(self, user: User, ask: Ask) -> None:
        """Proxy to the kubelet of the pod's node, as a real server does."""
        api = self.server_of.api
        api.permit(user, ask.deed())
        pod = api.verbs.get(api.verbs.kinds["Pod"], ask.namespace, ask.name)
        container = ask.query.get("container") or pod["spec"]["containers"][0]["name"]
        names = [c["name"] for c in (*pod["spec"]["containers"],
                                     *pod["spec"].get("initContainers", ()))]  # fmt: skip
        if container not in names:
            raise ApiError(400, f"container {container} is not valid for pod {ask.name}")
        state = _state(pod, container)
        if "waiting" in state and "previous" not in ask.query:
            why = state["waiting"]["reason"]
            text = f'container "{container}" in pod "{ask.name}" is waiting to start: {why}'
            raise ApiError(400, text)
        self._relay(pod, f"/containerLogs/{ask.namespace}/{ask.name}/{container}")

    def _relay(self, pod: Object, path: str) -> None:
        node = self.server_of.api.store.find("Node", "", pod["spec"].get("nodeName", ""))
        port = (node or {}).get("status", {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {})
        if not port:
            raise ApiError(500, f"pods/{pod['metadata']['name']}: no kubelet to ask")
        kubelet = http.client.HTTPSConnection(
            "127.0.0.1", port["Port"], context=authority().client(), timeout=60
        )
        try:
            kubelet.request("GET", path + "?" + self.path.partition("?")[2])
            answer = kubelet.getresponse()
            if answer.status != 200:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            self._begin("text/plain")
            while data := answer.read1(65_536):
                self._chunk(data)
                if self.gone:
                    return
            self._write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            raise ApiError(500, f"the kubelet does not answer: {error}") from None
        finally:
            kubelet.close()

    def log_message(self, *args: object) -> None:
        """Disable logging: `requests` has them."""


def _state(pod: Object, container: str) -> dict[str, Any]:
    for item in pod.get("status", {}).get("containerStatuses", ()):
        if item["name"] == container:
            state: dict[str, Any] = item.get("state", {})
            return state
    return {"waiting": {"reason": "ContainerCreating"}}
