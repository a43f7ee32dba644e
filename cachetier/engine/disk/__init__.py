"""Disk tier: values evicted from memory, in append-only segment files, verified on every read.

Standard library only; shares only `Hold` with the rest of the engine.
"""
