"""Split the computed tokens of a prompt by cause. Pure.

The prompt is painted from its first computed token to its end; each token gets the first cause that
covers it, so the parts always add up to the computed tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIRST_SEEN = "first_seen"
CHANGED_TIMESTAMP = "changed_timestamp"
CHANGED_ID = "changed_id"
CHANGED_ORDER = "changed_order"
CHANGED_WHITESPACE = "changed_whitespace"
CHANGED_TEXT = "changed_text"
OTHER_SALT = "other_salt"
OTHER_MODEL = "other_model"
OTHER_TEMPLATE = "other_template"
PLACED_LOAD = "placed_load"
PLACED_DOWN = "placed_worker_down"
PLACED_PINNED = "placed_pinned"
PLACED_STRATEGY = "placed_strategy"
PLACED_ROUTER = "placed_router"
IN_FLIGHT = "in_flight"
EVICTED_DEVICE = "evicted_device"
EVICTED_L1 = "evicted_l1"
EVICTED_L2 = "evicted_l2"
EVICTED_UNKNOWN = "evicted_unknown"
EXPIRED_L2 = "expired_l2"
LOST_RESTART = "lost_restart"
LOST_ROLLOUT = "lost_rollout"
LOST_SCALE_DOWN = "lost_scale_down"
LOST_RESET = "lost_reset"
BELOW_BLOCK = "below_block"
INDEX_STALE = "index_stale"
NOT_CACHEABLE = "not_cacheable"
NOT_HASHED = "not_hashed"

CAUSES = (
    *(FIRST_SEEN, CHANGED_TIMESTAMP, CHANGED_ID, CHANGED_ORDER, CHANGED_WHITESPACE, CHANGED_TEXT),
    *(OTHER_SALT, OTHER_MODEL, OTHER_TEMPLATE),
    *(PLACED_LOAD, PLACED_DOWN, PLACED_PINNED, PLACED_STRATEGY, PLACED_ROUTER, IN_FLIGHT),
    *(EVICTED_DEVICE, EVICTED_L1, EVICTED_L2, EVICTED_UNKNOWN, EXPIRED_L2),
    *(LOST_RESTART, LOST_ROLLOUT, LOST_SCALE_DOWN, LOST_RESET),
    *(BELOW_BLOCK, INDEX_STALE, NOT_CACHEABLE, NOT_HASHED),
)

# Cause, and the prompt token it reaches up to.
Reach = tuple[str, int]


@dataclass(slots=True)
class MissFacts:
    """What is known of an answered prompt, in tokens from its start.

    `usable`: end of the last block that can be cached. `reaches`: known causes in order of
    precedence. `whole`: cause of all tokens, such as not cacheable.
    """

    prompt: int
    cached: int
    usable: int
    reaches: Sequence[Reach] = ()
    whole: str = ""


def split(facts: MissFacts) -> dict[str, int]:
    """Return the computed tokens by cause; they add up to `prompt - cached`."""
    boundary = min(max(facts.cached, 0), facts.prompt)
    if boundary == facts.prompt:
        return {}
    if facts.whole:
        return {facts.whole: facts.prompt - boundary}
    out: dict[str, int] = {}
    usable = min(facts.usable, facts.prompt)
    for cause, reach in facts.reaches:
        end = min(reach, usable)
        if end > boundary:
            out[cause] = out.get(cause, 0) + end - boundary
            boundary = end
    if usable > boundary:
        out[FIRST_SEEN] = out.get(FIRST_SEEN, 0) + usable - boundary
        boundary = usable
    if facts.prompt > boundary:
        out[BELOW_BLOCK] = facts.prompt - boundary
    return out
