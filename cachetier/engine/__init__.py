"""Cache node, run as `python -m cachetier.engine`: a RESP server with bounded memory.

Values are opaque except for their envelope.
"""
