"""LEASE and UNLEASE: values read by another process on this host, from where they lie.

    LEASE milliseconds key [key ...]
      -> lease number, name of the arena in /dev/shm, its token, and for each key
         nil                               it is not there
         [length]                          it is there, but cannot be leased: GET it
         [length, [offset, length], ...]   it lies there in the arena's file, in this order
    UNLEASE number  ->  1, or 0 if it had ended already

A client which reads on after its lease has ended may read another value's bytes: a block's envelope
tells it. What all leases pin together is bounded; past that, values are answered as those which
cannot be leased.
"""

from __future__ import annotations

import time
from typing import Final

from cachetier.engine.commands.arguments import integer
from cachetier.engine.net.session import ClientSession, CommandError, Handler
from cachetier.engine.store import Hold
from cachetier.wire import envelope, replies

MAX_TTL_MS: Final = 60_000
# Of the capacity, for everything that is leased at once: a quarter.
_SHARE: Final = 4
# More in one lease would hold up everybody else.
_MAX_KEYS: Final = 4096


def lease(session: ClientSession, words: list[bytes]) -> None:
    arena = session.node.store.arena
    if not arena.shm:
        raise CommandError("ERR this node's memory is not shared (start it with --shm NAME)")
    ttl_ms = integer(words[0])
    if not 0 < ttl_ms <= MAX_TTL_MS:
        raise CommandError(f"ERR a lease lasts 1 to {MAX_TTL_MS} milliseconds")
    if len(words) - 1 > _MAX_KEYS:
        raise CommandError(f"ERR a lease of {len(words) - 1} keys is more than {_MAX_KEYS}")
    now = time.monotonic()
    taken = _Taken()
    answers = [_answer(session, key, taken, now) for key in words[1:]]
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


class _Taken:
    """What the lease being made pins; `length` is its sum, so that many keys cost no square."""

    __slots__ = ("holds", "length")

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        self.length = 0


def _answer(session: ClientSession, key: bytes, taken: _Taken, now: float) -> bytes:
    node = session.node
    value = node.store.look(key, now)
    node.counters.operations["get", "miss" if value is None else "hit"] += 1
    if not key.startswith(envelope.PREFIX):  # a block was looked up by EXISTS before
        node.looked_up(key, value is not None)
    if value is None:
        return replies.null(session.version)
    length = replies.integer(value.length)
    if not isinstance(value, Hold) or not value.extents:
        value.release()
        return replies.array([length])
    pinned = node.leases.pinned_bytes + taken.length
    if pinned + value.length > node.store.usage().capacity_bytes // _SHARE:
        node.leases.refused += 1
        value.release()
        return replies.array([length])
    taken.holds.append(value)
    taken.length += value.length
    node.counters.read_bytes += value.length
    places = [
        replies.array([replies.integer(at), replies.integer(size)]) for at, size in value.extents
    ]
    return replies.array([length, *places])


def unlease(session: ClientSession, words: list[bytes]) -> None:
    ended = session.node.leases.end(integer(words[0]), session.id)
    session.reply(replies.integer(int(ended)))


HANDLERS: dict[str, Handler] = {"lease": lease, "unlease": unlease}
