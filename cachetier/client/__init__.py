"""Blocking RESP client for cache nodes, Redis and Valkey. Standard library only.

Operations end by their deadline and return outcomes instead of raising. Bodies are returned only
after the envelope check.
"""
