"""Words for what the router decided, for people. Must not know Django.

The codes are the engine's; the sentences say them to somebody who has not read its source.
"""

from __future__ import annotations

REASONS: dict[str, tuple[str, str]] = {
    "prefix_hit": (
        "Prefix known",
        "This worker has served a prompt that begins the same way, so it likely still holds it.",
    ),
    "kv_hit": (
        "Cache reported",
        "This worker has reported that it holds the beginning of this prompt.",
    ),
    "session_sticky": (
        "Same session",
        "Requests of one session go to one worker, which holds what was said before.",
    ),
    "round_robin": ("In turn", "Workers are taken in turn; the prompt does not matter."),
    "fallback_no_match": (
        "Nothing known",
        "No worker is known to hold the beginning of this prompt; the least loaded one took it.",
    ),
    "fallback_least_loaded": (
        "Load won",
        "A worker holds the beginning, but it had so much to do that another one is faster.",
    ),
    "fallback_unhealthy": (
        "Best was down",
        "The best worker did not pass its health check; the next best one took the request.",
    ),
    "retry": (
        "Sent again",
        "The first worker failed before its first byte; another one took the request.",
    ),
    "pinned": ("Pinned", "The caller named this worker (x-emberline-pin)."),
}
STRATEGIES = {
    "prefixaware": "to the worker that has seen the prompt's beginning, unless it is overloaded",
    "kvaware": "to the worker that reports to hold the prompt's beginning",
    "session": "every request of one session to the same worker",
    "roundrobin": "to each worker in turn",
}


def label(reason: str) -> str:
    """A code this console does not know is shown as it is."""
    return REASONS.get(reason, (reason, ""))[0]


def sentence(reason: str) -> str:
    return REASONS.get(reason, (reason, ""))[1]
