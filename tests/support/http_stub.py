"""HTTP server on a free port with responses set by the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]  # status, text or JSON data
Handler = Callable[[str, bytes], Answer]  # (path with query, body)


@dataclass
class Stub:
    """`answers` maps a path (without query) to a response or a function; `seen` records
    requests."""

    answers: dict[str, Answer | Handler]
    url: str = ""
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)  # parallel to `seen`
    hang: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")


@contextmanager
def http_stub(
    answers: dict[str, Answer | Handler], headers: Mapping[str, str] | None = None
) -> Iterator[Stub]:
    """A response HANG is sent when the block ends; `headers` are added to every response."""
    stub = Stub(answers)

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            stub.seen.append((self.command, self.path, body))
            stub.headers.append(dict(self.headers))
            found = stub.answers.get(self.path.partition("?")[0], (404, "nothing here"))
            status, data = found(self.path, body) if callable(found) else found
            if status == HANG:
                stub.hang.wait(30)
                return
            content = data if isinstance(data, str) else json.dumps(data)
            try:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content.encode())))
                self.end_headers()
                self.wfile.write(content.encode())
            except OSError:
                pass  # client disconnected

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        stub.hang.set()
        server.shutdown()
        thread.join()
        server.server_close()


HANG = -1
