"""Is what the index says of a worker true? Predicted against reported cached tokens.

Promises that a worker whose index keeps promising what its engine then does not have is believed
no more until the index has been built anew, and that one odd answer (a block evicted between the
choice and the step) condemns nobody. Pure; must not know requests or events.
"""

from __future__ import annotations

from dataclasses import dataclass

_LEARN = 0.2
_FEWEST = 5  # answers before a verdict
LYING = 0.5  # of what is promised, so much is missing on average
MISSING = 0.5  # of what is reported, so much was not foreseen on average


@dataclass(slots=True)
class Meter:
    """`over`: share of the promised tokens which were missing; `under`: share of the reported
    ones which were not foreseen; both slow averages. `lying`: not believed until `renewed`."""

    answers: int = 0
    over: float = 0.0
    under: float = 0.0
    lying: bool = False
    demotions: int = 0

    def observe(self, predicted: int, reported: int, block: int) -> bool:
        """An answer's word; True when the index of this worker must be built anew.

        `block`: tokens by which both may differ, since the last block is always computed.
        """
        over = under = 0.0
        if predicted > block:
            over = max(predicted - reported - block, 0) / predicted
        if reported > block:
            under = max(reported - predicted - block, 0) / reported
        self.answers += 1
        if predicted > block:
            self.over += _LEARN * (over - self.over)
        if reported > block or predicted > block:
            self.under += _LEARN * (under - self.under)
        if self.answers < _FEWEST or self.lying:
            return False
        if self.over > LYING:
            self.lying = True
            self.demotions += 1
            return True
        if self.under > MISSING:
            self.demotions += 1
            self.renewed()
            return True
        return False

    def renewed(self) -> None:
        """The index was built anew: it is believed again, and judged afresh."""
        self.answers = 0
        self.over = self.under = 0.0
        self.lying = False
