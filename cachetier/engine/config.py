"""Command line of the cache node, parsed into a Config; any error rejects it as a whole.

A node reachable from other machines requires a password. `--memory @FILE` resizes a running node
when the file changes.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cachetier.client.address import Address, AddressError
from cachetier.engine.errors import ConfigError
from cachetier.engine.net import guards as guard_flags
from cachetier.engine.net.access import read_passwords
from cachetier.engine.net.guards import Guards
from cachetier.engine.policies import DEFAULT_POLICY, POLICIES
from cachetier.engine.store import Declined

log = logging.getLogger(__name__)

MIB = 1024 * 1024
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_MAX_VALUE = 512 * MIB  # RESP's bulk string limit
_MIN_DISK = 64 * MIB
_SHM_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")
MIN_MEMORY = MIB
_MAX_TRANSFER_THREADS = 64


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Listen address; port 0 selects a free port."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """Another node, with name and weight as clients place keys on it."""

    place: ListenAddress
    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class DiskConfig:
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of a cache node. `memory_bytes` bounds the stored values; values being received
    may use `receiving_bytes` more. `pool` labels the metrics.
    """

    listen: ListenAddress
    memory_bytes: int
    memory_file: str = ""
    admin: ListenAddress | None = None
    # At startup: the file is reread when it changes (see PasswordFile).
    passwords: tuple[str, ...] = field(default=(), repr=False)
    password_file: str = ""
    pool: str = "default"
    allow_flush: bool = False
    max_clients: int = 1024
    policy: str = DEFAULT_POLICY
    disk: DiskConfig | None = None
    shm: str = ""  # arena name in /dev/shm, "" for private memory
    quotas: Mapping[str, int] = field(default_factory=dict)
    admission: bool = False
    guards: Guards = field(default_factory=Guards)
    transfer_threads: int = 0
    log_level: str = "info"

    @property
    def receiving_bytes(self) -> int:
        """Return an eighth of the memory, so that a burst of writes cannot double the process."""
        return min(max(self.memory_bytes // 8, 16 * MIB), 1024 * MIB)

    @property
    def disk_queue_bytes(self) -> int:
        """Memory for values being written to disk; longer values are not written."""
        return min(self.memory_bytes // 8, 256 * MIB)

    @property
    def disk_index_bytes(self) -> int:
        return max(self.memory_bytes // 8, 16 * MIB)

    @property
    def max_value_bytes(self) -> int:
        return min(_MAX_VALUE, self.receiving_bytes, self.memory_bytes)


def parse_size(text: str) -> int:
    """Parse "1GiB", "512 MB" or "1048576" to bytes."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ConfigError(f"{text!r} is not a size: write for example 512MiB or 4GiB")
    return int(float(match[1]) * unit)


def read_memory_file(path: str) -> str:
    """Return the file's text; raise ConfigError if unreadable."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "no text"
        raise ConfigError(f"--memory @{path} cannot be read: {why}") from None


def parse_listen_address(text: str) -> ListenAddress:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not an address: write for example 127.0.0.1:6400")
    return ListenAddress(host, int(port))


def parse_peers(text: str) -> tuple[PeerConfig, ...]:
    """Parse a list of HOST:PORT, or of node list lines, whose names and weights place the keys."""
    return tuple(_parse_peer(peer.strip()) for peer in text.split(","))


def _parse_peer(text: str) -> PeerConfig:
    if "://" not in text:
        place = parse_listen_address(text)
        return PeerConfig(place, str(place))
    try:
        address = Address.parse(text)
    except AddressError as exc:
        raise ConfigError(f"{text[:200]!r} is not a node: {exc}") from None
    place = ListenAddress(address.host, address.port)
    return PeerConfig(place, address.label, address.weight)


def parse(argv: Sequence[str]) -> Config:
    """Parse flags; raise ConfigError (argparse itself exits on syntax errors)."""
    args = _make_parser().parse_args(argv)
    lines = read_passwords(args.password_file) if args.password_file else ()
    memory_file = args.memory.removeprefix("@") if args.memory.startswith("@") else ""
    config = Config(
        listen=parse_listen_address(args.listen),
        memory_bytes=parse_size(read_memory_file(memory_file) if memory_file else args.memory),
        memory_file=memory_file,
        admin=parse_listen_address(args.admin) if args.admin else None,
        passwords=lines,
        password_file=args.password_file,
        pool=args.pool,
        allow_flush=args.allow_flush,
        max_clients=args.max_clients,
        policy=args.policy,
        disk=_parse_disk(args.disk) if args.disk else None,
        shm=_parse_shm_name(args.shm),
        quotas=_parse_quotas(args.quota),
        admission=args.admission,
        guards=guard_flags.read_flags(args, has_password=bool(lines)),
        transfer_threads=args.transfer_threads,
        log_level=args.log_level,
    )
    _check_config(config)
    return config


def _check_config(config: Config) -> None:
    if config.memory_bytes < MIN_MEMORY:
        raise ConfigError(f"--memory {config.memory_bytes} bytes is too little: at least 1MiB")
    if not 0 <= config.transfer_threads <= _MAX_TRANSFER_THREADS:
        raise ConfigError(
            f"--transfer-threads {config.transfer_threads} must be 0 to {_MAX_TRANSFER_THREADS}"
        )
    for namespace, limit in config.quotas.items():
        if not MIB <= limit <= config.memory_bytes:
            raise ConfigError(
                f"--quota {namespace}={limit} must be at least 1MiB and at most --memory "
                f"({config.memory_bytes} bytes)"
            )
    guards = config.guards
    is_safe = config.passwords or guards.asks_for_certificates or guards.unprotected
    if not is_safe and not config.listen.is_local:
        raise ConfigError(
            f"--listen {config.listen} can be reached from other machines: give --password-file or "
            "--tls-client-ca, or listen on 127.0.0.1 (--unprotected, if nobody else can reach it)"
        )


def _parse_disk(text: str) -> DiskConfig:
    path, colon, size = text.rpartition(":")
    if not colon or not Path(path).is_absolute():
        raise ConfigError(
            f"--disk {text!r} is not PATH:SIZE with a whole path: write for example "
            "/var/lib/emberline/l2:100GiB"
        )
    size_bytes = parse_size(size)
    if size_bytes < _MIN_DISK:
        raise ConfigError(f"--disk {path} with {size_bytes} bytes is too little: at least 64MiB")
    return DiskConfig(Path(path), size_bytes)


def _parse_shm_name(name: str) -> str:
    if name and not _SHM_NAME.fullmatch(name):
        raise ConfigError(
            f"--shm {name!r} is not a name for a file in /dev/shm: letters, digits, '-', '_' and "
            "'.', for example emberline-l2"
        )
    return name


def _parse_quotas(texts: Sequence[str]) -> dict[str, int]:
    quotas: dict[str, int] = {}
    for text in texts:
        namespace, equals, size = text.partition("=")
        if not equals or not (namespace.isalnum() and namespace.isascii()):
            raise ConfigError(
                f"--quota {text!r} is not NAMESPACE=SIZE: write for example 3f9c0a=2GiB (GET "
                "/namespaces of the admin port shows the names)"
            )
        if namespace in quotas:
            raise ConfigError(f"--quota names {namespace} twice: leave one of them out")
        quotas[namespace] = parse_size(size)
    return quotas


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cachetier.engine", description="Cache node with the Redis protocol (RESP)."
    )
    add = parser.add_argument
    add("--listen", default="127.0.0.1:6400", metavar="HOST:PORT", help="default %(default)s")
    add(
        "--memory",
        required=True,
        metavar="SIZE",
        help="memory limit for values, such as 4GiB, or @FILE with it",
    )
    add(
        "--password-file",
        default="",
        metavar="FILE",
        help="file with the password that clients must send",
    )
    add("--admin", default="", metavar="HOST:PORT", help="healthz, readyz, metrics, drain")
    add("--pool", default="default", help="label of the metrics, default %(default)s")
    add("--allow-flush", action="store_true", help="allow FLUSHALL")
    add(
        "--max-clients",
        type=int,
        default=1024,
        help="maximum number of connections, default %(default)s",
    )
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    add("--policy", default=DEFAULT_POLICY, choices=POLICIES, help="eviction policy (%(default)s)")
    add("--quota", action="append", default=[], metavar="NAMESPACE=SIZE", help="may be repeated")
    add("--admission", action="store_true", help="reject namespaces that only thrash")
    add("--disk", default="", metavar="PATH:SIZE", help="folder for values evicted from memory")
    add(
        "--shm",
        default="",
        metavar="NAME",
        help="shared memory in /dev/shm for readers on this host",
    )
    add(
        "--transfer-threads",
        type=int,
        default=_count_transfer_threads(),
        metavar="NUMBER",
        help="threads that copy long values of concurrent clients, 0: none; default: one per core "
        "up to 4 (%(default)s here)",
    )
    guard_flags.add_flags(parser)
    return parser


def _count_transfer_threads() -> int:
    """Return one thread per usable core, none on a single core, where they only cost."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return min(cores, 4) if cores > 1 else 0


_POLL_INTERVAL_S = 1.0

# Apply a size; return the reason if rejected.
Resize = Callable[[int, float], Declined | None]


class MemoryFile:
    """Watched size file; `size` is the current size."""

    def __init__(self, path: str, size: int, resize: Resize) -> None:
        self._path = path
        self._size = size
        self._resize = resize
        self._reported = ""

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL_S)
            self.poll(time.monotonic())

    def poll(self, now: float) -> None:
        try:
            size = parse_size(read_memory_file(self._path))
        except ConfigError as exc:
            self._report(f"{exc}; the size stays {self._size} bytes")
            return
        if size == self._size:
            self._reported = ""
            return
        if size < MIN_MEMORY:
            self._report(f"{size} bytes in {Path(self._path).name} are too few: at least 1MiB")
            return
        declined = self._resize(size, now)
        if declined is not None:
            self._report(f"cannot grow to {size} bytes yet: {declined.detail or declined.reason}")
            return
        log.info("Resized from %d to %d bytes", self._size, size)
        self._size, self._reported = size, ""

    def _report(self, text: str) -> None:
        if text != self._reported:
            log.warning("%s", text)
        self._reported = text
