"""The bytes between a cache client and a cache node: RESP framing, the command table, the envelope
around a value. Standard library only; no sockets, no clocks, no storage."""
