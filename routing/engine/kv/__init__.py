"""KV cache index: which worker holds which block, built from the engines' KV events.

`wire` parses payloads, `chain` names blocks, `index` maps blocks to holders, `match` queries it,
`recovery` handles lost and repeated messages, `sources` resolves endpoints, `subscriber` does the
I/O.
"""
