"""The one cost by which workers are compared, in tokens of work: pure functions and constants.

What rankings rely on, whatever the formula: `load` of a worker does not depend on the request
which is placed, and `cost` never falls when the load or the uncached tokens grow. A ranking may
then leave out every worker that has both more load and less of the prompt than another.
"""

from __future__ import annotations

# What a request in flight costs beside its prompt. It only has to be more than nothing, so that
# two idle-looking workers with unequal numbers of streams differ; not calibrated yet.
DECODE_TOKENS = 32


def load(backlog: int, waiting: int, decoding: int) -> float:
    """The work a worker has before another request joins it.

    `backlog`: prompt tokens it was sent and has not computed. `waiting`: requests which have not
    answered a byte. `decoding`: answers which are running.
    """
    return backlog + DECODE_TOKENS * (waiting + decoding)


def cost(worker_load: float, uncached: int) -> float:
    """What a request costs on a worker which must compute `uncached` tokens of its prompt."""
    return worker_load + uncached
