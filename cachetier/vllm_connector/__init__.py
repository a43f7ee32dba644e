"""The cache tier inside a vLLM worker: L1 through vLLM's own tiering, L2 through our client.

Promises that importing it does nothing, that no request ever fails because of a cache, and that no
byte from L2 reaches a model unchecked. Must not know Django, the cache engine or the console.
`settings` can be imported without vLLM; `compat` is the only file that knows vLLM's versions.
"""
