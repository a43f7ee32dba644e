"""Formulas of costs and cache savings.

If a term is unknown the result is None with the reason. Savings may be negative. Nothing is rounded
before display.

Charged: every second in which a worker occupies its share of a machine, busy or idle, at list
price. Saved: avoided compute, which only saves money if fewer replicas run or more requests are
served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.catalogue.core.builtin import Instance
from console.core.money import format_usd_hour
from dashboards.costs.formulas.price_terms import THIS_MACHINE, Needs, label

HOUR_S = 3600.0
MILLION = 1_000_000.0
TIERS = ("device", "l1", "l2")


@dataclass(frozen=True, slots=True)
class Share:
    """Resources of a machine that one worker occupies.

    `of_gpus` 0: a machine without GPUs, shared by CPU or memory, whichever is more. `memory_bytes`
    includes `l1_bytes`. `occupancy` divides the share of a machine that is requested more than once
    over.
    """

    gpus: int
    of_gpus: int
    cpus: float
    of_cpus: float
    memory_bytes: int
    of_memory_bytes: int
    l1_bytes: int = 0
    occupancy: float = 1.0

    @property
    def part(self) -> float:
        return self._with(self.memory_bytes)

    @property
    def l1_part(self) -> float:
        """Return the part of the share due to L1: 0 if GPUs or CPUs determine the share."""
        return self.part - self._with(self.memory_bytes - self.l1_bytes)

    def _with(self, memory_bytes: int) -> float:
        if self.gpus and self.of_gpus:
            return self.gpus / self.of_gpus / self.occupancy
        part = max(self.cpus / self.of_cpus, memory_bytes / self.of_memory_bytes)
        return part / self.occupancy

    @property
    def words(self) -> str:
        if self.occupancy > 1:
            return f"{self.part:.0%} of the machine (over-allocated)"
        if self.gpus and self.of_gpus:
            return f"{self.gpus} of {self.of_gpus} GPUs"
        return f"{self.part:.0%} of the machine"


@dataclass(frozen=True, slots=True)
class Rate:
    """Price of one worker. `usd_hour` is None if unknown; `why` states what is missing."""

    usd_hour: float | None
    why: str = ""
    words: str = ""
    l1_usd_hour: float = 0.0
    """Part caused by L1."""
    routers_usd_hour: float | None = None
    """All routers together, at the price of the same machine; not part of the worker cost."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Usage of one endpoint in the range; None: not exported.

    `worker_s`: sum of the workers' lifetimes; `busy_s`: seconds with a request. `prefill_s`,
    `decode_s`: sums over requests. `cached`: tokens by tier (device, l1, l2). `load_s`: time spent
    loading KV blocks, `l2_bytes` of them from L2.
    """

    worker_s: float | None = None
    busy_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    prompt: float | None = None
    generated: float | None = None
    requests: float | None = None
    cached: Mapping[str, float] = field(default_factory=dict)
    load_s: float | None = None
    l2_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class L2Cost:
    """The endpoint's part of its cache tier's cost in the range. `usd` is None if unknown; `why`
    states what is missing.
    """

    usd: float | None = 0.0
    why: str = ""
    words: str = ""


NO_L2 = L2Cost()


@dataclass(frozen=True, slots=True)
class Saving:
    """Savings in the range. `seconds`: worker time avoided, by tier; `before`: its price less the
    loads; `usd`: `before` less the cost of L1 and L2. None if unknown; `why` states what is
    missing.
    """

    seconds: Mapping[str, float]
    load_s: float
    before: float | None
    l1_usd: float | None
    l2: L2Cost
    usd: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Costs:
    """USD of the range, except the current `usd_hour`."""

    rate: Rate
    total: float | None
    idle: float | None
    per_million_input: float | None
    per_million_output: float | None
    per_million_tokens: float | None
    per_thousand_requests: float | None
    saving: Saving | None
    l1: float | None = None
    l2: L2Cost = NO_L2


def costs(rate: Rate, counts: Counts, slope: float | None, l2: L2Cost = NO_L2) -> Costs:
    total = _times(counts.worker_s, rate.usd_hour)
    busy = _times(counts.busy_s, rate.usd_hour)
    idle = total - busy if total is not None and busy is not None else None
    both = _sum(counts.prompt, counts.generated)
    prefill, decode = split_time(counts)
    return Costs(
        rate=rate,
        total=total,
        idle=None if idle is None else max(0.0, idle),
        per_million_input=_each(_times_share(total, prefill), counts.prompt, MILLION),
        per_million_output=_each(_times_share(total, decode), counts.generated, MILLION),
        per_million_tokens=_each(total, both, MILLION),
        per_thousand_requests=_each(total, counts.requests, 1000.0),
        saving=saving(rate, counts, slope, l2) if slope is not None else None,
        l1=_times(counts.worker_s, None if rate.usd_hour is None else rate.l1_usd_hour),
        l2=l2,
    )


def saving(rate: Rate, counts: Counts, slope: float, l2: L2Cost = NO_L2) -> Saving:
    """saved = (cached tokens x seconds per token - seconds of loading) x price of a worker
    - cost of L1 - cost of L2. `slope`: worker seconds for each additional prompt token.
    """
    seconds = {tier: counts.cached.get(tier, 0.0) * slope for tier in TIERS}
    load_s = counts.load_s or 0.0
    before = _times(sum(seconds.values()) - load_s, rate.usd_hour)
    is_known = rate.usd_hour is not None
    l1 = _times(counts.worker_s or 0.0, rate.l1_usd_hour) if is_known else None
    usd = None if before is None or l1 is None or l2.usd is None else before - l1 - l2.usd
    return Saving(seconds, load_s, before, l1, l2, usd, rate.why or l2.why)


def split_shares(uses: Mapping[str, Counts]) -> dict[str, float]:
    """Return the share of each user of a cache tier in its cost.

    Shares follow the bytes read; if a user with hits exports no bytes, the cached tokens; without
    any hits they are equal.
    """
    hits = {name: counts.cached.get("l2", 0.0) for name, counts in uses.items()}
    complete = all(counts.l2_bytes for name, counts in uses.items() if hits[name])
    used = {name: counts.l2_bytes or 0.0 for name, counts in uses.items()} if complete else hits
    whole = sum(used.values())
    return {name: seconds / whole if whole else 1 / len(used) for name, seconds in used.items()}


def split_time(counts: Counts) -> tuple[float | None, float | None]:
    """Return the shares of prefill and of decode in the requests' time, by which input and output
    tokens share the cost; None if the engine does not measure both.
    """
    if counts.prefill_s is None or counts.decode_s is None:
        return None, None
    spent = counts.prefill_s + counts.decode_s
    return (counts.prefill_s / spent, counts.decode_s / spent) if spent else (None, None)


def _times_share(total: float | None, share: float | None) -> float | None:
    return None if total is None or share is None else total * share


def _times(seconds: float | None, usd_hour: float | None) -> float | None:
    return None if seconds is None or usd_hour is None else seconds / HOUR_S * usd_hour


def _each(total: float | None, count: float | None, unit: float) -> float | None:
    """Return the cost per unit; None without requests, where it is undefined."""
    return None if total is None or not count else total / count * unit


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None and other is None else (one or 0.0) + (other or 0.0)


def rate(needs: Needs, catalogue: Mapping[str, Instance]) -> Rate:
    """Return the rate on the preferred type of several; actual placement is not looked up."""
    name = needs.machine
    if not name:
        return Rate(None, "No instance type is set under Placement, so there is no price.")
    instance = catalogue.get(name)
    if instance is None or instance.price_usd_hour is None:
        return Rate(None, f"{label(name)} has no price (USD/h).")
    part = worker_share(needs, instance)
    machine = "this machine" if name == THIS_MACHINE else name
    words = f"{format_usd_hour(instance.price_usd_hour)} for {machine} × {part.words}"
    price = instance.price_usd_hour
    return Rate(
        price * part.part,
        words=words,
        l1_usd_hour=price * part.l1_part,
        routers_usd_hour=price * _routers(needs, instance),
    )


def _routers(needs: Needs, instance: Instance) -> float:
    """Return the routers' share of a machine by CPU or memory request, whichever is more."""
    cpus = needs.router_cpus / instance.vcpus
    return needs.routers * max(cpus, needs.router_memory_bytes / instance.memory_bytes)


def worker_share(needs: Needs, instance: Instance) -> Share:
    return Share(
        gpus=needs.gpus,
        of_gpus=instance.gpus,
        cpus=needs.cpus,
        of_cpus=instance.vcpus,
        memory_bytes=needs.memory_bytes + needs.l1_bytes,
        of_memory_bytes=instance.memory_bytes,
        l1_bytes=needs.l1_bytes,
        occupancy=instance.occupancy,
    )
