"""Metrics of a simulated worker under vLLM's names.

Each method is called where vLLM counts the same (cached tokens at admission, requests at their
end), so that sums agree.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass

from cachetier.client.outcomes import KeyOutcome
from console.processkit.metrics import Number, Registry
from endpoints.simulated_worker import metric_families as f
from endpoints.simulated_worker.l2 import L2
from endpoints.simulated_worker.options import Options

_OUTCOMES = {"load": tuple(KeyOutcome), "store": tuple(KeyOutcome)}


@dataclass(frozen=True, slots=True)
class QueueAdmission:
    prompt: int
    device: int
    host: int
    disk: int

    @property
    def cached(self) -> int:
        return self.device + self.host + self.disk

    @property
    def computed(self) -> int:
        return self.prompt - self.cached


NO_ADMISSION = QueueAdmission(0, 0, 0, 0)


class Telemetry:
    def __init__(self, options: Options) -> None:
        self.registry = registry = Registry()
        self._options = options
        self._labels = labels = {"engine": "0", "model_name": options.models[0]}
        tokens = f.one_two_five(options.max_model_len)
        self.gauges = {
            name: registry.gauge(name, text, **labels) for name, text in f.GAUGES.items()
        }
        self.waiting = {
            reason: registry.gauge(*f.WAITING_BY_REASON, **labels, reason=reason)
            for reason in ("capacity", "deferred")
        }
        self.counters = {
            name: registry.counter(name, text, **labels) for name, text in f.COUNTERS.items()
        }
        self.labelled = {
            (name, value): registry.counter(name, text, **labels, **{label: value})
            for name, (text, label, values) in f.LABELLED_COUNTERS.items()
            for value in values
        }
        self.histograms = {
            name: registry.histogram(name, text, bounds or tokens, **labels)
            for name, (text, bounds) in f.HISTOGRAMS.items()
        }
        self._facts()
        self.offload: Offload | None = None
        if options.l1_bytes or options.l2:
            self.offload = Offload(registry, labels, has_l2=options.l2 is not None)

    # ---- request

    def admitted(self, way: QueueAdmission) -> None:
        count, by = self.counters, self.labelled
        count["vllm:prefix_cache_queries_total"].add(way.prompt)
        count["vllm:prefix_cache_hits_total"].add(way.device)
        if self.offload is not None:
            count["vllm:external_prefix_cache_queries_total"].add(way.prompt - way.device)
            count["vllm:external_prefix_cache_hits_total"].add(way.host + way.disk)
        for source, tokens in (("device", way.device), ("host", way.host), ("disk", way.disk)):
            by["vllm:prompt_tokens_cached_by_source_total", source].add(tokens)

    def prefilled(self, way: QueueAdmission, ttft_s: float) -> None:
        count, by = self.counters, self.labelled
        count["vllm:prompt_tokens_total"].add(way.prompt)
        count["vllm:prompt_tokens_cached_total"].add(way.cached)
        by["vllm:prompt_tokens_by_source_total", "local_compute"].add(way.computed)
        by["vllm:prompt_tokens_by_source_total", "local_cache_hit"].add(way.device)
        by["vllm:prompt_tokens_by_source_total", "external_kv_transfer"].add(way.host + way.disk)
        self.histograms["vllm:iteration_tokens_total"].observe(way.computed)
        self.histograms["vllm:time_to_first_token_seconds"].observe(ttft_s)
        count["vllm:generation_tokens_total"].add()

    def decoded(self, gap_s: float) -> None:
        self.counters["vllm:generation_tokens_total"].add()
        self.histograms["vllm:inter_token_latency_seconds"].observe(gap_s)
        self.histograms["vllm:iteration_tokens_total"].observe(1)

    def http(self, handler: str, method: str, status: int) -> None:
        self.registry.counter(
            "http_requests_total",
            "Total number of requests by method, status and handler.",
            handler=handler,
            method=method,
            status=f"{status // 100}xx",
        ).add()

    def render(self, l2: L2 | None) -> str:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._cpu.set(usage.ru_utime + usage.ru_stime)
        self._memory.set(_resident_bytes())
        if self.offload is not None and l2 is not None:
            self.offload.read(l2)
        return self.registry.render()

    # ---- constant values

    def _facts(self) -> None:
        options, registry, labels = self._options, self.registry, self._labels
        for state, value in (("awake", 1), ("weights_offloaded", 0), ("discard_all", 0)):
            registry.gauge(*f.SLEEP, **labels, sleep_state=state).set(value)
        for reason in f.REJECTIONS[2]:
            registry.counter(*f.REJECTIONS[:2], model_name=options.models[0], reason=reason)
        registry.gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            block_size=str(options.block_size),
            enable_prefix_caching="True",
            engine="0",
            kv_cache_size_tokens=str(options.device_blocks * options.block_size),
            num_gpu_blocks=str(options.device_blocks),
            prefix_caching_hash_algo="sha256",
        ).set(1)
        registry.gauge(
            "emberline_simulated_worker",
            "1: simulated worker without a model; latency and text are generated.",
        ).set(1)
        self._cpu: Number = registry.counter(
            "process_cpu_seconds_total", "Total user and system CPU time spent in seconds."
        )
        self._memory: Number = registry.gauge(
            "process_resident_memory_bytes", "Resident memory size in bytes."
        )
        registry.gauge(
            "process_start_time_seconds", "Start time of the process since unix epoch in seconds."
        ).set(time.time())


class Offload:
    def __init__(self, registry: Registry, labels: dict[str, str], has_l2: bool) -> None:
        for stage in ("waiting_to_start", "in_progress", "completed_waiting"):
            gauge = registry.gauge(*f.KV_FETCH, **labels, stage=stage)
            if stage == "in_progress":
                self.in_progress = gauge
        self.counters = {
            name: registry.counter(name, text, **labels)
            for name, text in f.OFFLOAD_COUNTERS.items()
        }
        self.histograms = {
            name: registry.histogram(name, text, bounds, **labels)
            for name, (text, bounds) in f.OFFLOAD_HISTOGRAMS.items()
        }
        tiers = {"l1": f.PRIMARY} | ({"l2": f.SECONDARY} if has_l2 else {})
        self.tiers = {
            (tier, name): registry.counter(name, text, **labels, tier=label)
            for tier, label in tiers.items()
            for name, text in f.TIER_COUNTERS.items()
        }
        if not has_l2:
            return
        for name, text in f.SECONDARY_COUNTERS.items():
            self.tiers["l2", name] = registry.counter(name, text, **labels, tier=f.SECONDARY)
        self._l2 = {
            (operation, str(outcome)): registry.counter(
                *f.L2_OPERATIONS, **labels, op=operation, result=str(outcome)
            )
            for operation, outcomes in _OUTCOMES.items()
            for outcome in outcomes
        }
        self._breaker = registry.gauge(*f.L2_BREAKER, **labels)
        self._dropped = registry.counter(*f.L2_DROPPED, **labels)

    def looked_up(self, tier: str, queries: int, hits: int) -> None:
        self.tiers[tier, "vllm:kv_offload_tiering_chunk_queries_total"].add(queries)
        self.tiers[tier, "vllm:kv_offload_tiering_chunk_hits_total"].add(hits)

    def read(self, l2: L2) -> None:
        """Copy the counters of the client's threads."""
        for key, count in dict(l2.client.counters.by_outcome).items():
            if key in self._l2:
                self._l2[key].set(count)
        self._breaker.set(float(l2.client.is_open))
        self._dropped.set(l2.dropped)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as stream:  # noqa: PTH123 (once a scrape)
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
