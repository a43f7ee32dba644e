"""Hit rates of the L2 eviction policies on the recorded trace and on harder loads.

    .venv/bin/python -m bench.l2_policies [--workload conversation] [--details]

A request needs its prompt's blocks in order and can use those before the first miss: only they
count ("usable"); blocks after a gap ("found") are useless. The rest is computed and stored. The
policies are the engine's own; a block costs one, capacities are shares of all distinct blocks. The
first half of the requests warms the cache, the second is counted and was not used for tuning. The
bound is Belady's with bypass: evict, or do not admit, the block needed latest; no policy can find
more, and none can use more than it finds.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from bench.fleet import workloads
from cachetier.engine.memory.gates import NamespaceAdmission
from cachetier.engine.policies import POLICIES, make_policy
from cachetier.engine.store import EvictionReason
from cachetier.wire.envelope import block_key
from routing.whatif.simulation.hardware import LLAMA_70B

PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
Chain = Sequence[bytes]
PEOPLE, BATCH = "people", "batch"  # namespaces


def block_keys(blocks: Iterable[int], namespace: str = PEOPLE) -> Chain:
    """Return keys as the plug-in builds them."""
    return [block_key(namespace, 0, block.to_bytes(12, "little", signed=True)) for block in blocks]


@dataclass(frozen=True, slots=True)
class Load:
    """Chains in request order. Those from `counted` on are counted, except the background load in
    `noise`.
    """

    name: str
    chains: list[Chain]
    counted: int
    noise: frozenset[int] = frozenset()

    @property
    def distinct(self) -> int:
        return len({block for chain in self.chains for block in chain})

    def measured(self) -> Iterator[tuple[bool, Chain]]:
        for number, chain in enumerate(self.chains):
            yield number >= self.counted and number not in self.noise, chain


# -- loads -------------------------------------------------------------------------------------
def conversation() -> Load:
    asks = workloads.conversation(1.0, seed=1, half=2)
    return Load("conversation", [block_keys(ask.chain) for ask in asks], len(asks) // 2)


def batch_scan() -> Load:
    """Return the trace with a batch job that reads 60 long documents once every 400 requests.

    That is about as many blocks as users request in a third of that time.
    """
    base = conversation()
    chance = random.Random(2)
    chains: list[Chain] = []
    noise = set()
    counted = 0
    for number, chain in enumerate(base.chains):
        if number == base.counted:
            counted = len(chains)
        chains.append(chain)
        if number % 400 == 399:
            for _ in range(60):
                first = chance.getrandbits(50) * 1000
                noise.add(len(chains))
                chains.append(block_keys(range(first, first + 64), BATCH))
    return Load("scan", chains, counted, frozenset(noise))


def shared_prefix() -> Load:
    """Return questions about documents of 8k tokens with a unique end: half of the stored blocks
    are never requested again.
    """
    chance = random.Random(3)
    chains: list[Chain] = []
    for ask in workloads.documents(workloads.LIBRARIES["8k-wide"], 33.0, 3, 8, LLAMA_70B):
        own = -(chance.getrandbits(50) + 1) * 100
        chains.append(block_keys([*ask.chain, *range(own, own + chance.randint(4, 28))]))
    return Load("shared-prefix", chains, len(chains) // 2)


def cyclic_scan() -> Load:
    """Return the trace with a job that cycles through 400 long documents, one after every third
    request.

    They exceed a small cache, so that LRU never hits them.
    """
    base = conversation()
    chains: list[Chain] = []
    counted = 0
    for number, chain in enumerate(base.chains):
        if number == base.counted:
            counted = len(chains)
        chains.append(chain)
        if number % 3 == 2:
            first = (number // 3) % 400 * 1000
            chains.append(block_keys(range(first, first + 64), BATCH))
    return Load("rounds", chains, counted)


def behind_l1() -> Load:
    """Return the trace as L2 receives it: eight workers, with conversations pinned to them, hold 5
    % of all blocks in their L1s, and L1 hits are not requested from L2.
    """
    base = conversation()
    workers = [OrderedDict[bytes, None]() for _ in range(8)]
    room = base.distinct // 20 // len(workers)
    chains: list[Chain] = []
    for chain in base.chains:
        l1 = workers[crc32(chain[1] if len(chain) > 1 else b"") % len(workers)]
        held = next((at for at, block in enumerate(chain) if block not in l1), len(chain))
        for block in reversed(chain):
            l1[block] = None
            l1.move_to_end(block)
        while len(l1) > room:
            l1.popitem(last=False)
        chains.append(chain[held:])
    return Load("behind-l1", chains, base.counted)


LOADS: dict[str, Callable[[], Load]] = {
    "conversation": conversation,
    "scan": batch_scan,
    "shared-prefix": shared_prefix,
    "behind-l1": behind_l1,
    "rounds": cyclic_scan,
}


# -- runs --------------------------------------------------------------------------------------
@dataclass(slots=True)
class Score:
    lookups: int = 0
    found: int = 0
    usable: int = 0

    def count(self, there: list[bool]) -> None:
        self.lookups += len(there)
        self.found += sum(there)
        self.usable += next((at for at, one in enumerate(there) if not one), len(there))

    def text(self, details: bool) -> str:
        usable = f"{100 * self.usable / self.lookups:.1f}"
        return f"{usable} ({100 * self.found / self.lookups:.1f})" if details else usable


@dataclass(frozen=True, slots=True)
class UseOrder:
    """How the node receives uses: order within the chain, and how often a loaded block counts
    (existence check and read may both count).
    """

    backwards: bool = True
    uses: int = 1
    admission: bool = False


def run(load: Load, policy_name: str, capacity: int, manner: UseOrder) -> Score:
    policy = make_policy(policy_name, capacity)
    gate = NamespaceAdmission(lambda: capacity) if manner.admission else None
    score = Score()
    held = 0
    for counts, chain in load.measured():
        there = [block in policy for block in chain]
        if counts:
            score.count(there)
        hits = [block for block, one in zip(chain, there, strict=True) if one]
        for block in reversed(hits) if manner.backwards else hits:
            for _ in range(manner.uses):
                policy.used(block)
            if gate is not None:
                gate.used(block)
        for block, one in zip(chain, there, strict=True):
            if one or (gate is not None and gate.refuses(block, 1, 0.0)):
                continue
            while held >= capacity:
                victim = policy.victim()
                assert victim is not None
                policy.evicted(victim)
                held -= 1
                if gate is not None:
                    gate.left(victim, 1, EvictionReason.CAPACITY)
            policy.added(block, 1)
            if gate is not None:
                gate.added(block, 1)
            held += 1
    return score


def bound(load: Load, capacity: int) -> Score:
    """Return the score of Belady's MIN with bypass."""
    never = len(load.chains)
    last: dict[bytes, int] = {}
    following: list[list[int]] = []
    for number in range(len(load.chains) - 1, -1, -1):
        chain = load.chains[number]
        following.append([last.get(block, never) for block in chain])
        last.update(dict.fromkeys(chain, number))
    following.reverse()
    held: dict[bytes, int] = {}  # next use of each
    latest: list[tuple[int, bytes]] = []
    score = Score()
    for number, (counts, chain) in enumerate(load.measured()):
        if counts:
            score.count([block in held for block in chain])
        for block, need in zip(chain, following[number], strict=True):
            held[block] = need
            heapq.heappush(latest, (-need, block))
        while len(held) > capacity:
            need, block = heapq.heappop(latest)
            if held.get(block) == -need:
                del held[block]
    return score


