"""Random operations on a disk tier until killed; logs start and end of each to stdout.

    python -m tests.support.l2killed FOLDER SEED FIRST_VERSION

Each line is one operation: `+` start, `-` end. The kill must not undo a finished operation, except
that the value of a put may be lost.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from cachetier.wire import envelope
from tests.support.l2disk import MIB, Disk

CAPACITY = 2 * MIB
KEYS = 60
NAMESPACES = ("a", "b")


def key_of(number: int) -> bytes:
    return envelope.block_key(NAMESPACES[number % 2], 0, bytes([number]))


def value_of(number: int, version: int) -> bytes:
    """Return the repeated name, with a length of its own."""
    name = b"%d.%d;" % (number, version)
    return name * (random.Random(version).randrange(100, 60_000) // len(name))


def report(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def main(folder: Path, seed: int, version: int) -> None:
    disk, chance = Disk(folder, CAPACITY, queue_bytes=MIB), random.Random(seed)
    report("ready")
    while True:
        disk.wait(lambda: disk.tier.usage().waiting_bytes < MIB // 2)  # leaves some in progress
        number = chance.randrange(KEYS)
        key = key_of(number)
        what = chance.choices(("put", "drop", "expire", "clear", "get"), (60, 20, 5, 1, 14))[0]
        if what == "get":
            disk.get(key)
            continue
        version += 1
        name = f"{what} {chance.randrange(2) if what == 'clear' else number} {version}"
        report(f"+ {name}")
        if what == "put":
            disk.tier.drop(key)
            disk.offer(key, value_of(number, version))
        elif what == "drop":
            disk.tier.drop(key)
        elif what == "expire":
            disk.tier.expire(key, 1e6, 0.0)
        else:
            disk.tier.clear(NAMESPACES[int(name.split()[1])])
        report(f"- {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
