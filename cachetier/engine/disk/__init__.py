"""The disk tier: values which memory let go, in append-only segment files, found again and checked.

Stdlib only. Must not know the protocol, the memory tier's policies or what a value means; shares
with the rest of the engine only the shape of a Hold.
"""
