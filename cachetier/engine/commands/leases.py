"""LEASE and UNLEASE: shared memory reads by another process on this host.

    LEASE milliseconds key [key ...]
      -> lease number, arena name in /dev/shm, its token, and for each key
         nil                               missing
         [length]                          present but not leasable: use GET
         [length, [offset, length], ...]   ranges in the arena file, in order
    UNLEASE number  ->  1, or 0 if already ended

A client that reads after its lease ended may read another value's bytes, which the block's envelope
detects. The total of leased bytes is bounded; beyond it values are reported as not leasable.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from cachetier.engine.commands.arguments import parse_integer
from cachetier.engine.net.session import ClientSession, CommandError, Handler
from cachetier.engine.store import Hold
from cachetier.wire import envelope, replies

MAX_TTL_MS: Final = 60_000
# Maximum share of the capacity under lease: a quarter.
_CAPACITY_SHARE: Final = 4
# Keys per lease, to bound the time other clients wait.
_MAX_KEYS: Final = 4096


def lease(session: ClientSession, words: list[bytes]) -> None:
    arena = session.node.store.arena
    if not arena.shm:
        raise CommandError("ERR this node's memory is not shared (start it with --shm NAME)")
    ttl_ms = parse_integer(words[0])
    if not 0 < ttl_ms <= MAX_TTL_MS:
        raise CommandError(f"ERR a lease lasts 1 to {MAX_TTL_MS} milliseconds")
    if len(words) - 1 > _MAX_KEYS:
        raise CommandError(f"ERR a lease of {len(words) - 1} keys is more than {_MAX_KEYS}")
    now = time.monotonic()
    taken = _PendingHolds()
    answers = [_encode_key_lease(session, key, taken, now) for key in words[1:]]
    number = session.node.leases.grant(session.id, taken.holds, now + ttl_ms / 1000)
    session.reply(
        replies.array(
            [
                replies.integer(number),
                replies.text(arena.shm),
                replies.bulk(arena.token),
                replies.array(answers),
            ]
        )
    )


@dataclass(slots=True)
class _PendingHolds:
    """Holds of the lease being built; `length` is a running sum."""

    holds: list[Hold] = field(default_factory=list)
    length: int = 0


def _encode_key_lease(
    session: ClientSession, key: bytes, taken: _PendingHolds, now: float
) -> bytes:
    node = session.node
    value = node.store.acquire(key, now)
    node.counters.operations["get", "miss" if value is None else "hit"] += 1
    if not key.startswith(envelope.PREFIX):  # blocks were counted by EXISTS
        node.looked_up(key, value is not None)
    if value is None:
        return replies.null(session.version)
    length = replies.integer(value.length)
    if not isinstance(value, Hold) or not value.extents:
        value.release()
        return replies.array([length])
    pinned = node.leases.pinned_bytes + taken.length
    if pinned + value.length > node.store.usage().capacity_bytes // _CAPACITY_SHARE:
        node.leases.refused += 1
        value.release()
        return replies.array([length])
    taken.holds.append(value)
    taken.length += value.length
    node.counters.read_bytes += value.length
    places = [
        replies.array([replies.integer(start), replies.integer(size)])
        for start, size in value.extents
    ]
    return replies.array([length, *places])


def unlease(session: ClientSession, words: list[bytes]) -> None:
    ended = session.node.leases.end(parse_integer(words[0]), session.id)
    session.reply(replies.integer(int(ended)))


HANDLERS: dict[str, Handler] = {"lease": lease, "unlease": unlease}
