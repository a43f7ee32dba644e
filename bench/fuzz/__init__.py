"""Coverage-guided fuzzing of what reads bytes from the network: `python -m bench.fuzz`.

A target is a function of bytes which raises AssertionError when a promise is broken; targets.py has
the router's, resp.py the cache node's, and tests replay every input that ever broke one.
"""
