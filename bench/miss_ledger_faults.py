"""Causes of misses on real vLLM that need faults: events that are lost, adapters, a small L1.

    .venv/bin/python -m bench.miss_ledger_faults [--rounds 7] [kvaware prefixaware]

The same endpoint as bench.miss_ledger_vllm. Whether a cause was injected is read from the workers'
own KV events (bench.worker_events), which reach the routers through a proxy that can lose them.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.miss_ledger_vllm import Injector, Rig, compare
from bench.rig import busy, machine
from routing.engine.kv.wire import Tier
from tests.support.vllm.lora import make_adapter
from tests.support.vllm.router_process import text
from tests.support.waiting import until

_WORDS = 120  # four blocks
_CHUNK = 64  # tokens of a prefill step where others wait


class FaultInjector(Injector):
    # -- the workers' own account

    def stored(self, worker: str, prompt: str) -> None:
        tokens = self.token_ids(prompt)
        held = self.rig.events[worker].held
        until(lambda: held(tokens) >= len(tokens) - 32, what=f"the prompt in {worker}")

    def empty(self, worker: str, prompts: Sequence[str], send: bool = True) -> None:
        """Send other prompts until none of these is in device or L1."""
        names = [self.token_ids(prompt) for prompt in prompts]

        def gone() -> bool:
            for _ in range(4 if send else 0):
                self.send(text(350), pin=worker)
            return not any(self.rig.events[worker].held(one) for one in names)

        until(gone, 240, f"eviction from {worker}")

    @contextlib.contextmanager
    def losing(self, worker: str) -> Iterator[None]:
        """Lose the worker's events on their way to the routers, then let them follow again."""
        proxy = self.rig.proxies[worker]
        proxy.lose_live = proxy.deaf = True
        try:
            yield
        finally:
            proxy.lose_live = proxy.deaf = False
            prompt = text(_WORDS)
            for router in self.rig.routers:
                until(router.ready, 120, "the router")
                self.send(prompt, pin=worker)
                router.knows(worker, prompt, 96)

    # -- causes

    def other_model(self) -> None:
        prompt = text(_WORDS)
        tokens, events = self.token_ids(prompt), self.rig.events["a"]
        self.send(prompt, pin="a")
        self.stored("a", prompt)
        injected = not events.chain(tokens, "tuned")
        shown = self.send(prompt, pin="a", model="tuned")
        self.case("other_model", shown, injected and events.held(tokens) > shown["cached_tokens"])

    def in_flight(self) -> None:
        """The same prompt twice on a worker that computes it in steps, since it decodes another."""
        prompt, events = text(480), self.rig.events["a"]
        tokens = self.token_ids(prompt)
        with ThreadPoolExecutor(3) as pool:
            long = {"max_tokens": 80, "ignore_eos": True}
            running = pool.submit(self.send, text(20), "", "a", **long)
            worker = self.rig.seats["a"].worker
            until(lambda: worker.metric("vllm:num_requests_running") >= 1, what="a decode")
            first = pool.submit(self.send, prompt, "", "a")
            until(lambda: events.chain(tokens), what="the first step")
            shown = self.send(prompt, pin="a")
            first.result()
            running.result()
        missing = shown["cached_tokens"] // 32
        names = events.chain(tokens)
        copies = events.stored.get(names[missing], []) if missing < len(names) else []
        self.case("in_flight", shown, len(copies) > 1 and copies[0] > shown["time"])

    def evicted_from_device(self) -> None:
        """L1 is smaller than the device, and loses the prompts first; half are sent to the other
        worker.
        """
        half = len(prompts := self.held("a")) // 2
        self.empty("a", prompts)
        for number, prompt in enumerate(prompts):
            events = self.rig.events["a"]
            names = events.chain(self.token_ids(prompt))
            last = events.removed.get(names[0])
            shown = self.send(prompt, pin="ab"[number < half])
            self.case("evicted_device", shown, last is Tier.GPU)

    def stale_index(self) -> None:
        """The routers do not hear of a reset, or of evictions."""
        for number in range(self.rounds):
            (prompt,) = self.held("a", 0, 1)
            with self.losing("a"):
                if number % 2:
                    self.reset("a", self.rig.seats["a"].worker.port)
                    injected = True  # its event comes with the next step
                else:
                    self.empty("a", [prompt])
                    injected = not self.rig.events["a"].held(self.token_ids(prompt))
                shown = self.send(prompt, pin="a")
                injected = injected and not shown["cached_tokens"]
                self.case("index_stale", shown, injected)

    def unreported(self) -> None:
        """The routers hear neither of a prompt's blocks nor of their eviction."""
        for _ in range(self.rounds):
            prompt = text(_WORDS)
            with self.losing("a"):
                self.send(prompt, pin="a")
                self.stored("a", prompt)
                self.unknown("a", prompt)
                self.empty("a", [prompt])
                self.send(prompt, "evicted_unknown", pin="a")

    def late_events(self) -> None:
        """The routers do not hear yet that a worker has the prompt; half are pinned elsewhere."""
        for number in range(self.rounds):
            prompt = text(_WORDS)
            with self.losing("a"), ThreadPoolExecutor(1) as pool:
                self.send(prompt, pin="a", router=number % 2)
                self.stored("a", prompt)
                self.unknown("a", prompt)
                tokens = self.token_ids(prompt)
                if number % 2:
                    held = self.rig.events["a"].held(tokens)
                    shown = self.send(prompt, pin="b")
                    self.case("placed_pinned", shown, held >= 96)
                    continue
                long = {"max_tokens": 60, "ignore_eos": True}
                running = pool.submit(self.send, text(20), "", "a", **long)
                until(lambda: self._in_flight("a") >= 1, what="load")
                held = self.rig.events["a"].held(tokens)
                shown = self.send(prompt)
                self.case("index_stale", shown, shown["chosen"] == "b" and held >= 96)
                running.result()

    def unknown(self, worker: str, prompt: str) -> None:
        """Wait until no router expects the prompt there."""
        for router in self.rig.routers:
            until(lambda router=router: not any(router.holds(worker, {"prompt": prompt}).values()))

    def run(self) -> None:
        before = self.rig.engines(), self.rig.ledger()
        self._repeat(self.other_model)
        self._repeat(self.in_flight)
        self.rig.node.stop()
        for step in (self.evicted_from_device, self.stale_index, self.unreported, self.late_events):
            self._timed(step)
        compare(self.rig, before)
        self.show()


