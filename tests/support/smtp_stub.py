"""SMTP server on a free port that accepts mail, or rejects it as set by the test."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage


@dataclass
class Post:
    """`refuse` maps the beginning of a command, such as "RCPT TO:<x@y>", to a reply."""

    port: int = 0
    refuse: dict[str, str] = field(default_factory=dict)
    letters: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)


@contextmanager
def smtp_stub() -> Iterator[Post]:
    post = Post()

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.send_line("220 stub")
            while line := self.rfile.readline().decode().strip():
                line = line[:4].upper() + line[4:]  # commands are case-insensitive
                refused = next((a for c, a in post.refuse.items() if line.startswith(c)), "")
                if refused:
                    self.send_line(refused)
                elif line.startswith("DATA"):
                    self.send_line("354 go on")
                    self.take()
                elif line.startswith("QUIT"):
                    self.send_line("221 bye")
                    return
                else:
                    if line.startswith("RCPT"):
                        post.recipients.append(line.partition("<")[2].rstrip(">"))
                    self.send_line("250 stub")

        def take(self) -> None:
            lines = iter(self.rfile.readline, b".\r\n")
            letter = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
            assert isinstance(letter, EmailMessage)
            post.letters.append(letter)
            self.send_line("250 taken")

        def send_line(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    post.port = server.server_address[1]
    try:
        yield post
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
