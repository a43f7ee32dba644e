"""Disconnecting clients leave nothing pinned."""

from __future__ import annotations

import random
import socket

from tests.cachetier.engine.conftest import Start
from tests.support.waiting import until


def test_reset_clients_with_partial_data_are_released(start: Start) -> None:
    """The system resets the connection of such a client; of so many some do it in the middle of
    what the node does for them."""
    node = start("--stall-timeout", "0", password="soak")
    chance = random.Random(4)
    for _ in range(300):
        length = chance.randrange(20_000, 500_000)
        head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % length
        with socket.create_connection(("127.0.0.1", node.port), timeout=60) as sock:
            sock.sendall(b"AUTH soak\r\n")
            sock.sendall(head + chance.randbytes(min(50_000, length - 1)))
            if chance.random() < 0.5:
                sock.recv(5)
    until(lambda: node.metric("emberline_l2_connections") == 0, what="all of them forgotten")
    assert node.metric("emberline_l2_receiving_bytes") == 0
    assert node.metric("emberline_l2_used_bytes") == 0
