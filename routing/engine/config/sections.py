"""The parts of a configuration which are objects or lists: keys, workers, health, limits.

Promises that each part is checked whole before it is built. Must not know the others.
"""

from __future__ import annotations

import re
from typing import Any

from routing.engine.config.fields import LABEL, ConfigError, Fields
from routing.engine.config.shapes import HealthConfig, Key, LimitsConfig, WorkerConfig
from routing.engine.config.words import parse_worker_url

_WORKER_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:\[\]-]{0,126}[A-Za-z0-9\]])?")


def parse_keys(data: Any, name: str = "api_keys_file") -> tuple[Key, ...]:
    fields = Fields(data, name)
    items = fields.take("keys", None)
    fields.done()
    if not isinstance(items, list):
        raise ConfigError(f"{name}.keys", items, "must be a list", 'Write {"keys": []}.')
    keys: dict[str, Key] = {}
    for index, item in enumerate(items):
        entry = Fields(item, f"{name}.keys[{index}]")
        key_id = entry.text("id", "", LABEL)
        digest = entry.text("sha256", "").lower()
        pin = entry.flag("pin", False)
        entry.done()
        if not key_id:
            raise ConfigError(entry.name("id"), key_id, "is missing", "Give each key an id.")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            # The value is not repeated: somebody may have put the key itself here.
            raise ConfigError(
                entry.name("sha256"),
                "(hidden)",
                "must be 64 hex digits",
                "Write the SHA-256 of the key, never the key.",
            )
        if digest in keys:
            raise ConfigError(entry.name("id"), key_id, "repeats a key", "Remove one of them.")
        keys[digest] = Key(key_id, digest, pin)
    return tuple(keys.values())


def parse_workers(items: Any) -> tuple[WorkerConfig, ...]:
    if not isinstance(items, list):
        raise ConfigError("workers", items, "must be a list", "Write [] for none.")
    workers: dict[str, WorkerConfig] = {}
    for index, item in enumerate(items):
        entry = Fields(item, f"workers[{index}]")
        url = entry.text("url", "")
        address = parse_worker_url(entry.name("url"), url)
        worker_id = entry.text("id", str(address), _WORKER_ID)
        draining = entry.flag("draining", False)
        entry.done()
        if worker_id in workers:
            raise ConfigError(
                entry.name("id"), worker_id, "is taken by another worker", "Use unique ids."
            )
        workers[worker_id] = WorkerConfig(worker_id, url, address, draining)
    return tuple(workers.values())


def parse_health(data: Any) -> HealthConfig:
    fields = Fields(data, "health")
    base = HealthConfig()
    health = HealthConfig(
        path=fields.text("path", base.path, re.compile(r"/[!-~]*")),
        interval_s=fields.number("interval_s", base.interval_s, 0.05, 3600),
        timeout_s=fields.number("timeout_s", base.timeout_s, 0.05, 600),
        fall=fields.whole("fall", base.fall, 1, 100),
    )
    fields.done()
    return health


def parse_limits(data: Any) -> LimitsConfig:
    fields = Fields(data, "limits")
    base = LimitsConfig()
    values: dict[str, Any] = {}
    for name in LimitsConfig.__slots__:
        default = getattr(base, name)
        if name.endswith("_bytes"):
            values[name] = fields.whole(name, default, 0 if name == "hold_bytes" else 1024, 2**40)
        else:
            values[name] = fields.number(name, default, 0.05, 86_400)
    fields.done()
    return LimitsConfig(**values)
