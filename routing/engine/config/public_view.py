"""Config as plain data for `/config` and `--check`, without secrets.

Keys are shown by id, files by path.
"""

from __future__ import annotations

from typing import Any

import msgspec

from routing.engine.config.schema import CanaryConfig, Config, Key, Parameters, StateStoreConfig

# Besides bodies: pipelined requests, write buffers on both sides, TLS.
CLIENT_BUFFER_BYTES = 1024 * 1024
_WORKER_FIELDS = (
    "id",
    "url",
    "draining",
    "max_in_flight",
    "cache_tokens",
    "kv_events",
    "kv_replay",
)


def _show_listen(config: Config) -> str | list[str]:
    addresses = [str(address) for address in (config.listen, *config.listen_more)]
    return addresses if config.listen_more else addresses[0]


def _show(part: Any) -> Any:
    """Return a section as plain data; its files by path, without their digest."""
    values = msgspec.to_builtins(part, enc_hook=str)
    if isinstance(values, dict):
        values.pop("digest", None)
    return values


def show_key(key: Key) -> dict[str, Any]:
    """Return a key's public fields; `fingerprint` distinguishes keys with the same id and grants no
    access.
    """
    return {
        "id": key.id,
        "fingerprint": key.sha256[:8],
        "pin": key.pin,
        "admin": key.admin,
        "expires": key.expires,
        "spent_until": key.spent_until,
        "budget_tokens": key.budget_tokens,
        "group": key.group,
        "models": None if key.models is None else sorted(key.models),
        "limits": _show(key.limits),
    }


def show_config(config: Config) -> dict[str, Any]:
    return {
        "listen": _show_listen(config),
        "admin": "" if config.admin is None else str(config.admin),
        **{name: _show(getattr(config, name)) for name in Parameters.__struct_fields__},
        "session_key": f"{config.session_key.source}:{config.session_key.name}",
        "keys": None if config.keys is None else [show_key(key) for key in config.keys],
        "kv": _show(config.kv),
        "open_paths": list(config.open_paths),
        "admission": _show(config.admission),
        "workers": [
            {name: getattr(worker, name) for name in _WORKER_FIELDS} for worker in config.workers
        ],
        "discovery": {
            "dns": [str(name) for name in config.discovery.dns],
            "dns_interval_s": config.discovery.dns_interval_s,
            "endpointslices": [str(service) for service in config.discovery.services],
            "kubernetes": _show(config.discovery.kubernetes),
        },
        "tls": _show(config.tls),
        "worker_tls": _show(config.worker_tls),
        "decisions": {
            "keep": config.decisions_keep,
            "preview_chars": config.preview_chars,
            **(_show(config.journal) or {}),
        },
        "access_log": _show(config.access_log),
        "tracing": _show(config.tracing),
        "state_store": _show_store(config.state_store),
        "canary": _show_canary(config.canary),
    }


def _show_canary(canary: CanaryConfig | None) -> dict[str, Any] | None:
    if canary is None:
        return None
    key = canary.session_key
    document: dict[str, Any] = _show(canary)
    return document | {"session_key": f"{key.source}:{key.name}" if key else ""}


def _show_store(store: StateStoreConfig | None) -> dict[str, Any] | None:
    return None if store is None else {"url": str(store), "routers": store.routers}


def memory_bounds(config: Config, workers: int) -> dict[str, Any]:
    """Return the worst-case memory bounds in bytes; everything not listed is constant."""
    limits = config.limits
    # Held for retries, plus read-ahead and write buffers.
    client = limits.header_bytes + limits.hold_bytes + CLIENT_BUFFER_BYTES
    return {
        "clients": limits.clients,
        "bytes_for_each_client": client,
        "body_bytes": limits.body_bytes,
        "request_buffer_bytes": limits.buffer_bytes,
        "decisions": config.decisions_keep,
        "workers": workers,
        "prefix_blocks_for_each_worker": config.prefix_memory_blocks,
    }
