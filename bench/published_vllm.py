"""python -m bench.published_vllm: the comparison of bench.published, scaled down, on real vLLM.

Two workers (CPU build, SmolLM2-135M, one thread each) behind a router of its own for each row.
Clients ask one question after the other about shared documents; a worker's device cache holds
`--held` of them. A: round robin, no prefix cache; B: round robin, vLLM's own prefix cache; then
prefix-aware routing with L1 and our L2, through shared memory. All rows ask the same questions in
the same order, and begin with empty caches; the first quarter is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.cache_ttft import ask, free_port, l2_engine_shm, metric, process, wait_http, worker
from bench.cache_ttft import prompt as new_document
from bench.published import Outcome
from bench.rig import busy, machine
from dashboards.insight.whatif.simulation.replay import share

WARM_UP = 0.25
BLOCK_TOKENS = 32
ANSWER_TOKENS = 24


@dataclass(frozen=True)
class Load:
    questions: Sequence[str]
    clients: int


@dataclass(frozen=True)
class Answered:
    started: float
    ttft_s: float
    ended: float


def drawn(documents: int, tokens: int, questions: int, clients: int) -> Load:
    """Return questions about documents whose popularity is 1 / rank ** 0.9."""
    random.seed(1)
    texts = [new_document(tokens) for _ in range(documents)]
    weights = [(rank + 1) ** -0.9 for rank in range(documents)]
    chosen = random.choices(texts, weights, k=questions)
    return Load([f"{text} Question {number}:" for number, text in enumerate(chosen)], clients)


def answer_all(url: str, load: Load) -> list[Answered]:
    def answer(question: str) -> Answered:
        started = time.perf_counter()
        ttft_s, _ = ask(url, question, ANSWER_TOKENS)
        return Answered(started, ttft_s, time.perf_counter())

    with ThreadPoolExecutor(load.clients) as clients:
        return list(clients.map(answer, load.questions))


@contextlib.contextmanager
def router(strategy: str, workers: Sequence[str], folder: Path) -> Iterator[str]:
    port, admin = free_port(), free_port()
    argv = [sys.executable, "-m", "routing.engine", "--listen", f"127.0.0.1:{port}"]
    argv += ["--admin", f"127.0.0.1:{admin}", "--model", "bench", "--strategy", strategy]
    argv += itertools.chain.from_iterable(("--worker", url) for url in workers)
    log = folder / "router.log"
    with process(argv, {}, log) as child:
        wait_http(f"http://127.0.0.1:{admin}/readyz", child, log)
        yield f"http://127.0.0.1:{port}"


def run(folder: Path, strategy: str, tiers: bool, flags: Sequence[str], load: Load) -> Outcome:
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(l2_engine_shm(folder)) if tiers else ""
        workers = [
            stack.enter_context(worker(url, folder, f"worker{number}", *flags))
            for number in range(2)
        ]
        address = stack.enter_context(router(strategy, workers, folder))
        answers = answer_all(address, load)
        cached = sum(metric(each, "vllm:prompt_tokens_cached_total", "engine") for each in workers)
        prompts = sum(metric(each, "vllm:prompt_tokens_total", "engine") for each in workers)
    counted = answers[int(len(answers) * WARM_UP) :]
    ttft = [each.ttft_s for each in counted]
    span = max(each.ended for each in counted) - counted[0].started
    hit_rate = cached / prompts  # of all questions
    return Outcome(
        share(ttft, 0.5), share(ttft, 0.9), hit_rate, len(counted) * ANSWER_TOKENS / span
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.published_vllm", description=__doc__)
    parser.add_argument("--documents", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=1400)
    parser.add_argument("--held", type=int, default=5)
    parser.add_argument("--questions", type=int, default=96)
    parser.add_argument("--clients", type=int, default=4)
    given = parser.parse_args()
    load = drawn(given.documents, given.tokens, given.questions, given.clients)
    # Two blocks for the end of each client's prompt and answer.
    blocks = given.held * given.tokens // BLOCK_TOKENS + 2 * given.clients
    device = ("--num-gpu-blocks-override", str(blocks))
    print(f"{machine()}; {' '.join(sys.argv[1:]) or 'defaults'}; {busy() or 'quiet'}")
    print("change: TTFT p50, p90, throughput, cost per token; against A; against B")
    bases: list[Outcome] = []
    for title, strategy, tiers, flags in (
        ("A round robin, no prefix cache", "roundrobin", False, ("--no-enable-prefix-caching",)),
        ("B round robin, vLLM's prefix cache", "roundrobin", False, ()),
        ("prefixaware, L1, L2", "prefixaware", True, ()),
    ):
        with tempfile.TemporaryDirectory(prefix="emberline-bench-") as folder:
            outcome = run(Path(folder), strategy, tiers, (*device, *flags), load)
        changes = "; ".join(
            " ".join(f"{change:+.0%}" for change in outcome.against(base)) for base in bases
        )
        print(
            f"{title:38}{outcome.p50:8.3f}{outcome.p90:8.3f}{outcome.hit_rate:8.1%}"
            f"{outcome.throughput:8.1f}   {changes}",
            flush=True,
        )
        if not tiers:
            bases.append(outcome)


if __name__ == "__main__":
    main()
