"""Start-time fair queueing over tokens of work (P. Goyal, H. Vin, H. Cheng 1996).

    start  = max(virtual time, finish of the flow)
    finish = start + cost / weight

The flow with the earliest start goes next; virtual time is the start of the last item served.
Backlogged flows differ in service per weight by at most one largest request each; idle flows
accumulate no credit. Costs are estimates; `correct` adjusts the finish time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Flow:
    """One caller; `waiting` holds its items in arrival order."""

    __slots__ = ("finish", "floor", "heaped", "waiting", "weight")

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self.finish = 0.0
        self.floor = 0.0  # virtual time when it began to wait: lower bound of the next start
        self.waiting: dict[QueuedItem, None] = {}
        self.heaped = False


class QueuedItem:
    """One queued item; `cost` in tokens of work."""

    __slots__ = ("cost", "flow")

    def __init__(self, flow: Flow, cost: float) -> None:
        self.flow = flow
        self.cost = cost


class FairQueue:
    def __init__(self) -> None:
        self.depth = 0
        self._now = 0.0
        self._count = 0
        self._heap: list[tuple[float, int, Flow]] = []

    def put(self, item: QueuedItem) -> None:
        item.flow.waiting[item] = None
        self.depth += 1
        self.wake(item.flow)

    def remove(self, item: QueuedItem) -> None:
        del item.flow.waiting[item]
        self.depth -= 1

    def wake(self, flow: Flow) -> None:
        """Reconsider a flow that may have become ready."""
        if flow.waiting and not flow.heaped:
            flow.floor = self._now
            self._push(flow, max(self._now, flow.finish))

    def pop(self, ready: Callable[[Flow], bool]) -> QueuedItem | None:
        """Remove and return the next item of a ready flow; None if no flow is ready.

        A flow that is not ready is skipped until `wake`.
        """
        while self._heap:
            expected, _, flow = heappop(self._heap)
            flow.heaped = False
            if not flow.waiting or not ready(flow):
                continue
            start = max(flow.floor, flow.finish)
            if start > expected:  # corrected since it was pushed: push again
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
        flow = item.flow
        if flow.finish > self._now:
            self._now = flow.finish
        flow.finish = self._now + item.cost / flow.weight

    def correct(self, flow: Flow, difference: float) -> None:
        """Adjust the finish time by `difference`: actual minus estimated cost."""
        flow.finish += difference / flow.weight

    def _push(self, flow: Flow, start: float) -> None:
        self._count += 1
        flow.heaped = True
        heappush(self._heap, (start, self._count, flow))
