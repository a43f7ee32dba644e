"""Parse and validate a whole configuration into a Config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from routing.engine.config.access import parse_admission, parse_keys, parse_open_paths
from routing.engine.config.discovery import parse_discovery
from routing.engine.config.fields import LABEL, ConfigError, Fields, read_file, section
from routing.engine.config.schema import Address, Config, Key
from routing.engine.config.sections import parse_health, parse_kv, parse_limits, parse_workers
from routing.engine.config.syntax import (
    parse_address,
    parse_isolation,
    parse_session_key,
    parse_strategy,
)
from routing.engine.config.telemetry import parse_access_log, parse_decisions, parse_tracing
from routing.engine.config.tls import parse_tls, parse_worker_tls


def _read_files(fields: Fields, base_dir: Path) -> dict[str, Any]:
    """Read the referenced files now, so that an invalid one is rejected at load time."""
    keys: tuple[Key, ...] | None = None
    hash_key = b""
    files: list[Path] = []
    keys_file = fields.text("api_keys_file", "")
    if keys_file:
        path, content = read_file("api_keys_file", keys_file, base_dir)
        files.append(path)
        try:
            data = json.loads(content)
        except ValueError:
            raise ConfigError(
                "api_keys_file", keys_file, "is not JSON", 'Write {"keys": [...]} there.'
            ) from None
        keys = parse_keys(data)
    hash_key_file = fields.text("hash_key_file", "")
    if hash_key_file:
        path, hash_key = read_file("hash_key_file", hash_key_file, base_dir)
        files.append(path)
        hash_key = hash_key.strip()
        if len(hash_key) < 16:
            raise ConfigError(
                "hash_key_file",
                hash_key_file,
                "holds less than 16 bytes",
                "Fill it with 32 random bytes.",
            )
    return {"keys": keys, "hash_key": hash_key, "files": tuple(files)}


def _parse_listen(value: Any) -> dict[str, Any]:
    """Parse one listen address or a list; each is of one IP family, or a name with all its
    addresses.
    """
    values = value if isinstance(value, list) and value else [value]
    addresses: list[Address] = []
    for index, item in enumerate(values):
        name = f"listen[{index}]" if len(values) > 1 else "listen"
        if not isinstance(item, str):
            raise ConfigError(name, item, "must be text", "For example 127.0.0.1:9000.")
        address = parse_address(name, item)
        if address in addresses and address.port:
            raise ConfigError(name, item, "is listed twice", "Remove one of them.")
        addresses.append(address)
    return {"listen": addresses[0], "listen_more": tuple(addresses[1:])}


def parse(data: Mapping[str, Any], base_dir: Path) -> Config:
    """Validate everything and build the Config; file paths are relative to `base_dir`."""
    fields = Fields(data)
    base = Config(listen=Address("", 0))
    admin = fields.text("admin", "")
    retry = section(fields, "retry")
    tls = parse_tls(section(fields, "tls"), base_dir)
    worker_tls = parse_worker_tls(section(fields, "worker_tls"), base_dir)
    named = _read_files(fields, base_dir)
    keep, journal = parse_decisions(fields.take("decisions", {}), base_dir, base.decisions_keep)
    for certificates in (tls, worker_tls):
        if certificates is not None:
            named["files"] += certificates.files
    config = Config(
        **_parse_listen(fields.take("listen", "")),
        admin=parse_address("admin", admin) if admin else None,
        endpoint=fields.text("endpoint", base.endpoint, LABEL),
        namespace=fields.text("namespace", base.namespace, LABEL),
        strategy=parse_strategy(fields.text("strategy", base.strategy)),
        cache_isolation=parse_isolation(fields.text("cache_isolation", base.cache_isolation)),
        session_key=parse_session_key(fields.text("session_key", "header:x-session-id")),
        model=fields.text("model", ""),
        prefix_block_bytes=fields.whole("prefix_block_bytes", base.prefix_block_bytes, 16, 65_536),
        prefix_memory_blocks=fields.whole(
            "prefix_memory_blocks", base.prefix_memory_blocks, 1, 100_000_000
        ),
        workers=parse_workers(fields.take("workers", [])),
        health=parse_health(fields.take("health", {})),
        limits=parse_limits(fields.take("limits", {})),
        admission=parse_admission(fields.take("admission", {})),
        kv=parse_kv(fields.take("kv", {}), base_dir),
        open_paths=parse_open_paths(fields.take("open_paths", [])),
        decisions_keep=keep,
        retry_attempts=retry.whole("attempts", base.retry_attempts, 1, 10),
        access_log=parse_access_log(fields.take("access_log", {})),
        journal=journal,
        tracing=parse_tracing(fields.take("tracing", {})),
        tls=tls,
        worker_tls=worker_tls,
        discovery=parse_discovery(fields.take("discovery", {}), base_dir),
        **named,
    )
    for part in (retry, fields):
        part.done()
    return config
