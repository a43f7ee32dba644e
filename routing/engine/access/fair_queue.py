"""Who goes next: start-time fair queueing, in tokens of work.

Every caller is a flow. A flow's turn begins at a point of virtual time, its *start*, and its next
turn begins that much later as the work it got, divided by its weight:

    start  = the later of: virtual time now, the flow's finish
    finish = start + cost / weight

The flow with the earliest start goes next, and virtual time is the start of whoever went last. So
while two flows both have requests waiting, what they got for their weights never differs by more
than one largest request of each (P. Goyal, H. Vin, H. Cheng 1996), however many requests one of
them heaps up; and a flow which was away has neither saved up turns nor has to pay for the time in
which nobody else wanted any. A cost is an estimate; `correct` moves the finish when the truth is
known, so a flow whose answers are longer than its prompts let expect pays for them at its next
turn, also when it has been waiting for that turn already.

Promises a turn in the logarithm of the flows that wait, and leaving in constant time. Must not
know limits, clocks or requests.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Flow:
    """One caller; `waiting` holds its items in the order in which they came."""

    __slots__ = ("finish", "floor", "heaped", "waiting", "weight")

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self.finish = 0.0
        self.floor = 0.0  # virtual time when it began to wait: no turn begins before
        self.waiting: dict[QueuedItem, None] = {}
        self.heaped = False  # has its one entry among those who may be next


class QueuedItem:
    """What waits; `cost` in tokens of work."""

    __slots__ = ("cost", "flow")

    def __init__(self, flow: Flow, cost: float) -> None:
        self.flow = flow
        self.cost = cost


class FairQueue:
    def __init__(self) -> None:
        self.depth = 0
        self._now = 0.0  # virtual time
        self._count = 0
        self._heap: list[tuple[float, int, Flow]] = []

    def put(self, item: QueuedItem) -> None:
        item.flow.waiting[item] = None
        self.depth += 1
        self.wake(item.flow)

    def remove(self, item: QueuedItem) -> None:
        """It does not want to wait any longer."""
        del item.flow.waiting[item]
        self.depth -= 1

    def wake(self, flow: Flow) -> None:
        """A flow may have become ready."""
        if flow.waiting and not flow.heaped:
            flow.floor = self._now
            self._push(flow, max(self._now, flow.finish))

    def pop(self, ready: Callable[[Flow], bool]) -> QueuedItem | None:
        """Take out the next item of a flow which is ready; None: no flow is.

        One which is not ready is not asked again before `wake`.
        """
        while self._heap:
            expected, _, flow = heappop(self._heap)
            flow.heaped = False
            if not flow.waiting or not ready(flow):
                continue
            start = max(flow.floor, flow.finish)
            if start > expected:  # corrected since: it is not its turn yet
                self._push(flow, start)
                continue
            item = next(iter(flow.waiting))
            self.remove(item)
            self._now = max(self._now, start)
            flow.finish = start + item.cost / flow.weight
            if flow.waiting:
                self._push(flow, flow.finish)
            return item
        return None

    def passed(self, item: QueuedItem) -> None:
        """An item went without waiting: it counts all the same."""
        flow = item.flow
        if flow.finish > self._now:
            self._now = flow.finish
        flow.finish = self._now + item.cost / flow.weight

    def correct(self, flow: Flow, difference: float) -> None:
        """Work was estimated wrong: `difference` is what it took beyond the estimate."""
        flow.finish += difference / flow.weight

    def _push(self, flow: Flow, start: float) -> None:
        self._count += 1
        flow.heaped = True
        heappush(self._heap, (start, self._count, flow))