# -- report ------------------------------------------------------------------------------------
class Summary:
    """Over all loads and capacities: share of the possible hits, and the largest gap to the best
    policy.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[float]] = {name: [] for name in POLICIES}
        self._short: dict[str, float] = dict.fromkeys(POLICIES, 0.0)

    def add(self, scores: dict[str, Score], most: Score) -> None:
        best = max(score.usable for score in scores.values())
        for name, score in scores.items():
            self._parts[name].append(score.usable / most.found)
            self._short[name] = max(self._short[name], (best - score.usable) / score.lookups)

    def show(self) -> None:
        print("\n### over all of these\n")
        print("| | " + " | ".join(POLICIES) + " |")
        print("|---|" + "---|" * len(POLICIES))
        means = [f"{100 * sum(parts) / len(parts):.0f} %" for parts in self._parts.values()]
        print("| of the bound, on average | " + " | ".join(means) + " |")
        worst = [f"{100 * short:.1f} points" for short in self._short.values()]
        print("| at most behind the best | " + " | ".join(worst) + " |")


def report(load: Load, details: bool, summary: Summary) -> None:
    distinct = load.distinct
    unlimited = run(load, "lru", distinct, UseOrder()).text(False)
    print(
        f"\n### {load.name}: {len(load.chains):,} requests, {distinct:,} blocks; "
        f"a cache of any size: {unlimited} %\n"
    )
    print("| capacity | " + " | ".join(POLICIES) + " | bound |")
    print("|---|" + "---|" * (len(POLICIES) + 1))
    for part in PARTS:
        capacity = max(int(distinct * part), 1)
        scores = {name: run(load, name, capacity, UseOrder()) for name in POLICIES}
        most = bound(load, capacity)
        summary.add(scores, most)
        cells = [score.text(details) for score in scores.values()]
        print(
            f"| {part:.0%} | " + " | ".join(cells) + f" | {100 * most.found / most.lookups:.1f} |"
        )


def admissions(load: Load) -> None:
    """Compare with and without rejection of thrashing namespaces."""
    print(f"\n### {load.name}: refusing what only thrashes\n")
    print("| capacity | " + " | ".join(f"{name} | with admission" for name in POLICIES) + " |")
    print("|---|" + "---|" * (2 * len(POLICIES)))
    for part in PARTS:
        capacity = int(load.distinct * part)
        cells = [
            run(load, name, capacity, UseOrder(admission=admission)).text(False)
            for name in POLICIES
            for admission in (False, True)
        ]
        print(f"| {part:.0%} | " + " | ".join(cells) + " |")


def report_use_orders(load: Load) -> None:
    """Print the effect of the order of uses and of counting them twice."""
    print(f"\n### {load.name}: how the node hears of uses\n")
    print("| capacity | manner | " + " | ".join(POLICIES) + " |")
    print("|---|---|" + "---|" * len(POLICIES))
    for part in (0.02, 0.1):
        capacity = int(load.distinct * part)
        for title, manner in (
            ("from the end", UseOrder()),
            ("in order", UseOrder(backwards=False)),
            ("from the end, twice", UseOrder(uses=2)),
        ):
            cells = [run(load, name, capacity, manner).text(True) for name in POLICIES]
            print(f"| {part:.0%} | {title} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workload", choices=LOADS)
    parser.add_argument("--details", action="store_true", help="also what was found behind gaps")
    parser.add_argument("--admission", action="store_true", help="show only what it changes")
    flags = parser.parse_args()
    print("Blocks which could be used, in percent of those asked for.")
    summary = Summary()
    for name, make_load in LOADS.items():
        if flags.workload in (None, name):
            load = make_load()
            if flags.admission:
                admissions(load)
                continue
            report(load, flags.details, summary)
            if flags.details:
                report_use_orders(load)
    if not flags.admission:
        summary.show()


if __name__ == "__main__":
    main()
