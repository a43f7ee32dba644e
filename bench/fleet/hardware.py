"""The constants of a simulated vLLM worker: one row for each kind of machine.

A step of the engine takes

    step_s + prefill_s x prompt tokens in it + context_s x (their positions summed)
           + decode_s x answers in it

All are worked out from the model's and the card's published figures, not measured by us:

* Llama-3.1-70B: 70.6e9 weights in bf16, 80 layers, hidden 8192, 8 KV heads of 128, so
  141e9 operations and 320 KiB of KV a token, and 4 x 80 x 8192 = 2.6e6 operations for each token
  of context before it. Llama-3.1-8B: 8.03e9, 32 layers, hidden 4096, 128 KiB.
* H100 SXM: 989e12 bf16 operations/s without sparsity, 3.35e12 bytes/s, 80e9 bytes.
* 45 % of the peak is reached in prefill (eight cards joined) and 50 % (one card); 65 % of the
  memory's speed in decode.

70B on eight cards: 141e9 / (8 x 989e12 x 0.45) = 40 us a prompt token; context 2.6e6 / 3.56e15 =
0.74 ns; the weights are read once a step: 141e9 / (8 x 3.35e12 x 0.65) = 8 ms, and about 4 ms of
launches and all-reduces; an answer reads its KV, at 12,000 tokens 3.9e9 bytes: 0.25 ms. Of 8 x 72e9
bytes 141e9 are weights and about 35e9 activations and graphs: 1.2 million tokens of KV.
8B on one card: 32 us, 1.1 ns, 7.4 ms + 1 ms, 0.7 ms, 380,000 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# The held trace names blocks of 512 tokens, so the model's cache has blocks of that size. vLLM's
# are of 16: what it can credit beyond a block of ours is left out, for every router alike.
BLOCK_TOKENS = 512


@dataclass(frozen=True)
class Hardware:
    name: str
    step_s: float
    prefill_s: float  # each prompt token computed
    context_s: float  # each prompt token computed, for each token before it
    decode_s: float  # each answer in the step
    cache_tokens: int
    step_tokens: int = 8192  # vLLM's max_num_batched_tokens on such cards
    step_answers: int = 256  # max_num_seqs
    library_tokens: int = 0  # memory which made workloads are sized for; 0: what it has

    @property
    def blocks(self) -> int:
        return self.cache_tokens // BLOCK_TOKENS


LLAMA_70B = Hardware("70b", 0.012, 40e-6, 0.74e-9, 0.25e-3, 1_200_000)
# The same with a quarter of the memory, under the work of the whole: caches much too small for it.
LLAMA_70B_QUARTER = replace(
    LLAMA_70B, name="70b-quarter", cache_tokens=300_000, library_tokens=1_200_000
)
LLAMA_8B = Hardware("8b", 0.0084, 32e-6, 1.1e-9, 0.7e-3, 380_000)
HARDWARE = {kind.name: kind for kind in (LLAMA_70B, LLAMA_70B_QUARTER, LLAMA_8B)}
