"""Budget of retries, and those of lost requests that wait for a turn.

The budget limits the load that a worker's failure puts on the others: a share of the requests, and
a burst. Above it, requests that a worker lost are sent again as others end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from routing.engine.request import RoutedRequest

# Share of requests that may be retried after a worker began them; refused connections are free.
SHARE = 0.2
BURST = 100.0


class Retries:
    """Retries of requests without a response. `send`: sends a request again. `busy`: the end of a
    request will call `ended`.
    """

    def __init__(self, send: Callable[[RoutedRequest], None], busy: Callable[[], bool]) -> None:
        self._send = send
        self._busy = busy
        self.budget = BURST
        self.waiting: deque[RoutedRequest] = deque()

    def came(self) -> None:
        """Note a new request."""
        self.budget = min(self.budget + SHARE, BURST)

    def take(self) -> bool:
        """Charge the budget; return False if it is used up."""
        if self.budget < 1:
            return False
        self.budget -= 1
        return True

    def wait(self, exchange: RoutedRequest, timeout_s: float) -> bool:
        """Let a delayed request wait for a turn; return False if it should be sent now."""
        if not (exchange.delayed and self._busy()):
            exchange.delayed = False
            return False
        exchange.wait_for_retry(timeout_s)
        self.waiting.append(exchange)
        return True

    def ended(self, exchange: RoutedRequest) -> None:
        """Give the turn of an ended request to the next one."""
        if self.waiting and not exchange.delayed:
            self._release(1)

    def tick(self, _now: float) -> None:
        """Send requests that no other one's end would send."""
        if self.waiting and not self._busy():
            self._release(int(BURST))

    def _release(self, most: int) -> None:
        while self.waiting and most > 0:
            exchange = self.waiting.popleft()
            if exchange.over:
                continue
            most -= 1
            exchange.delayed = False
            try:
                self._send(exchange)
            except Exception as error:  # noqa: BLE001 - called as another request ends
                exchange.crashed(error)
