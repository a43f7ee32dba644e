"""What the router is told: one frozen Config, read from a file or from flags, checked whole.

Promises that a Config which exists is usable (every value in range, every file it names found),
and that a wrong one is refused naming field, value and remedy. The console's publisher calls
`parse` before it writes the file. Must not know sockets or how a Config is put to work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

STRATEGIES = ("prefixaware", "session", "roundrobin")
LOG_LEVELS = ("debug", "info", "warning", "error")
_WORKER_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:\[\]-]{0,126}[A-Za-z0-9\]])?")
_LABEL = re.compile(r"[\x21-\x7e]{1,128}")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}")


class ConfigError(Exception):
    """The configuration is refused: which field, which value, why, and what to do about it."""

    def __init__(self, field: str, value: object, message: str, remedy: str) -> None:
        super().__init__(f"{field}: {message} (value: {value!r}). {remedy}")
        self.field = field
        self.value = value
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """One vLLM server; `id` is its name in headers, metrics and decisions."""

    id: str
    url: str
    address: Address
    draining: bool = False


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Where a session's name is found: a header, a cookie, or a top-level key of the body."""

    source: str  # header, cookie, body
    name: str


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """A worker is asked every `interval_s`; refused is down at once, silent after `fall` times:
    one on a busy machine may be late and is still alive."""

    path: str = "/health"
    interval_s: float = 1.0
    timeout_s: float = 2.0
    fall: int = 3


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Bounds of what one client may ask of the router. Bytes and seconds.

    `hold_bytes`: a body up to this size is held until the first byte of the answer, so that the
    request can be sent again elsewhere; a larger one is streamed through and never retried.
    `response_timeout_s`: longest wait for an answer's first byte. A prompt can queue for minutes.
    """

    header_bytes: int = 32_768
    body_bytes: int = 32 * 1024 * 1024
    hold_bytes: int = 4 * 1024 * 1024
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    idle_timeout_s: float = 75.0
    stall_timeout_s: float = 300.0
    connect_timeout_s: float = 3.0
    response_timeout_s: float = 900.0
    shutdown_grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Key:
    """A caller's key, known by its SHA-256 only. `pin`: may choose the worker itself."""

    id: str
    sha256: str
    pin: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """All of it. `keys` None means the data port is open; an empty tuple lets nobody in."""

    listen: Address
    endpoint: str = "default"
    namespace: str = "default"
    admin: Address | None = None
    strategy: str = "prefixaware"
    session_key: SessionKey = SessionKey("header", "x-session-id")
    model: str = ""
    prefix_block_bytes: int = 256
    prefix_memory_blocks: int = 65_536
    keys: tuple[Key, ...] | None = None
    hash_key: bytes = field(default=b"", repr=False)
    workers: tuple[WorkerConfig, ...] = ()
    health: HealthConfig = field(default_factory=HealthConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    decisions_keep: int = 2000
    retry_attempts: int = 2
    access_log_sample: float = 0.01
    files: tuple[Path, ...] = ()  # read beside the main file; watched with it


class _Fields:
    """Takes fields out of a mapping with their checks; what is left over is refused by name."""

    def __init__(self, data: Any, prefix: str = "") -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(prefix or "(whole)", data, "must be an object", "Give key: value.")
        self._left = dict(data)
        self._prefix = prefix

    def name(self, key: str) -> str:
        return f"{self._prefix}.{key}" if self._prefix else key

    def take(self, key: str, default: Any) -> Any:
        return self._left.pop(key, default)

    def text(self, key: str, default: str, pattern: re.Pattern[str] | None = None) -> str:
        value = self.take(key, default)
        if not isinstance(value, str):
            raise ConfigError(self.name(key), value, "must be text", "Put it in quotes.")
        if value != default and pattern is not None and not pattern.fullmatch(value):
            raise ConfigError(
                self.name(key),
                value,
                "has characters which are not allowed or a wrong length",
                "Use visible ASCII characters without spaces.",
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise ConfigError(self.name(key), value, "must be true or false", "Use true or false.")
        return value

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(
                self.name(key),
                value,
                f"must be a whole number from {low} to {high}",
                f"The default is {default}.",
            )
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        value = self.take(key, default)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not low <= value <= high:
            raise ConfigError(
                self.name(key),
                value,
                f"must be a number from {low} to {high}",
                f"The default is {default}.",
            )
        return float(value)

    def done(self) -> None:
        for key, value in self._left.items():
            raise ConfigError(self.name(str(key)), value, "is not known", "Remove or rename it.")


def parse_address(name: str, value: str) -> Address:
    """`HOST:PORT` or `[IPv6]:PORT`; port 0 takes a free one."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})", value)
    if found is None or int(found[3]) > 65535:
        raise ConfigError(name, value, "must be HOST:PORT", "For example 127.0.0.1:9000.")
    return Address(found[1] or found[2], int(found[3]))


def parse_strategy(value: str) -> str:
    if value == "kvaware":
        raise ConfigError(
            "strategy",
            value,
            "kvaware is not available in this version",
            "Use prefixaware, which needs nothing from the workers.",
        )
    if value not in STRATEGIES:
        raise ConfigError(
            "strategy", value, "is not a strategy", f"Use one of: {', '.join(STRATEGIES)}."
        )
    return value


def parse_session_key(value: str) -> SessionKey:
    source, _, name = value.partition(":")
    if source not in ("header", "cookie", "body") or not _TOKEN.fullmatch(name):
        raise ConfigError(
            "session_key",
            value,
            "must say where the session's name is",
            "Use header:NAME, cookie:NAME or body:KEY.",
        )
    return SessionKey(source, name.lower() if source == "header" else name)


def parse_worker_url(name: str, url: str) -> Address:
    remedy = "For example http://127.0.0.1:8001."
    if "@" in url:  # credentials: not even in our own error message
        raise ConfigError(name, "(hidden)", "holds a user or password", "Leave them out.")
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError:
        raise ConfigError(name, url, "is not a URL", remedy) from None
    if parts.scheme == "https":
        raise ConfigError(
            name,
            url,
            "workers over TLS are not available in this version",
            "Use http:// on a network which is yours.",
        )
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(name, url, "must be http://HOST:PORT", remedy)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(name, url, "must end after the port", remedy)
    return Address(parts.hostname, port)


def parse_keys(data: Any, name: str = "api_keys_file") -> tuple[Key, ...]:
    fields = _Fields(data, name)
    items = fields.take("keys", None)
    fields.done()
    if not isinstance(items, list):
        raise ConfigError(f"{name}.keys", items, "must be a list", 'Write {"keys": []}.')
    keys: dict[str, Key] = {}
    for index, item in enumerate(items):
        entry = _Fields(item, f"{name}.keys[{index}]")
        key_id = entry.text("id", "", _LABEL)
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


def _parse_workers(items: Any) -> tuple[WorkerConfig, ...]:
    if not isinstance(items, list):
        raise ConfigError("workers", items, "must be a list", "Write [] for none.")
    workers: dict[str, WorkerConfig] = {}
    for index, item in enumerate(items):
        entry = _Fields(item, f"workers[{index}]")
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


def _parse_health(data: Any) -> HealthConfig:
    fields = _Fields(data, "health")
    base = HealthConfig()
    health = HealthConfig(
        path=fields.text("path", base.path, re.compile(r"/[!-~]*")),
        interval_s=fields.number("interval_s", base.interval_s, 0.05, 3600),
        timeout_s=fields.number("timeout_s", base.timeout_s, 0.05, 600),
        fall=fields.whole("fall", base.fall, 1, 100),
    )
    fields.done()
    return health


def _parse_limits(data: Any) -> LimitsConfig:
    fields = _Fields(data, "limits")
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


def _section(fields: _Fields, key: str) -> _Fields:
    return _Fields(fields.take(key, {}), key)


def _read_file(name: str, value: str, base_dir: Path) -> tuple[Path, bytes]:
    path = base_dir / value
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise ConfigError(
            name, value, f"cannot be read: {error.strerror}", f"Put the file at {path}."
        ) from None


def _parse_files(fields: _Fields, base_dir: Path) -> dict[str, Any]:
    """The files named by the configuration: read now, so that a broken one is refused now."""
    keys: tuple[Key, ...] | None = None
    hash_key = b""
    files: list[Path] = []
    keys_file = fields.text("api_keys_file", "")
    if keys_file:
        path, content = _read_file("api_keys_file", keys_file, base_dir)
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
        path, hash_key = _read_file("hash_key_file", hash_key_file, base_dir)
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


def parse(data: Mapping[str, Any], base_dir: Path) -> Config:
    """Check everything and build the Config; files are named relative to `base_dir`."""
    fields = _Fields(data)
    base = Config(listen=Address("", 0))
    admin = fields.text("admin", "")
    decisions = _section(fields, "decisions")
    retry = _section(fields, "retry")
    access_log = _section(fields, "access_log")
    config = Config(
        listen=parse_address("listen", fields.text("listen", "")),
        admin=parse_address("admin", admin) if admin else None,
        endpoint=fields.text("endpoint", base.endpoint, _LABEL),
        namespace=fields.text("namespace", base.namespace, _LABEL),
        strategy=parse_strategy(fields.text("strategy", base.strategy)),
        session_key=parse_session_key(fields.text("session_key", "header:x-session-id")),
        model=fields.text("model", ""),
        prefix_block_bytes=fields.whole("prefix_block_bytes", base.prefix_block_bytes, 16, 65_536),
        prefix_memory_blocks=fields.whole(
            "prefix_memory_blocks", base.prefix_memory_blocks, 1, 100_000_000
        ),
        workers=_parse_workers(fields.take("workers", [])),
        health=_parse_health(fields.take("health", {})),
        limits=_parse_limits(fields.take("limits", {})),
        decisions_keep=decisions.whole("keep", base.decisions_keep, 1, 1_000_000),
        retry_attempts=retry.whole("attempts", base.retry_attempts, 1, 10),
        access_log_sample=access_log.number("sample", base.access_log_sample, 0, 1),
        **_parse_files(fields, base_dir),
    )
    for part in (decisions, retry, access_log, fields):
        part.done()
    return config
