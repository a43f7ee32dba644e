"""Record LMCache's metrics, in process and as a server, from its own code without running it.

Needs its wheel and that of opentelemetry-exporter-prometheus unpacked in FOLDER, and a Python with
torch and OpenTelemetry (that of `make vllm` has both). In tests/dashboards/boards/panels/recorded:

    PYTHONPATH=FOLDER:ROOT ROOT/.venv-vllm/bin/python record_lmcache.py in-process
    PYTHONPATH=FOLDER:ROOT ROOT/.venv-vllm/bin/python record_lmcache.py server

Names, types, labels and bounds are LMCache's own; the values are ours. The server's gauges depend
on a running cache and are registered here by the names and labels of its source.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import sys
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from opentelemetry.metrics import Counter, Histogram, UpDownCounter
from prometheus_client import REGISTRY, generate_latest

from tests.dashboards.boards.panels.recorded.replay import keep

# Of 1000 tokens asked for, what a name's beginning says was found; else 20 of anything.
_TOKENS = {
    "_requested_tokens": 1000,
    "_hit_tokens": 700,
    "_l1_hit_tokens": 400,
    "_l2_hit_tokens": 300,
}
_STATS = {
    "interval_requested_tokens": 1000,
    "interval_lookup_tokens": 1000,
    "interval_prompt_tokens": 1200,
    "interval_hit_tokens": 600,
    "interval_lookup_hits": 600,
    "interval_vllm_hit_tokens": 200,
    "interval_stored_tokens": 400,
}
_GAUGES = {
    "l1_memory_usage_bytes": [(6 << 30, {})],
    "l1_usage_ratio": [(0.6, {})],
    "l1_staging_bytes": [(1 << 20, {})],
    "l2_usage_bytes": [(40 << 30, {"l2_name": "fs"})],
    "num_inflight_l2_loads": [(2, {"l2_name": "fs"})],
    "num_inflight_l2_stores": [(1, {"l2_name": "fs"})],
}


def in_process() -> None:
    from lmcache import observability

    served = SimpleNamespace(model_name="m", worker_id=0, role="worker", served_model_name="m")
    logger = observability.PrometheusLogger(served)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(observability.LMCacheStats):
        wanted = str(field.type)
        if "List" in wanted or "list" in wanted:
            values[field.name] = [0.2, 0.5, 0.7]
        else:
            values[field.name] = _STATS.get(field.name, 20 if "interval" in field.name else 0.5)
    logger.log_prometheus(observability.LMCacheStats(**values))
    how = f"made by the metric classes of LMCache {version('lmcache')}, in-process"
    keep("lmcache-0.5.6", how, generate_latest(REGISTRY).decode())


def server() -> None:
    from lmcache.v1.mp_observability import otel_init
    from lmcache.v1.mp_observability.event_bus import EventSubscriber
    from lmcache.v1.mp_observability.subscribers import metrics

    otel_init.init_otel_metrics(start_http_server=False)
    for module in pkgutil.iter_modules(metrics.__path__):
        found = importlib.import_module(f"{metrics.__name__}.{module.name}")
        for kind in vars(found).values():
            if (
                isinstance(kind, type)
                and issubclass(kind, EventSubscriber)
                and has_handler(kind, found)
            ):
                feed_events(kind())
    for name, observed in _GAUGES.items():
        otel_init.register_gauge("lmcache.l1", f"lmcache_mp.{name}", name, lambda o=observed: o)
    how = f"made by the metric classes of LMCache {version('lmcache')}, as a server (OpenTelemetry)"
    keep("lmcache-0.5.6-server", how, generate_latest(REGISTRY).decode())


def has_handler(kind: type, module: Any) -> bool:
    apart = ("Blend", "EventBus")  # another product, and what watches itself
    return kind.__module__ == module.__name__ and not kind.__name__.startswith(apart)


def feed_events(subscriber: Any) -> None:
    for name, instrument in vars(subscriber).items():
        labels = {"model_name": "m", "cache_salt": ""}
        if (
            name.startswith(("_store", "_load", "_prefetch"))
            and "l2" in type(subscriber).__module__
        ):
            labels = {"l2_name": "fs"}
        if isinstance(instrument, Counter | UpDownCounter):
            instrument.add(_TOKENS.get(name, 20), attributes=labels)
        elif isinstance(instrument, Histogram):
            for value in (0.02, 0.4, 2.5):
                instrument.record(value, attributes=labels)


if __name__ == "__main__":
    {"in-process": in_process, "server": server}[sys.argv[1]]()
