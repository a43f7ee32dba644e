"""Coverage-guided fuzzing of network parsers: `python -m tests.fuzz`.

A target is a function of bytes that raises AssertionError if an invariant is violated. targets.py
covers the router, resp.py the cache node; tests replay every failing input.
"""
