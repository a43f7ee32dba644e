"""Strategies, and the worker that each chooses. Their classes are in `routing.engine.policies`."""

STRATEGY_CHOICES = {
    "prefixaware": "the worker that was sent the longest prefix of the prompt",
    "kvaware": "the worker that reports the longest cached prefix",
    "session": "one worker per session",
    "roundrobin": "each worker in turn",
}
STRATEGIES = tuple(STRATEGY_CHOICES)
