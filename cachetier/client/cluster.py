"""Redis Cluster: which of its 16,384 slots a key is in, and what its nodes say about slots. Pure.

A node answers a key of another's with MOVED (the slot lives there now: remember it) or ASK (the
slot is on its way: ask there, once, after ASKING).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cachetier.client.address import Address

SLOTS = 16384
_HOST = re.compile(r"[0-9A-Za-z_.:-]{0,255}")


@dataclass(frozen=True, slots=True)
class Redirect:
    """`host` "" means the node which said so. `moved` False is an ASK."""

    moved: bool
    slot: int
    host: str
    port: int

    def address(self, said_by: Address) -> Address:
        """The node meant, reached as the one which named it."""
        host = self.host or said_by.host
        return replace(said_by, host=host, port=self.port, name="")


def slot_of(key: bytes) -> int:
    """CRC-16/XMODEM of the key, or of what stands between its first braces if anything does."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


def read_redirect(text: str) -> Redirect | None:
    """From an error reply: "MOVED 3999 127.0.0.1:6381"; None if it is another error."""
    words = text.split()
    if len(words) != 3 or words[0] not in ("MOVED", "ASK"):
        return None
    host, _, port = words[2].rpartition(":")
    host = host.strip("[]")
    if not (words[1].isdecimal() and port.isdecimal() and _HOST.fullmatch(host)):
        return None
    if len(words[1]) > 5 or len(port) > 5 or int(words[1]) >= SLOTS or int(port) >= 65536:
        return None
    return Redirect(words[0] == "MOVED", int(words[1]), host, int(port))


def read_slots(reply: Any, said_by: Address) -> list[tuple[int, int, Address]]:
    """From CLUSTER SLOTS: (first slot, last slot, who serves them). Entries which make no sense
    are left out: a slot nobody is known for is asked of any node, which then says where it is."""
    found = []
    for entry in reply if isinstance(reply, list) else ():
        match entry:
            case [int(first), int(last), [host, int(port), *_], *_]:
                name = host.decode(errors="replace") if isinstance(host, bytes) else ""
                if 0 <= first <= last < SLOTS and 0 < port < 65536 and _HOST.fullmatch(name):
                    redirect = Redirect(True, first, name, port)
                    found.append((first, last, redirect.address(said_by)))
    return found


class SlotMap:
    """Who serves which slot, as far as known. Changed by one thread at a time."""

    def __init__(self) -> None:
        self._owners: list[str] = [""] * SLOTS

    def owner(self, key: bytes) -> str:
        """A node's label, "" if not known."""
        return self._owners[slot_of(key)]

    def learn(self, ranges: Sequence[tuple[int, int, Address]]) -> None:
        """Replaces all that was known."""
        owners = [""] * SLOTS
        for first, last, address in ranges:
            owners[first : last + 1] = [address.label] * (last - first + 1)
        self._owners = owners

    def moved(self, slot: int, label: str) -> None:
        self._owners[slot] = label
