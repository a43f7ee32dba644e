"""Constants of a simulated vLLM worker, one row for each kind of machine.

An engine step takes

    step_s + prefill_s x prompt tokens in it + context_s x (sum of their positions)
           + decode_s x decoding requests in it

All are derived from published figures of model and GPU, not measured:

* Llama-3.1-70B: 70.6e9 weights in bf16, 80 layers, hidden 8192, 8 KV heads of 128, so
  141e9 operations and 320 KiB of KV a token, and 4 x 80 x 8192 = 2.6e6 operations for each token
  of context before it. Llama-3.1-8B: 8.03e9, 32 layers, hidden 4096, 128 KiB.
* H100 SXM: 989e12 bf16 operations/s without sparsity, 3.35e12 bytes/s, 80e9 bytes.
* Prefill reaches 45 % of peak on eight GPUs and 50 % on one; decode 65 % of memory bandwidth.

70B on eight GPUs: 141e9 / (8 x 989e12 x 0.45) = 40 us a prompt token; context 2.6e6 / 3.56e15 =
0.74 ns; the weights are read once a step: 141e9 / (8 x 3.35e12 x 0.65) = 8 ms, and about 4 ms of
launches and all-reduces; a decoding request reads its KV, at 12,000 tokens 3.9e9 bytes: 0.25 ms. Of
8 x 72e9 bytes 141e9 are weights and about 35e9 activations and graphs: 1.2 million tokens of KV.
8B on one GPU: 32 us, 1.1 ns, 7.4 ms + 1 ms, 0.7 ms, 380,000 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# The recorded trace has blocks of 512 tokens, so the model's cache uses that size. vLLM's are of
# 16: partial hits within a large block are ignored, for every router alike.
BLOCK_TOKENS = 512


@dataclass(frozen=True)
class TierModel:
    """Cache tier behind the device. `policy`: one of cachetier.engine.policies."""

    tokens: int  # capacity
    load_s: float  # for each token loaded to the device
    latency_s: float = 0.0  # for each prompt that loads
    policy: str = "lru"


@dataclass(frozen=True)
class Hardware:
    name: str
    step_s: float
    prefill_s: float  # for each computed prompt token
    context_s: float  # for each computed prompt token and context token
    decode_s: float  # for each decoding request in the step
    cache_tokens: int
    step_tokens: int = 8192  # vLLM's max_num_batched_tokens on these GPUs
    step_answers: int = 256  # max_num_seqs
    library_tokens: int = 0  # memory for which synthetic workloads are sized; 0: actual
    block_tokens: int = BLOCK_TOKENS
    overhead_s: float = 0.0  # for each request, outside the engine's steps
    l1: TierModel | None = None  # of each worker
    l2: TierModel | None = None  # of all workers together

    @property
    def blocks(self) -> int:
        return self.cache_tokens // self.block_tokens

    def slowed(self, factor: float) -> Hardware:
        """Return a machine whose steps take `factor` times as long."""
        if factor == 1.0:
            return self
        names = ("step_s", "prefill_s", "context_s", "decode_s")
        return replace(self, **{name: factor * getattr(self, name) for name in names})


LLAMA_70B = Hardware("70b", 0.012, 40e-6, 0.74e-9, 0.25e-3, 1_200_000)
# A quarter of the memory with the full workload: caches much too small.
LLAMA_70B_QUARTER = replace(
    LLAMA_70B, name="70b-quarter", cache_tokens=300_000, library_tokens=1_200_000
)
LLAMA_8B = Hardware("8b", 0.0084, 32e-6, 1.1e-9, 0.7e-3, 380_000)
HARDWARE = {kind.name: kind for kind in (LLAMA_70B, LLAMA_70B_QUARTER, LLAMA_8B)}
