"""Redis Cluster slots and redirections. Pure.

A node answers keys of other nodes with MOVED (permanent: update the slot map) or ASK (slot in
migration: retry there once after ASKING).
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
    """Parsed redirection; `host` "" means the responding node, `moved` False an ASK."""

    moved: bool
    slot: int
    host: str
    port: int

    def address(self, sender: Address) -> Address:
        """Return the target's address, with the connection options of `sender`."""
        host = self.host or sender.host
        return replace(sender, host=host, port=self.port, name="")


def key_slot(key: bytes) -> int:
    """Return CRC-16/XMODEM of the key, or of its hash tag (text in the first braces)."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


def parse_redirect(text: str) -> Redirect | None:
    """Parse an error reply such as "MOVED 3999 127.0.0.1:6381"; None for any other error."""
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


def parse_slots(reply: Any, sender: Address) -> list[tuple[int, int, Address]]:
    """Parse CLUSTER SLOTS into (first slot, last slot, address); skip invalid entries.

    Keys in slots without an owner go to any node, which redirects them.
    """
    slots = []
    for entry in reply if isinstance(reply, list) else ():
        match entry:
            case [int(first), int(last), [host, int(port), *_], *_]:
                name = host.decode(errors="replace") if isinstance(host, bytes) else ""
                if 0 <= first <= last < SLOTS and 0 < port < 65536 and _HOST.fullmatch(name):
                    redirect = Redirect(True, first, name, port)
                    slots.append((first, last, redirect.address(sender)))
    return slots


class SlotMap:
    """Known slot owners. Changed by one thread at a time."""

    def __init__(self) -> None:
        self._owners: list[str] = [""] * SLOTS

    def owner(self, key: bytes) -> str:
        """Return the owner's label, "" if unknown."""
        return self._owners[key_slot(key)]

    def learn(self, ranges: Sequence[tuple[int, int, Address]]) -> None:
        """Replace the whole map."""
        owners = [""] * SLOTS
        for first, last, address in ranges:
            owners[first : last + 1] = [address.label] * (last - first + 1)
        self._owners = owners

    def moved(self, slot: int, label: str) -> None:
        self._owners[slot] = label
