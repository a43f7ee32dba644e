"""A blocking RESP client for caches: our nodes, Redis and Valkey alike. Standard library only.

Promises that an operation ends by its deadline, that its outcome is a value and never an
exception, and that a byte is handed on only after its envelope agreed.
"""