class PrefixInjector(FaultInjector):
    """With `prefixaware`, which hears of no evictions and tells no tiers apart."""

    def held(self, worker: str, router: int = 0, count: int | None = None) -> list[str]:
        prompts = [text(_WORDS) for _ in range(count or self.rounds)]
        for prompt in prompts:
            self.send(prompt, pin=worker, router=router)
        for prompt in prompts:
            self.stored(worker, prompt)
        return prompts

    def evicted(self) -> None:
        """Half of the prompts were sent by the other router."""
        half = (self.rounds + 1) // 2
        prompts = self.held("a", 0, half) + self.held("a", 1, half)
        self.empty("a", prompts)
        for prompt in prompts:
            self.send(prompt, "evicted_unknown", pin="a")

    def was_reset(self) -> None:
        """Through the router; then at the worker, of which the router does not hear."""
        for port, cause in (
            (0, "lost_reset"),
            (self.rig.seats["a"].worker.port, "evicted_unknown"),
        ):
            prompts = self.held("a", 0, (self.rounds + 1) // 2)
            self.reset("a", port)
            for prompt in prompts:
                self.send(prompt, cause, pin="a")

    def run(self) -> None:
        before = self.rig.engines(), self.rig.ledger()
        for repeated in (self.prompts, self.other_router, self.other_model, self.in_flight):
            self._repeat(repeated)
        self.rig.node.stop()
        steps = (self.pinned, self.load, self.down, self.strategy, self.evicted, self.was_reset)
        for step in (*steps, self.restarted, self.rollouts, self.scaled_down):
            self._timed(step)
        compare(self.rig, before)
        self.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("strategies", nargs="*", default=["kvaware", "prefixaware"])
    parser.add_argument("--rounds", type=int, default=7, help="cases of each cause")
    flags = parser.parse_args()
    print(f"{machine()}\n{busy()}", flush=True)
    for strategy in flags.strategies:
        with contextlib.ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="emb-", dir="/tmp"))
            )
            adapter = f"tuned={make_adapter(folder / 'adapter')}"
            more = ["--enable-lora", "--max-lora-rank", "8", "--lora-modules", adapter]
            more += ["--long-prefill-token-threshold", str(_CHUNK)]
            proxied = strategy == "kvaware"
            # Smaller than the device: it evicts first. Or more than `load` sends.
            l1 = 24 if proxied else 192
            rig = Rig(folder, l1_blocks=l1, strategy=strategy, flags=more, proxied=proxied)
            stack.callback(rig.close)
            injectors = {"kvaware": FaultInjector, "prefixaware": PrefixInjector}
            injectors[strategy](rig, flags.rounds).run()
            print(busy(), flush=True)


if __name__ == "__main__":
    main()
