"""Cost of a placement in tokens of work.

    cost = RECOMPUTE x uncached tokens + load
    load = backlog + ANSWER_TOKENS x running answers + WAITING_TOKENS x (waiting requests) squared

Constants were calibrated with simulated workers (docs/benchmarks.md). Rankings rely on
two properties: `load` does not depend on the request, and `cost` is monotonic in load and uncached
tokens. A worker with both more load and less of the prompt than another can therefore be skipped.
"""

from __future__ import annotations

from typing import Final

# Recomputing a prefix held elsewhere also takes time from later requests and memory from other
# prefixes. At 1 (the request's own cost) workers copy prefixes until nothing stays cached.
RECOMPUTE: Final = 3.0
# Time to load a token from L1, relative to its computation; kvaware.LoadPrices learns it.
L1_SHARE: Final = 0.05
# A running answer slows each step slightly; it decides between workers with equal prompts.
ANSWER_TOKENS: Final = 128
# `backlog` counts waiting prompts by length. Many short ones wait for batch slots instead, so the
# penalty grows quadratically; a widely shared prefix spreads over as many workers as it needs.
WAITING_TOKENS: Final = 100


def load(backlog: int, waiting: int, decoding: int) -> float:
    """Return the load of a worker before another request joins.

    `backlog`: prompt tokens sent and not computed. `waiting`: requests without an answer byte.
    `decoding`: running answers.
    """
    return backlog + ANSWER_TOKENS * decoding + WAITING_TOKENS * waiting * waiting


def cost(worker_load: float, uncached: int, slow: float = 0.0) -> float:
    """Return the cost on a worker that must compute `uncached` prompt tokens."""
    return worker_load + (RECOMPUTE + slow) * uncached


# A worker may compute slower than others (fleet.pace). Its load takes that much longer. Of the
# prompt itself only a part counts more: a slow worker's memory is as good as a fast one's, and full
# prices would crowd all prefixes into the memory of the fast ones.
SLOW_SHARE: Final = 0.1


def slowness(pace: float) -> float:
    """Return what an uncached token costs more on a worker of this pace."""
    return SLOW_SHARE * (pace - 1)


# Blocks of requests in flight cannot be evicted. Where they come near the size of the cache, a long
# uncached prompt waits for the end of an answer, with everything behind it, and evicts what later
# requests need. Not counted as load: requests that continue what is there take little memory.
OCCUPIED_SHARE: Final = 0.5


def spare(cache_tokens: int, occupied: int) -> float:
    """Return the prompt tokens that fit beside the `occupied` ones of requests in flight."""
    return OCCUPIED_SHARE * cache_tokens - occupied


def shortage(spare_tokens: float, uncached: int) -> float:
    """Return the part of a prompt that does not fit: its additional cost, in fleets that are
    compared in full.
    """
    return max(min(uncached - spare_tokens, uncached), 0.0)


# A new prompt may go to its consistent-hash worker if that costs at most this share of its prefill
# more, and at most a few running answers. More would fill caches less evenly than round robin,
# which costs a single router more than several routers gain.
SLACK: Final = 0.1
SLACK_TOKENS: Final = 800


def slack(uncached: int) -> float:
    """Return the extra cost allowed for the consistent-hash worker."""
    return min(SLACK * uncached, SLACK_TOKENS)


# Usual constant of consistent hashing with bounded loads.
SESSION_BOUND: Final = 1.25


def session_bound(mean_load: float, tokens: int) -> float:
    """Return the load up to which a session stays: moving it recomputes the whole prompt."""
    return SESSION_BOUND * mean_load + tokens
