"""Simulated engine: a queue, one prefill at a time, concurrent decoding.

A request waits for a slot (`max_num_seqs`), then for the prefill lane, in order of arrival. There
it takes its blocks, waits for the modelled time of computing uncached and loading cached tokens,
and yields its first token; the rest follow at a fixed rate independent of the load. Computed blocks
then become hits for others and go to L1 and L2. Time and text are simulated; queue, blocks, hits,
evictions and L2 traffic are real.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from cachetier.simulation.block_cache import BlockCache
from cachetier.simulation.tier_cache import TierCache
from console.processkit.metrics import Number
from endpoints.simulated_worker import tokens
from endpoints.simulated_worker.kv_events import CPU, GPU, KvLog
from endpoints.simulated_worker.l2 import L2
from endpoints.simulated_worker.options import Options
from endpoints.simulated_worker.telemetry import NO_ADMISSION, QueueAdmission, Telemetry

PREFILL_S = 0.006
_L1_S = 0.0003
_L2_S = 0.0006
_DECODE_S = 0.030
_FIRST = b""  # predecessor of a block, which KvLog knows itself


@dataclass(frozen=True, slots=True)
class Timing:
    speed: float

    def prefill_s(self, computed: int, from_l1: int, from_l2: int) -> float:
        """Return the prefill time (s); blocks still on the device are free."""
        return (computed * PREFILL_S + from_l1 * _L1_S + from_l2 * _L2_S) / self.speed

    @property
    def decode_s(self) -> float:
        return _DECODE_S / self.speed


@dataclass(slots=True)
class _Holding:
    """Device blocks of a running request: filled ones, and the number of blank ones."""

    filled: list[bytes] = field(default_factory=list)
    blank: int = 0


@dataclass(slots=True)
class Job:
    prompt: list[int]
    max_tokens: int
    text: list[str]
    ended: bool  # the text ends before `max_tokens`
    salt: str = ""
    report: bool = False  # publish reused blocks as KV events
    arrived: float = field(default_factory=time.monotonic)
    scheduled: float = 0.0
    first: float = 0.0
    last: float = 0.0
    generated: int = 0
    finish: str = "abort"  # replaced when the request ends or is stopped
    way: QueueAdmission = NO_ADMISSION


class Engine:
    def __init__(
        self, options: Options, telemetry: Telemetry, l2: L2 | None, kv: KvLog | None = None
    ) -> None:
        self._options = options
        self._telemetry = telemetry
        self._l2 = l2
        self._timing = Timing(options.speed)
        self._kv = kv
        self._device: BlockCache[bytes] = BlockCache(options.device_blocks, _KvJournal(GPU, kv))
        block_bytes = options.block_size * options.kv_bytes_per_token
        self._block_bytes = block_bytes
        l1_blocks = options.l1_bytes // block_bytes
        self._l1: TierCache[bytes] = TierCache(l1_blocks, options.l1_policy)
        self._l1_journal = _KvJournal(CPU, kv)
        self._seats = asyncio.Semaphore(options.max_num_seqs)
        self._lane = asyncio.Lock()
        self._freed = asyncio.Event()

    def job(self, prompt: list[int], max_tokens: int, min_tokens: int, salt: str) -> Job:
        text, ended = tokens.answer(prompt, self._options.seed, min_tokens, max_tokens)
        return Job(prompt, max_tokens, text, ended, salt)

    def fits(self, job: Job) -> bool:
        return self._blocks_of(job) <= self._device.size

    def reset_prefix_cache(self) -> bool:
        """Clear the device cache; L1 is kept. Return False while requests run."""
        done = self._device.reset()
        if done and self._kv is not None:
            self._kv.cleared()
        return done

    async def run(self, job: Job) -> AsyncGenerator[str, None]:
        """Yield the text in pieces. Closing the generator aborts the job."""
        hashes = tokens.chain_hashes(job.prompt, self._options.block_size, job.salt)
        holding = _Holding()
        try:
            with self._waiting("deferred"):
                from_l2 = await self._ask_l2(job, hashes)
            with self._waiting("capacity") as waiting:
                async with self._seats:
                    async with self._lane:
                        holding = await self._take(job, hashes, from_l2)
                        waiting.close()
                        await self._prefill(job, hashes, holding)
                    yield job.text[0]
                    async for piece in self._decode(job, hashes, holding):
                        yield piece
            job.finish = "stop" if job.ended else "length"
        finally:
            self._end(job, holding)
            if self._kv is not None:
                self._kv.flush()
                self._kv.forget(hashes)

    # ---- request

    async def _ask_l2(self, job: Job, hashes: Sequence[bytes]) -> set[bytes]:
        offload = self._telemetry.offload
        if self._l2 is None or offload is None:
            return set()
        usable = hashes[self._device.match(hashes) : self._most_hits(job)]
        missing = [block for block in usable if block not in self._l1]
        if not missing:
            return set()
        offload.in_progress.add()
        try:
            loaded, took_s = await self._l2.load(missing)
        finally:
            offload.in_progress.add(-1)
        offload.looked_up("l2", min(len(loaded) + 1, len(missing)), len(loaded))
        offload.histograms["vllm:kv_offload_lookup_async_delay_seconds"].observe(took_s)
        offload.tiers["l2", "vllm:kv_offload_tiering_read_bytes_total"].add(
            len(loaded) * self._block_bytes
        )
        offload.tiers["l2", "vllm:kv_offload_tiering_read_time_total"].add(took_s)
        return loaded

    async def _take(self, job: Job, hashes: Sequence[bytes], from_l2: set[bytes]) -> _Holding:
        """Wait for free blocks, then determine the hits per tier."""
        while True:
            device = min(self._device.match(hashes), self._most_hits(job))
            fresh = self._blocks_of(job) - device
            self._freed.clear()
            if self._device.take(hashes, device, fresh):
                holding = _Holding(list(hashes[:device]), fresh)
                break
            await self._freed.wait()
        if self._kv is not None:
            self._kv.know(job.prompt, hashes, 0, job.salt)
            if job.report:
                self._kv.again(hashes[:device])
        host, disk = self._beyond(hashes[device : self._most_hits(job)], from_l2)
        size = self._options.block_size
        job.way = QueueAdmission(len(job.prompt), device * size, host * size, disk * size)
        job.scheduled = time.monotonic()
        self._telemetry.gauges["vllm:num_requests_running"].add()
        self._telemetry.gauges["vllm:kv_cache_usage_perc"].set(self._device.usage)
        self._telemetry.admitted(job.way)
        return holding

    def _beyond(self, hashes: Sequence[bytes], from_l2: set[bytes]) -> tuple[int, int]:
        """Return the blocks supplied by L1 and by L2 after the device's hits, up to the first miss.
        L2 hits are promoted to L1.
        """
        host = disk = 0
        for block in hashes:
            if block in self._l1:
                self._l1.touch((block,))
                host += 1
            elif block in from_l2:
                self._l1.store(block, _FIRST, self._l1_journal)
                disk += 1
            else:
                break
        offload = self._telemetry.offload
        if offload is not None:
            offload.looked_up("l1", min(host + disk + 1, len(hashes)), host)
            if host + disk:
                offload.counters["vllm:kv_offload_load_bytes_total"].add(
                    (host + disk) * self._block_bytes
                )
                offload.histograms["vllm:kv_offload_load_size"].observe(
                    (host + disk) * self._block_bytes
                )
        return host, disk

    async def _prefill(self, job: Job, hashes: Sequence[bytes], holding: _Holding) -> None:
        way, timing = job.way, self._timing
        load_s = timing.prefill_s(0, way.host, way.disk)
        await asyncio.sleep(timing.prefill_s(way.computed, way.host, way.disk))
        if self._telemetry.offload is not None:
            self._telemetry.offload.counters["vllm:kv_offload_load_time_total"].add(load_s)
        cached = way.cached // self._options.block_size
        for block in hashes[way.device // self._options.block_size :]:
            self._fill(holding, block)
        self._store(hashes[cached:])
        if self._kv is not None:
            self._kv.flush()
        job.first = job.last = time.monotonic()
        job.generated = 1
        self._telemetry.prefilled(way, job.first - job.arrived)

    async def _decode(self, job: Job, hashes: list[bytes], holding: _Holding) -> AsyncIterator[str]:
        everything = [*job.prompt, tokens.number(job.text[0])]
        size = self._options.block_size
        for piece in job.text[1:]:
            await asyncio.sleep(self._timing.decode_s)
            now = time.monotonic()
            self._telemetry.decoded(now - job.last)
            job.last, job.generated = now, job.generated + 1
            # This step computed the KV of the previous token; a block may be full now.
            if len(everything) % size == 0:
                hashes[:] = tokens.chain_hashes(everything, size, job.salt)
                if self._kv is not None:
                    self._kv.know(everything, hashes, len(hashes) - 1, job.salt)
                self._fill(holding, hashes[-1])
                self._store(hashes[-1:])
                if self._kv is not None:
                    self._kv.flush()
            everything.append(tokens.number(piece))
            yield piece

    def _fill(self, holding: _Holding, block: bytes) -> None:
        if holding.blank and self._device.fill(block, _FIRST):
            holding.filled.append(block)
            holding.blank -= 1

    def _store(self, blocks: Sequence[bytes]) -> None:
        offload = self._telemetry.offload
        if offload is None or not blocks:
            return
        for block in blocks:
            self._l1.touch((block,))
            self._l1.store(block, _FIRST, self._l1_journal)
        offload.counters["vllm:kv_offload_store_bytes_total"].add(len(blocks) * self._block_bytes)
        offload.histograms["vllm:kv_offload_store_size"].observe(len(blocks) * self._block_bytes)
        if self._l2 is not None:
            self._l2.store(blocks)
            offload.tiers["l2", "vllm:kv_offload_tiering_write_bytes_total"].add(
                len(blocks) * self._block_bytes
            )

    def _end(self, job: Job, holding: _Holding) -> None:
        self._device.free(holding.filled, holding.blank)
        self._freed.set()
        self._telemetry.gauges["vllm:kv_cache_usage_perc"].set(self._device.usage)
        if job.scheduled:
            self._telemetry.gauges["vllm:num_requests_running"].add(-1)
        now = time.monotonic()
        histograms = self._telemetry.histograms
        self._telemetry.labelled["vllm:request_success_total", job.finish].add()
        histograms["vllm:e2e_request_latency_seconds"].observe(now - job.arrived)
        histograms["vllm:request_queue_time_seconds"].observe((job.scheduled or now) - job.arrived)
        histograms["vllm:request_prompt_tokens"].observe(len(job.prompt))
        histograms["vllm:request_generation_tokens"].observe(job.generated)
        histograms["vllm:request_max_num_generation_tokens"].observe(job.generated)
        histograms["vllm:request_params_n"].observe(1)
        histograms["vllm:request_params_max_tokens"].observe(job.max_tokens)
        histograms["vllm:request_num_preemptions"].observe(0)
        if job.first:
            histograms["vllm:request_prefill_time_seconds"].observe(job.first - job.scheduled)
            histograms["vllm:request_decode_time_seconds"].observe(job.last - job.first)
            histograms["vllm:request_inference_time_seconds"].observe(job.last - job.scheduled)
            histograms["vllm:request_prefill_kv_computed_tokens"].observe(job.way.computed)
        if job.generated > 1:
            histograms["vllm:request_time_per_output_token_seconds"].observe(
                (job.last - job.first) / (job.generated - 1)
            )

    # ---- arithmetic

    def _most_hits(self, job: Job) -> int:
        """Return the maximum number of hits: the last prompt token is always computed."""
        return (len(job.prompt) - 1) // self._options.block_size

    def _blocks_of(self, job: Job) -> int:
        size = self._options.block_size
        return -(-(len(job.prompt) + len(job.text)) // size)

    def _waiting(self, reason: str) -> _Counted:
        return _Counted(
            self._telemetry.gauges["vllm:num_requests_waiting"], self._telemetry.waiting[reason]
        )


class _KvJournal:
    """Passes changes of one tier to the KV events, which know each block's predecessor."""

    def __init__(self, medium: str, kv: KvLog | None) -> None:
        self._medium = medium
        self._kv = kv

    def append(self, change: tuple[bytes, bytes | None], /) -> None:
        block, stored_after = change
        if self._kv is not None:
            (self._kv.removed if stored_after is None else self._kv.stored)(block, self._medium)


class _Counted:
    def __init__(self, *gauges: Number) -> None:
        self._gauges = gauges

    def __enter__(self) -> Self:
        for gauge in self._gauges:
            gauge.add()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for gauge in self._gauges:
            gauge.add(-1)
        self._gauges = ()
