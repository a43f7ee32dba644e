"""Cache tier inside a vLLM worker: L1 through vLLM's tiering, L2 through `cachetier.client`.

Importing has no side effects. No request fails because of a cache, and every byte from L2 is
verified. `settings` imports without vLLM; only `compat` depends on vLLM versions.
"""
