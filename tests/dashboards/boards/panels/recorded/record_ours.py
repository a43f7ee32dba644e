"""Record the metrics of a real worker, router and cache node; run it when vLLM changes.

    flock /tmp/vllm.lock python -m tests.dashboards.boards.panels.recorded.record_ours

Two vLLM workers on the processor with device caches so small that they evict, one cache node as
their L2, one router before them; prompts are cold, then asked of the other worker, asked again
after they left its device, and once more, some streamed, some at once, one for a model that is not
there. At last, while many requests run and wait, each is asked for its `/metrics` once. Needs
`make vllm`, and takes two minutes.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cachetier.vllm_connector.settings import L2Target, kv_transfer_config
from tests.dashboards.boards.panels.recorded.replay import FOLDER, keep
from tests.support.cachenode import CacheNode
from tests.support.vllm.installation import model_path
from tests.support.vllm.router_process import Router, Seat, events, text
from tests.support.vllm.worker import Worker
from tests.support.waiting import until

L1_BYTES = 384 * 1024 * 1024  # some 250 blocks
FLAGS = (
    *("--num-gpu-blocks-override", "48", "--max-model-len", "1024", "--max-num-seqs", "8"),
    *("--kv-cache-metrics", "--kv-cache-metrics-sample", "1.0", "--enable-mfu-metrics"),
)
HOW = "recorded from real vLLM 0.32.0 (CPU, SmolLM2-135M, OffloadingConnector with L1 and our L2)"


def main() -> None:
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        node = CacheNode(folder, memory="192MiB", password="a-password")
        stack.callback(node.kill)
        target = L2Target(f"redis://127.0.0.1:{node.port}", str(model_path()))
        transfer = kv_transfer_config(L1_BYTES, "lru", target, "cpu")
        seats = []
        for name in "ab":
            reported = events("ipc://kv.sock", "ipc://replay.sock")
            secrets = {target.password_env: "a-password"}
            worker = Worker(folder, name, transfer, secrets, *FLAGS, *reported)
            stack.callback(worker.kill)
            sockets = f"ipc://{folder}/{name}"
            seats.append(Seat(name, worker, f"{sockets}/kv.sock", f"{sockets}/replay.sock"))
        for seat in seats:
            seat.worker.wait_ready()
        router = Router(folder, seats)
        router.start()
        stack.callback(router.kill)
        load(router)
        with under_load(router):
            with urllib.request.urlopen(f"{seats[1].worker.url}/metrics", timeout=30) as answer:
                keep("vllm-0.32.0", HOW, answer.read().decode())
            keep("emberline-router", f"a real router before workers {HOW}", router.page("/metrics"))
            keep("emberline-l2", f"a real cache node behind workers {HOW}", node.page("/metrics"))
    print(f"written to {FOLDER}")


def load(router: Router) -> None:
    prompts = [text(200) for _ in range(12)]
    for prompt in prompts:
        router.complete(prompt, "a", max_tokens=4)
    for prompt in prompts:  # from L2: the other worker computed them
        router.complete(prompt, "b", max_tokens=4)
    for prompt in prompts[:6]:  # from L1: they left the device since
        router.complete(prompt, "b", max_tokens=4)
    for _ in range(2):
        router.complete(prompts[5], "b", max_tokens=4)
        router.complete(prompts[5], max_tokens=4)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda prompt: streamed(router, prompt), [text(150) for _ in range(24)]))
        list(pool.map(lambda prompt: streamed(router, prompt), prompts))
    for model in ("unheard-of", 7):  # not there, and no name at all
        with contextlib.suppress(urllib.error.HTTPError):
            router._post(router.port, "/v1/completions", {"model": model, "prompt": "x"})


@contextlib.contextmanager
def under_load(router: Router) -> Iterator[None]:
    """While workers compute and requests wait."""
    prompts = [text(300) for _ in range(48)]
    with ThreadPoolExecutor(48) as pool:
        answers = [pool.submit(streamed, router, prompt) for prompt in prompts]
        until(lambda: sum(answer.done() for answer in answers) >= 16, 120, "answers")
        yield


def streamed(router: Router, prompt: str) -> None:
    body = {"model": "m", "prompt": prompt, "max_tokens": 24, "stream": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{router.port}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()


if __name__ == "__main__":
    main()
