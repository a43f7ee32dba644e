"""Config as plain data for `/config` and `--check`, without secrets.

Keys are shown by id, files by path.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from routing.engine.config.schema import (
    Address,
    Config,
    Key,
    KubernetesConfig,
    KvConfig,
    TlsConfig,
    WorkerTlsConfig,
)

# Besides bodies: pipelined requests, write buffers on both sides, TLS.
CLIENT_BUFFER_BYTES = 1024 * 1024


def _show_listen(config: Config) -> str | list[str]:
    addresses = [str(address) for address in (config.listen, *config.listen_more)]
    return addresses if config.listen_more else addresses[0]


def _show_address(address: Address | None) -> str:
    return "" if address is None else str(address)


def _show_files(
    part: TlsConfig | WorkerTlsConfig | KubernetesConfig | None,
) -> dict[str, Any] | None:
    if part is None:
        return None
    values = dataclasses.asdict(part)
    values.pop("digest", None)
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}


def _show_kv(kv: KvConfig) -> dict[str, Any]:
    values = dataclasses.asdict(kv)
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}


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
        "limits": dataclasses.asdict(key.limits),
    }


def _show_decisions(config: Config) -> dict[str, Any]:
    shown: dict[str, Any] = {"keep": config.decisions_keep}
    if config.journal is not None:
        shown["file"] = str(config.journal.file)
        shown["sample"] = config.journal.sample
        shown["max_bytes"] = config.journal.max_bytes
    return shown


def show_config(config: Config) -> dict[str, Any]:
    return {
        "listen": _show_listen(config),
        "admin": _show_address(config.admin),
        "endpoint": config.endpoint,
        "namespace": config.namespace,
        "strategy": config.strategy,
        "session_key": f"{config.session_key.source}:{config.session_key.name}",
        "model": config.model,
        "prefix_block_bytes": config.prefix_block_bytes,
        "prefix_memory_blocks": config.prefix_memory_blocks,
        "cache_isolation": config.cache_isolation,
        "keys": None if config.keys is None else [show_key(key) for key in config.keys],
        "kv": _show_kv(config.kv),
        "open_paths": list(config.open_paths),
        "admission": dataclasses.asdict(config.admission),
        "workers": [
            {
                "id": worker.id,
                "url": worker.url,
                "draining": worker.draining,
                "max_in_flight": worker.max_in_flight,
                "cache_tokens": worker.cache_tokens,
                "kv_events": worker.kv_events,
                "kv_replay": worker.kv_replay,
            }
            for worker in config.workers
        ],
        "discovery": {
            "dns": [str(name) for name in config.discovery.dns],
            "dns_interval_s": config.discovery.dns_interval_s,
            "endpointslices": [str(service) for service in config.discovery.services],
            "kubernetes": _show_files(config.discovery.kubernetes),
        },
        "tls": _show_files(config.tls),
        "worker_tls": _show_files(config.worker_tls),
        "health": dataclasses.asdict(config.health),
        "limits": dataclasses.asdict(config.limits),
        "decisions": _show_decisions(config),
        "retry": {"attempts": config.retry_attempts},
        "access_log": dataclasses.asdict(config.access_log),
        "tracing": None if config.tracing is None else dataclasses.asdict(config.tracing),
    }


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
