"""A cache node: `python -m cachetier.engine`. Speaks RESP, keeps values in bounded memory.

Must not know Django, the console, endpoints, or what a value means beyond its envelope.
"""
