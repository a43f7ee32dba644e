"""What would have helped against each cause of a miss, as texts."""

from __future__ import annotations

from routing.engine.misses import attribution as causes

NO_REMEDY = "None: "  # start of the texts that only explain
_LAYOUT = "Move the part that changes behind the part that stays the same."
_BIGGER = "Enlarge the tier, or add the next one: L1 keeps evicted blocks in host memory, L2 "
REMEDIES: dict[str, str] = {
    causes.FIRST_SEEN: "None: no earlier prompt began like this.",
    causes.CHANGED_TIMESTAMP: f"{_LAYOUT} Or round the time to the hour or the day.",
    causes.CHANGED_ID: f"{_LAYOUT} Or leave the number or ID out.",
    causes.CHANGED_ORDER: "Send tools, documents and messages in a fixed order.",
    causes.CHANGED_WHITESPACE: "Render the prompt with the same white space each time.",
    causes.CHANGED_TEXT: f"{_LAYOUT} After a change of the template this ends by itself.",
    causes.OTHER_SALT: "Share one salt, or one key group, where prompts may be shared.",
    causes.OTHER_MODEL: "None: blocks of one model or adapter are useless to another.",
    causes.OTHER_TEMPLATE: "Use the same chat template and template arguments.",
    causes.PLACED_LOAD: "Add replicas, or share blocks between workers with L2.",
    causes.PLACED_DOWN: "Find out why the worker was down or draining.",
    causes.PLACED_PINNED: "Leave out x-emberline-pin.",
    causes.PLACED_STRATEGY: "Route by prefix or by KV cache contents.",
    causes.PLACED_ROUTER: (
        "None for requests of one moment. Else check the state store, which shares placements."
    ),
    causes.IN_FLIGHT: "Send one request of a new prefix first, the others after its first token.",
    causes.EVICTED_DEVICE: f"{_BIGGER}shares them between workers.",
    causes.EVICTED_L1: "Enlarge L1, or enable L2.",
    causes.EVICTED_L2: "Enlarge L2.",
    causes.EVICTED_UNKNOWN: f"{_BIGGER}shares them. Strategy kvaware reports the tier.",
    causes.EXPIRED_L2: "Raise the TTL of L2.",
    causes.LOST_RESTART: "Find out why workers restart; L2 keeps blocks over a restart.",
    causes.LOST_ROLLOUT: "Enable L2, which survives a rollout.",
    causes.LOST_SCALE_DOWN: "Enable L2, or scale down more slowly.",
    causes.LOST_RESET: "None: the cache was reset on request.",
    causes.BELOW_BLOCK: (
        "None for the last block of a prompt. Short prompts: a smaller block size (--block-size)."
    ),
    causes.INDEX_STALE: "Check KV events: batches were lost or a worker's index is wrong.",
    causes.NOT_CACHEABLE: "Leave out prompt_logprobs; pooling requests use no cache.",
    causes.NOT_HASHED: "Use prefixaware or kvaware: session and roundrobin hash no prompts.",
}
assert REMEDIES.keys() == set(causes.CAUSES)
