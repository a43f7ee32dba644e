"""Container logs: files of lines with times, and the kubelet endpoint to read them.

The API server requests `GET /containerLogs/NAMESPACE/POD/CONTAINER` from a node's kubelet port.
Supports follow, tailLines, timestamps, previous, sinceTime, sinceSeconds and limitBytes.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Logs:
    """One file for each container; `rotate` at a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.stopped = threading.Event()

    def path(self, namespace: str, pod: str, container: str, previous: bool = False) -> Path:
        folder = self._folder / namespace / pod
        return folder / (f"{container}.previous" if previous else container)

    def write(self, namespace: str, pod: str, container: str, line: str) -> None:
        path = self.path(namespace, pod, container)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{now()} {line}\n")

    def rotate(self, namespace: str, pod: str, container: str) -> None:
        path = self.path(namespace, pod, container)
        if path.exists():
            path.rename(self.path(namespace, pod, container, previous=True))

    def forget(self, namespace: str, pod: str) -> None:
        folder = self._folder / namespace / pod
        if folder.is_dir():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()

    def read(self, path: Path, query: dict[str, str]) -> Iterator[str]:
        """Yield lines with line ends; with `follow` until the container is removed."""
        try:
            file = path.open()
        except FileNotFoundError:
            return
        with file:
            lines = file.readlines()
            since = query.get("sinceTime", "")  # seconds precision: without Z it compares correctly
            if query.get("sinceSeconds"):
                at = time.time() - float(query["sinceSeconds"])
                since = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
            lines = [line for line in lines if line.partition(" ")[0] >= since.rstrip("Z")]
            if query.get("tailLines"):
                lines = lines[len(lines) - min(int(query["tailLines"]), len(lines)) :]
            yield from lines
            while query.get("follow") in ("true", "1") and not self.stopped.wait(0.05):
                yield from file
                if not path.exists():
                    return


class _Handler(BaseHTTPRequestHandler):
    logs: Logs
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        query = {key: value[0] for key, value in parse_qs(url.query).items()}
        if len(parts) != 4 or parts[0] != "containerLogs":
            self.send_error(404)
            return
        path = self.logs.path(*parts[1:], previous=query.get("previous") in ("true", "1"))
        if not path.exists():
            self.send_error(404, f"no log of {'/'.join(parts[1:])}")
            return
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        left = int(query.get("limitBytes", 1 << 40))
        for line in self.logs.read(path, query):
            text = line if query.get("timestamps") in ("true", "1") else line.partition(" ")[2]
            data = text.encode()[:left]
            left -= len(data)
            if data:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: object) -> None:
        """Disable logging."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, address: object) -> None:
        """Ignore client disconnects."""


class LogServer:
    def __init__(self, logs: Logs, certificate: Path, key: Path) -> None:
        handler = type("Handler", (_Handler,), {"logs": logs})
        self._logs = logs
        self._server = _Server(("127.0.0.1", 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._logs.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
