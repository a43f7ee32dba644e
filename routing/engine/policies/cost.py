"""The one cost by which workers are compared, in tokens of work: pure functions and constants.

    cost = RECOMPUTE x uncached tokens + load
    load = backlog + ANSWER_TOKENS x answers running + WAITING_TOKENS x (requests waiting) squared

The constants were calibrated in front of simulated workers; docs/benchmarks/placement.md has the
results and their sensitivity.

What rankings rely on, whatever the formula: `load` of a worker does not depend on the request
which is placed, and `cost` never falls when the load or the uncached tokens grow. A ranking may
then leave out every worker that has both more load and less of the prompt than another.
"""

from __future__ import annotations

# Computing again what another worker holds takes that worker's time from all who come after, and
# memory from other prefixes: waiting behind a token of others' is better than a token twice. At 1
# (what the request itself would feel) workers copy each other's prefixes until nothing is held.
RECOMPUTE = 3.0
# A running answer slows every step a little. It matters only between workers equal in prompts.
ANSWER_TOKENS = 128
# Prompts waiting are counted in `backlog` by their length. When many short ones wait, it is not
# for computing but for a place among the running: then each is worth the more, the more there are.
# So a prefix that most requests share comes to be held by as many workers as it needs.
WAITING_TOKENS = 100


def load(backlog: int, waiting: int, decoding: int) -> float:
    """The work a worker has before another request joins it.

    `backlog`: prompt tokens it was sent and has not computed. `waiting`: requests which have not
    answered a byte. `decoding`: answers which are running.
    """
    return backlog + ANSWER_TOKENS * decoding + WAITING_TOKENS * waiting * waiting


def cost(worker_load: float, uncached: int) -> float:
    """What a request costs on a worker which must compute `uncached` tokens of its prompt."""
    return worker_load + RECOMPUTE * uncached


# A new prompt may go where consistent hashing puts it, as another router would, if that costs
# hardly more than the best place: this share of what must be computed anyway, and no more than a
# few running answers. The rule is not free: hashing fills the workers' caches less evenly than
# taking turns does, so more of it costs a single router more than it saves several of them.
SLACK = 0.1
SLACK_TOKENS = 800


def slack(uncached: int) -> float:
    """How much more than the least a place may cost which other routers agree on."""
    return min(SLACK * uncached, SLACK_TOKENS)


# The usual constant of consistent hashing with bounded load.
SESSION_BOUND = 1.25


def session_bound(mean_load: float, tokens: int) -> float:
    """The load up to which a session stays with its worker: leaving costs the whole prompt."""
    return SESSION_BOUND * mean_load + tokens
