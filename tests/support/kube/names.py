"""Cluster DNS for running pods: `SERVICE.NAMESPACE.svc[.cluster.local]`.

Resolves a Service to the addresses of its ready pods (there are no cluster IPs), and
`POD.SERVICE.NAMESPACE.svc` to one pod of a headless Service. No other names.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

A, IN, NO_NAME = 1, 1, 3
TTL_S = 1

Slices = Callable[[], list[dict[str, Any]]]


class Names:
    """UDP server on port 53 of the address: resolv.conf cannot set another port."""

    def __init__(self, slices: Slices, address: str) -> None:
        self.address = address
        self._slices = slices
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        threading.Thread(target=self._run, name="names", daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _run(self) -> None:
        with suppress(OSError):  # closed
            while True:
                question, peer = self._socket.recvfrom(512)
                self._socket.sendto(self.answer(question), peer)

    def answer(self, question: bytes) -> bytes:
        name, end = _name(question, 12)
        kind, _ = struct.unpack_from("!HH", question, end)
        found = list(self.addresses(name))
        records = found if kind == A else []
        flags = 0x8580 | (0 if found else NO_NAME)
        head = question[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
        body = question[12 : end + 4]
        for address in records:
            body += struct.pack("!HHHIH", 0xC00C, A, IN, TTL_S, 4) + socket.inet_aton(address)
        return head + body

    def addresses(self, name: str) -> Iterator[str]:
        parts = name.lower().removesuffix(".cluster.local").split(".")
        if len(parts) not in (3, 4) or parts[-1] != "svc":
            return
        service, namespace = parts[-3], parts[-2]
        for data in self._slices():
            metadata = data["metadata"]
            value = metadata.get("labels", {}).get("kubernetes.io/service-name")
            if (metadata["namespace"], value) != (namespace, service):
                continue
            for endpoint in data.get("endpoints") or ():
                ready = endpoint.get("conditions", {}).get("ready") is not False
                pod = endpoint.get("targetRef", {}).get("name", "")
                if ready and (len(parts) == 3 or pod == parts[0]):
                    yield from endpoint["addresses"]


def _name(data: bytes, at: int) -> tuple[str, int]:
    """Return the name and the offset after it. Questions are not compressed."""
    labels = []
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels), at + 1
