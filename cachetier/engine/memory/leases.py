"""Leases: holds granted to another process on this host, with an expiry.

Leased bytes are neither changed nor reused. A lease ends on release, at its expiry or with its
connection, so that a dead client pins nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachetier.engine.store import Hold


@dataclass(slots=True)
class _Lease:
    session: int
    ends_at: float
    holds: list[Hold]
    pinned_bytes: int


class Leases:
    """Leases of one node. `granted`, `expired` and `refused` count since the start."""

    def __init__(self) -> None:
        self.pinned_bytes = 0
        self.granted = 0
        self.expired = 0
        self.refused = 0  # present values not leased because of the limit
        self._leases: dict[int, _Lease] = {}
        self._of_session: dict[int, set[int]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._leases)

    def grant(self, session: int, holds: list[Hold], ends_at: float) -> int:
        """Create a lease, which takes over the holds."""
        self._last += 1
        pinned = sum(hold.length for hold in holds)
        self._leases[self._last] = _Lease(session, ends_at, holds, pinned)
        self._of_session.setdefault(session, set()).add(self._last)
        self.pinned_bytes += pinned
        self.granted += 1
        return self._last

    def end(self, number: int, session: int) -> bool:
        """End a lease; return whether this session had it."""
        lease = self._leases.get(number)
        if lease is None or lease.session != session:
            return False
        self._end(number)
        return True

    def end_all(self, session: int) -> None:
        for number in list(self._of_session.get(session, ())):
            self._end(number)

    def sweep(self, now: float) -> None:
        for number in [key for key, lease in self._leases.items() if lease.ends_at <= now]:
            self._end(number)
            self.expired += 1

    def _end(self, number: int) -> None:
        lease = self._leases.pop(number)
        mine = self._of_session[lease.session]
        mine.discard(number)
        if not mine:
            del self._of_session[lease.session]
        self.pinned_bytes -= lease.pinned_bytes
        for hold in lease.holds:
            hold.release()
