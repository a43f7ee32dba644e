"""kvaware state of one request, and the reasons for placing it without its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from routing.engine.tokens import outcomes

if TYPE_CHECKING:
    from routing.engine.fleet.workers import Worker
    from routing.engine.kv.progress import ExpectedPrompt, PrefillProgress
    from routing.engine.kvaware.ranks import Seat
    from routing.engine.policies.base import Pick
    from routing.engine.tokens.service import TokenTicket

# Reasons of placement without blocks, besides tokens.outcomes.
NO_EVENTS = "no_events"  # no worker publishes events
STARTING = "starting"  # the tokenizer is loading
STREAMED = "streamed"  # the body is too large to hold, or not JSON
# In /explain only: tokens are being computed, a repeated query will have them.
ASK_AGAIN = "ask_again"
FALLBACKS = (NO_EVENTS, STARTING, STREAMED, *outcomes.WITHOUT)


class EventFollower(Protocol):
    def changed(self, worker: Worker, what: str) -> None:
        """Handle a state change: "up", "lost" (process gone), "restarted", "reset" (cache reset by
        the router).
        """

    def partial(self, worker_id: str) -> bool:
        """Return True if history is missing, so that the worker may hold more than the index."""

    def rebuild(self, worker_id: str) -> None: ...


@dataclass(slots=True, eq=False)
class RequestPlacement:
    """kvaware state of one request."""

    ticket: TokenTicket | None = None
    guess: ExpectedPrompt | None = None
    seat: Seat | None = None  # its rank, where a worker has several
    prompt: PrefillProgress | None = None  # tracked during prefill
    pick: Pick | None = None
    reported: int = 0  # tokens on the worker's device by its events
    alone: bool = False  # the worker was idle
    salt: str = ""

    def pick_of(self, worker_id: str) -> Pick | None:
        """Return the pick of the worker that answered; None if another strategy, loaded between two
        attempts, chose it.
        """
        return self.pick if self.pick is not None and self.pick.worker.id == worker_id else None
