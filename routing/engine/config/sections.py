"""Parse the object and list sections: workers, health, limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from routing.engine.config.fields import ConfigError, Fields
from routing.engine.config.schema import HealthConfig, KvConfig, LimitsConfig, WorkerConfig
from routing.engine.config.syntax import parse_worker_url

_ZMQ_ENDPOINT = re.compile(r"tcp://[^\s*]+:\d{1,5}|ipc://[^\s*]+")
_WORKER_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:\[\]-]{0,126}[A-Za-z0-9\]])?")


def parse_workers(items: Any) -> tuple[WorkerConfig, ...]:
    if not isinstance(items, list):
        raise ConfigError("workers", items, "must be a list", "Write [] for none.")
    workers: dict[str, WorkerConfig] = {}
    for index, item in enumerate(items):
        entry = Fields(item, f"workers[{index}]")
        url = entry.text("url", "")
        address, tls = parse_worker_url(entry.name("url"), url)
        worker_id = entry.text("id", str(address), _WORKER_ID)
        draining = entry.flag("draining", False)
        most = entry.whole("max_in_flight", 0, 0, 1_000_000)
        tokens = entry.whole("cache_tokens", 0, 0, 10**12)
        events = _parse_zmq_endpoint(entry, "kv_events")
        replay = _parse_zmq_endpoint(entry, "kv_replay")
        entry.done()
        if worker_id in workers:
            raise ConfigError(
                entry.name("id"), worker_id, "is taken by another worker", "Use unique ids."
            )
        workers[worker_id] = WorkerConfig(
            worker_id,
            url,
            address,
            draining,
            most,
            tls_name=address.host if tls else "",
            cache_tokens=tokens,
            kv_events=events,
            kv_replay=replay,
        )
    return tuple(workers.values())


def _parse_zmq_endpoint(fields: Fields, key: str) -> str:
    value = fields.text(key, "")
    if value and not _ZMQ_ENDPOINT.fullmatch(value):
        raise ConfigError(
            fields.name(key),
            value,
            "is not a ZeroMQ endpoint to connect to",
            "For example tcp://127.0.0.1:5557 or ipc:///run/kv-events.sock.",
        )
    return value


def parse_kv(data: Any, base_dir: Path) -> KvConfig:
    fields = Fields(data, "kv")
    base = KvConfig()
    config = KvConfig(
        tokenizer=_parse_existing_path(fields, "tokenizer", base_dir),
        chat_template=_parse_existing_path(fields, "chat_template", base_dir),
        wait_s=fields.number("wait_s", base.wait_s, 0, 60),
        threads=fields.whole("threads", base.threads, 1, 64),
        cache_bytes=fields.whole("cache_bytes", base.cache_bytes, 1024 * 1024, 2**40),
        probe_interval_s=fields.number("probe_interval_s", base.probe_interval_s, 0, 86_400),
        relearn=fields.flag("relearn", base.relearn),
    )
    fields.done()
    return config


def _parse_existing_path(fields: Fields, key: str, base_dir: Path) -> Path | None:
    value = fields.text(key, "")
    if not value:
        return None
    path = base_dir / value
    if not path.exists():
        raise ConfigError(fields.name(key), value, "does not exist", f"Put it at {path}.")
    return path


def parse_health(data: Any) -> HealthConfig:
    fields = Fields(data, "health")
    base = HealthConfig()
    health = HealthConfig(
        path=fields.text("path", base.path, re.compile(r"/[!-~]*")),
        interval_s=fields.number("interval_s", base.interval_s, 0.05, 3600),
        timeout_s=fields.number("timeout_s", base.timeout_s, 0.05, 600),
        fall=fields.whole("fall", base.fall, 1, 100),
        eject_after=fields.whole("eject_after", base.eject_after, 1, 1000),
        eject_s=fields.number("eject_s", base.eject_s, 0.01, 3600),
        eject_longest_s=fields.number("eject_longest_s", base.eject_longest_s, 0.01, 86_400),
        slow_start_s=fields.number("slow_start_s", base.slow_start_s, 0, 3600),
    )
    fields.done()
    return health


def parse_limits(data: Any) -> LimitsConfig:
    fields = Fields(data, "limits")
    base = LimitsConfig()
    values: dict[str, Any] = {}
    for name in LimitsConfig.__slots__:
        default = getattr(base, name)
        if name in ("clients", "messages", "parts", "json_values"):
            values[name] = fields.whole(name, default, 1, 1_000_000)
        elif name.endswith("_bytes"):
            values[name] = fields.whole(name, default, 0 if name == "hold_bytes" else 1024, 2**40)
        else:
            low = 0 if name == "shutdown_delay_s" else 0.05
            values[name] = fields.number(name, default, low, 86_400)
    fields.done()
    limits = LimitsConfig(**values)
    if limits.hold_bytes > limits.buffer_bytes // 2:
        raise ConfigError(
            "limits.buffer_bytes",
            limits.buffer_bytes,
            f"holds less than two bodies of limits.hold_bytes ({limits.hold_bytes})",
            f"Set it to {2 * limits.hold_bytes} or more.",
        )
    return limits
