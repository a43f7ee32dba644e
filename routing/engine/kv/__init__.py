"""What each worker really holds, block by block, as its engine's KV events tell.

`wire` reads payloads, `chain` names blocks, `index` keeps who holds what and `match` asks it,
`recovery` decides what to do about lost or repeated messages, `sources` says where to listen,
`subscriber` does the I/O.
"""
