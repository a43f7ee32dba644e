"""Parse keys, admission limits and open paths.

Error messages never repeat values that may be keys.
"""

from __future__ import annotations

import re
from typing import Any

from routing.engine.config.fields import LABEL, ConfigError, Fields
from routing.engine.config.schema import AdmissionConfig, Key, KeyLimits, QueueConfig, Rates

_MAX_LIMIT = 1_000_000_000
_PATH = re.compile(r"/[!-~]{0,255}|\*")
_MODEL = re.compile(r"[^\x00-\x1f\x7f]{1,256}")


def parse_keys(data: Any, name: str = "api_keys_file") -> tuple[Key, ...]:
    fields = Fields(data, name)
    items = fields.take("keys", None)
    fields.done()
    if not isinstance(items, list):
        raise ConfigError(f"{name}.keys", items, "must be a list", 'Write {"keys": []}.')
    keys: dict[str, Key] = {}
    limits: dict[str, KeyLimits] = {}
    for index, item in enumerate(items):
        entry = Fields(item, f"{name}.keys[{index}]")
        key = _parse_key(entry)
        if key.sha256 in keys:
            raise ConfigError(entry.name("id"), key.id, "repeats a key", "Remove one of them.")
        if limits.setdefault(key.id, key.limits) != key.limits:
            raise ConfigError(
                entry.name("limits"),
                key.id,
                "differ from those of another key with this id",
                "Use is counted by id: write the same limits, or give each key its own id.",
            )
        keys[key.sha256] = key
    return tuple(keys.values())


def _parse_key(entry: Fields) -> Key:
    key_id = entry.text("id", "", LABEL)
    digest = entry.text("sha256", "").lower()
    pin = entry.flag("pin", False)
    admin = entry.flag("admin", False)
    expires = entry.number("expires", 0.0, 0, 1e11)
    spent_until = entry.number("spent_until", 0.0, 0, 1e11)
    budget = entry.whole("budget_tokens", 0, 0, 10**15)
    group = entry.text("group", "", LABEL)
    models = _parse_models(entry)
    limits = _parse_key_limits(Fields(entry.take("limits", {}), entry.name("limits")))
    entry.done()
    if not key_id:
        raise ConfigError(entry.name("id"), key_id, "is missing", "Give each key an id.")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        # The value is omitted: it may be a clear-text key.
        raise ConfigError(
            entry.name("sha256"),
            "(hidden)",
            "must be 64 hex digits",
            "Write the SHA-256 of the key, never the key.",
        )
    return Key(key_id, digest, pin, admin, expires, models, limits, spent_until, budget, group)


def _parse_models(entry: Fields) -> frozenset[str] | None:
    models = entry.take("models", None)
    if models is None:
        return None
    good = isinstance(models, list) and all(
        isinstance(model, str) and _MODEL.fullmatch(model) for model in models
    )
    if not good:
        raise ConfigError(
            entry.name("models"),
            models,
            "must be a list of model names",
            "Leave it out to allow every model.",
        )
    return frozenset(models)


def _parse_key_limits(fields: Fields) -> KeyLimits:
    values = {name: fields.whole_or_none(name, 0, _MAX_LIMIT) for name in Rates.__slots__}
    limits = KeyLimits(**values, weight=fields.number("weight", 1.0, 0.01, 1000))
    fields.done()
    return limits


def _parse_rates(fields: Fields) -> Rates:
    return Rates(**{name: fields.whole(name, 0, 0, _MAX_LIMIT) for name in Rates.__slots__})


def parse_admission(data: Any) -> AdmissionConfig:
    fields = Fields(data, "admission")
    per_key = Fields(fields.take("per_key", {}), "admission.per_key")
    queue = Fields(fields.take("queue", {}), "admission.queue")
    base = QueueConfig()
    admission = AdmissionConfig(
        endpoint=_parse_rates(fields),
        per_key=_parse_rates(per_key),
        worker_max_in_flight=fields.whole("worker_max_in_flight", 0, 0, 1_000_000),
        queue=QueueConfig(
            depth=queue.whole("depth", base.depth, 0, 1_000_000),
            body_bytes=queue.whole("body_bytes", base.body_bytes, 1024, 2**40),
            timeout_s=queue.number("timeout_s", base.timeout_s, 0.5, 86_400),
        ),
    )
    for part in (per_key, queue, fields):
        part.done()
    return admission


def parse_open_paths(items: Any) -> tuple[str, ...]:
    good = isinstance(items, list) and all(
        isinstance(item, str) and _PATH.fullmatch(item) and "*" not in item[:-1] for item in items
    )
    if not good:
        raise ConfigError(
            "open_paths",
            items,
            "must be a list of paths",
            'For example ["/metrics", "/plugin/*"]; a * is allowed at the end only.',
        )
    return tuple(items)
