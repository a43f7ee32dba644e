"""Parse and validate a whole configuration into a Config."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from routing.engine.config import syntax
from routing.engine.config.canary import CanaryFields, parse_canary
from routing.engine.config.keys import parse_keys
from routing.engine.config.schema import (
    AccessLogConfig,
    Address,
    AdmissionConfig,
    CanaryConfig,
    Config,
    CountOrZero,
    DiscoveryConfig,
    JournalConfig,
    Key,
    KubernetesConfig,
    KvConfig,
    KvParameters,
    LimitsConfig,
    Parameters,
    QueueConfig,
    Rates,
    Share,
    TracingConfig,
    WorkerConfig,
)
from routing.engine.config.state_store import StateStoreFields, parse_state_store
from routing.engine.config.tls import TlsFiles, WorkerTlsFiles, parse_tls, parse_worker_tls
from routing.engine.config.validation import (
    ConfigError,
    Section,
    between,
    convert,
    matching,
    read_file,
)

T = TypeVar("T")
_TRACES_PATH = "/v1/traces"
_ZmqEndpoint = Annotated[
    str,
    matching(
        r"tcp://[^\s*]+:\d{1,5}|ipc://[^\s*]+|",
        "is not a ZeroMQ endpoint to connect to",
        "For example tcp://127.0.0.1:5557 or ipc:///run/kv-events.sock.",
    ),
]
_WorkerId = Annotated[str, matching(r"[A-Za-z0-9]([A-Za-z0-9._:\[\]-]{0,126}[A-Za-z0-9\]])?")]


class _Worker(Section, frozen=True):
    url: str = ""
    id: _WorkerId = ""
    draining: bool = False
    max_in_flight: CountOrZero = 0
    cache_tokens: Annotated[int, between(0, 10**12)] = 0
    kv_events: _ZmqEndpoint = ""
    kv_replay: _ZmqEndpoint = ""


class _Admission(Rates, frozen=True):
    per_key: Rates = Rates()
    worker_max_in_flight: CountOrZero = 0
    queue: QueueConfig = QueueConfig()


class _Decisions(Section, frozen=True):
    keep: Annotated[int, between(1, 1_000_000)] = 2000
    file: str = ""
    sample: Share = 1.0
    max_bytes: Annotated[int, between(65_536, 2**50)] = 256 * 1024 * 1024
    preview_chars: Annotated[int, between(0, 200)] = 0


class _Kubernetes(Section, frozen=True):
    server: Annotated[str, matching(r"https?://[^/?#@\s]+/?|")] = ""
    token_file: str = ""
    ca_file: str = ""


class _Discovery(Section, frozen=True):
    dns: list[str] = []
    dns_interval_s: Annotated[float, between(0.1, 3600)] = 5.0
    endpointslices: list[str] = []
    kubernetes: _Kubernetes = _Kubernetes()


class _Kv(KvParameters, frozen=True, kw_only=True):
    tokenizer: str = ""
    chat_template: str = ""


class _Document(Parameters, frozen=True, kw_only=True):
    listen: str | list[str] = ""
    admin: str = ""
    session_key: str = "header:x-session-id"
    api_keys_file: str = ""
    hash_key_file: str = ""
    workers: list[_Worker] = []
    admission: _Admission = _Admission()
    kv: _Kv = _Kv()
    open_paths: Any = []
    decisions: _Decisions = _Decisions()
    access_log: AccessLogConfig | str | bool = AccessLogConfig()
    tracing: TracingConfig = TracingConfig()
    tls: TlsFiles = TlsFiles()
    worker_tls: WorkerTlsFiles = WorkerTlsFiles()
    discovery: _Discovery = _Discovery()
    state_store: StateStoreFields = StateStoreFields()
    canary: CanaryFields | None = None


def parse(data: Mapping[str, Any], base_dir: Path) -> Config:
    """Validate everything and build the Config; file paths are relative to `base_dir`."""
    document: _Document = convert(data, _Document)
    _check_limits(document.limits)
    listen = _parse_listen(document.listen)
    tls = parse_tls(document.tls, base_dir)
    worker_tls = parse_worker_tls(document.worker_tls, base_dir)
    keys, hash_key, files = _read_files(document, base_dir)
    store, store_files = parse_state_store(document.state_store, hash_key, base_dir)
    unchanged = {name: getattr(document, name) for name in Parameters.__struct_fields__}
    unchanged["allowed_origins"] = tuple(origin.lower() for origin in document.allowed_origins)
    return Config(
        **unchanged,
        listen=listen[0],
        listen_more=listen[1:],
        admin=syntax.parse_address("admin", document.admin) if document.admin else None,
        session_key=syntax.parse_session_key(document.session_key),
        keys=keys,
        hash_key=hash_key,
        workers=_parse_workers(document.workers),
        admission=_parse_admission(document.admission),
        kv=_parse_kv(document.kv, base_dir),
        open_paths=syntax.parse_open_paths(document.open_paths),
        decisions_keep=document.decisions.keep,
        preview_chars=document.decisions.preview_chars,
        access_log=_parse_access_log(document.access_log),
        journal=_parse_journal(document.decisions, base_dir),
        tracing=_parse_tracing(document.tracing),
        tls=tls,
        worker_tls=worker_tls,
        discovery=_parse_discovery(document.discovery, base_dir),
        state_store=store,
        canary=_parse_canary(document),
        files=(*files, *store_files, *(tls.files if tls is not None else ()), *worker_tls.files),
    )


def _parse_canary(document: _Document) -> CanaryConfig | None:
    if document.canary is None:
        return None
    return parse_canary(document.canary, document.strategy, document.prefix_memory_blocks)


def _parse_listen(value: str | list[str]) -> tuple[Address, ...]:
    """Parse one listen address or a list; each is of one IP family, or a name with all its
    addresses.
    """
    values = value if isinstance(value, list) else [value]
    addresses: list[Address] = []
    for index, item in enumerate(values or [""]):
        name = f"listen[{index}]" if len(values) > 1 else "listen"
        address = syntax.parse_address(name, item)
        if address in addresses and address.port:
            raise ConfigError(name, item, "is listed twice", "Remove one of them.")
        addresses.append(address)
    return tuple(addresses)


def _read_files(
    document: _Document, base_dir: Path
) -> tuple[tuple[Key, ...] | None, bytes, list[Path]]:
    """Read keys and hash key now, so that an invalid file is rejected at load time."""
    keys: tuple[Key, ...] | None = None
    hash_key = b""
    files: list[Path] = []
    if document.api_keys_file:
        path, content = read_file("api_keys_file", document.api_keys_file, base_dir)
        files.append(path)
        try:
            data = json.loads(content)
        except ValueError:
            raise ConfigError(
                "api_keys_file",
                document.api_keys_file,
                "is not JSON",
                'Write {"keys": [...]} there.',
            ) from None
        keys = parse_keys(data)
    if document.hash_key_file:
        path, content = read_file("hash_key_file", document.hash_key_file, base_dir)
        files.append(path)
        hash_key = content.strip()
        if len(hash_key) < 16:
            raise ConfigError(
                "hash_key_file",
                document.hash_key_file,
                "contains less than 16 bytes",
                "Fill it with 32 random bytes.",
            )
    return keys, hash_key, files


def _parse_workers(items: list[_Worker]) -> tuple[WorkerConfig, ...]:
    workers: dict[str, WorkerConfig] = {}
    for index, item in enumerate(items):
        address, tls = syntax.parse_worker_url(f"workers[{index}].url", item.url)
        worker_id = item.id or str(address)
        if worker_id in workers:
            raise ConfigError(
                f"workers[{index}].id", worker_id, "is used by another worker", "Use unique ids."
            )
        workers[worker_id] = WorkerConfig(
            **{**msgspec.structs.asdict(item), "id": worker_id},
            address=address,
            tls_name=address.host if tls else "",
        )
    return tuple(workers.values())


def _check_limits(limits: LimitsConfig) -> None:
    if limits.hold_bytes > limits.buffer_bytes // 2:
        raise ConfigError(
            "limits.buffer_bytes",
            limits.buffer_bytes,
            f"holds less than two bodies of limits.hold_bytes ({limits.hold_bytes})",
            f"Set it to {2 * limits.hold_bytes} or more.",
        )


def _parse_kv(section: _Kv, base_dir: Path) -> KvConfig:
    values = msgspec.structs.asdict(section)
    for name in ("tokenizer", "chat_template"):
        values[name] = _parse_existing_path(f"kv.{name}", values[name], base_dir)
    return KvConfig(**values)


def _parse_existing_path(name: str, value: str, base_dir: Path) -> Path | None:
    if not value:
        return None
    path = base_dir / value
    if not path.exists():
        raise ConfigError(name, value, "does not exist", f"Put it at {path}.")
    return path


def _parse_admission(section: _Admission) -> AdmissionConfig:
    return AdmissionConfig(
        Rates(section.max_in_flight, section.requests_per_minute, section.tokens_per_minute),
        section.per_key,
        section.worker_max_in_flight,
        section.queue,
    )


def _parse_access_log(value: AccessLogConfig | str | bool) -> AccessLogConfig:
    """Parse `off`, `errors`, `sample=SHARE`, `all`, or return the object given."""
    if isinstance(value, AccessLogConfig):
        return value
    presets = {
        "off": AccessLogConfig(0.0, errors=False),
        False: AccessLogConfig(0.0, errors=False),  # YAML parses a bare off as False
        "errors": AccessLogConfig(0.0),
        "all": AccessLogConfig(1.0),
    }
    if value in presets:
        return presets[value]
    word, _, number = str(value).partition("=")
    try:
        share = float(number) if word == "sample" else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(
            "access_log",
            value,
            "is not a log mode",
            "Use off, errors, sample=0.01 (a share from 0 to 1) or all.",
        )
    return AccessLogConfig(share)


def _parse_journal(section: _Decisions, base_dir: Path) -> JournalConfig | None:
    if not section.file:
        return None
    file = base_dir / section.file
    if not file.parent.is_dir():
        raise ConfigError(
            "decisions.file", section.file, "has no folder", f"Create the folder {file.parent}."
        )
    return JournalConfig(file, section.sample, section.max_bytes)


def _parse_tracing(tracing: TracingConfig) -> TracingConfig | None:
    endpoint = tracing.endpoint
    if not endpoint:
        return None
    if "@" in endpoint:  # credentials must not appear in error messages
        raise ConfigError(
            "tracing.endpoint",
            "(hidden)",
            "contains a user name or password",
            "Set OTEL_EXPORTER_OTLP_HEADERS in the router's environment.",
        )
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "tracing.endpoint", endpoint, "is not a URL", "For example http://127.0.0.1:4318."
        )
    if parts.path in ("", "/"):
        endpoint = endpoint.rstrip("/") + _TRACES_PATH
    return msgspec.structs.replace(tracing, endpoint=endpoint)


def _parse_discovery(section: _Discovery, base_dir: Path) -> DiscoveryConfig:
    api = section.kubernetes
    return DiscoveryConfig(
        dns=_parse_each("discovery.dns", section.dns, syntax.parse_dns),
        dns_interval_s=section.dns_interval_s,
        services=_parse_each(
            "discovery.endpointslices", section.endpointslices, syntax.parse_service
        ),
        kubernetes=KubernetesConfig(
            api.server.rstrip("/"),
            base_dir / api.token_file if api.token_file else None,
            base_dir / api.ca_file if api.ca_file else None,
        ),
    )


def _parse_each(name: str, items: list[str], parse_one: Callable[[str, str], T]) -> tuple[T, ...]:
    parsed: list[T] = []
    for index, item in enumerate(items):
        item_parsed = parse_one(f"{name}[{index}]", item)
        if item_parsed in parsed:
            raise ConfigError(f"{name}[{index}]", item, "is listed twice", "Remove one of them.")
        parsed.append(item_parsed)
    return tuple(parsed)
