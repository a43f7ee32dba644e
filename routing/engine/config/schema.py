"""Frozen configuration types with their defaults and ranges.

A `Section` is converted from the document as it is; `parse` builds the other types. A parameter
that needs no more than its range is declared once, in `Parameters` or a section.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from routing.engine.config.validation import Section, between, described, matching, one_of
from routing.engine.strategies import STRATEGIES

ISOLATIONS = ("shared", "group", "key")
LOG_LEVELS = ("debug", "info", "warning", "error")

Strategy = Annotated[str, one_of(STRATEGIES, "is not a strategy")]
Isolation = Annotated[str, one_of(ISOLATIONS, "is not an isolation")]
Origin = Annotated[
    str,
    matching(
        r"\*|[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]+",
        "is not an origin",
        "Write scheme, host and port as in https://app.example.com, or * for every origin.",
    ),
]
Bytes = Annotated[int, between(1024, 2**40)]
Count = Annotated[int, between(1, 1_000_000)]
CountOrZero = Annotated[int, between(0, 1_000_000)]
EpochSeconds = Annotated[float, between(0, 1e11)]
Label = Annotated[str, matching(r"[\x21-\x7e]{1,128}")]
LabelOrEmpty = Annotated[str, matching(r"[\x21-\x7e]{0,128}")]
Model = Annotated[str, matching(r"[^\x00-\x1f\x7f]{1,256}")]
Rate = Annotated[int, between(0, 1_000_000_000)]
Share = Annotated[float, between(0, 1)]
Timeout = Annotated[float, between(0.05, 86_400)]


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
    max_in_flight: int = 0  # in-flight limit; 0: `admission.worker_max_in_flight`
    tls_name: str = ""
    cache_tokens: int = 0  # cache size; 0: read from its metrics
    source: str = "config"
    kv_events: str = ""  # ZeroMQ endpoints of its KV events; "": queried from the worker
    kv_replay: str = ""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS for clients.

    `client_ca`: accept only clients with a certificate of this CA. `digest` changes with the files.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    digest: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        named = (self.cert, self.key)
        return named if self.client_ca is None else (*named, self.client_ca)


@dataclass(frozen=True, slots=True)
class WorkerTlsConfig:
    """TLS for workers with https:// URLs.

    `ca` None: system CAs. `cert`, `key`: client certificate. `server_name`: expected certificate
    name where the URL does not contain it.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""
    insecure_skip_verify: bool = False
    digest: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.ca, self.cert, self.key) if path is not None)


@dataclass(frozen=True, slots=True)
class DnsName:
    name: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{'https://' if self.tls else ''}{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Service:
    """Kubernetes Service; its ready pods are workers. `port_name` "": the first port."""

    namespace: str
    name: str
    port_name: str = ""
    tls: bool = False

    def __str__(self) -> str:
        port = f":{self.port_name}" if self.port_name else ""
        return f"{'https://' if self.tls else ''}{self.namespace}/{self.name}{port}"


@dataclass(frozen=True, slots=True)
class KubernetesConfig:
    server: str = ""
    token_file: Path | None = None
    ca_file: Path | None = None


class DiscoveryConfig(Section, frozen=True):
    dns: tuple[DnsName, ...] = ()
    dns_interval_s: float = 5.0
    services: tuple[Service, ...] = ()
    kubernetes: KubernetesConfig = KubernetesConfig()

    @property
    def tls(self) -> bool:
        return any(name.tls for name in self.dns) or any(service.tls for service in self.services)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Location of the session id: header, cookie or body key (dots descend into objects)."""

    source: str
    name: str


class KvParameters(Section, frozen=True, kw_only=True):
    """Parameters that `KvConfig` has as the document gives them.

    `wait_s`: longest wait for a prompt's tokens before prefix fallback. `probe_interval_s`:
    interval of probe prompts, two per worker; 0: never. `relearn`: request block events again from
    a worker with incomplete history. `l2_ttl_s`: TTL of blocks in L2, for the causes of misses; 0:
    none.
    """

    wait_s: Annotated[float, between(0, 60)] = 0.5
    threads: Annotated[int, between(1, 64)] = 1
    cache_bytes: Annotated[int, between(1024 * 1024, 2**40)] = 256 * 1024 * 1024
    probe_interval_s: Annotated[float, between(0, 86_400)] = 300.0
    relearn: bool = True
    l2_ttl_s: Annotated[int, between(0, 2**31)] = 0


class KvConfig(KvParameters, frozen=True, kw_only=True):
    """Settings of the kvaware strategy.

    `tokenizer`: model folder with tokenizer and chat template; None: workers tokenize prompts, at
    one request each. `chat_template`: replaces the model's.
    """

    tokenizer: Path | None = None
    chat_template: Path | None = None


class HealthConfig(Section, frozen=True):
    """Health checks, ejection and slow start.

    A worker is checked every `interval_s`: down at once when it refuses connections, after `fall`
    timeouts otherwise. `eject_after` consecutive failed requests eject it for `eject_s`, doubling
    up to `eject_longest_s`. A worker with requests whose engine makes no progress for
    `progress_timeout_s` is ejected until it does; 0: never. A new worker gets a reduced share for
    `slow_start_s`.
    """

    path: Annotated[str, matching("/[!-~]*")] = "/health"
    interval_s: Annotated[float, between(0.05, 3600)] = 1.0
    timeout_s: Annotated[float, between(0.05, 600)] = 2.0
    fall: Annotated[int, between(1, 100)] = 3
    eject_after: Annotated[int, between(1, 1000)] = 3
    eject_s: Annotated[float, between(0.01, 3600)] = 1.0
    eject_longest_s: Annotated[float, between(0.01, 86_400)] = 30.0
    progress_timeout_s: Annotated[float, between(0, 86_400)] = 30.0
    slow_start_s: Annotated[float, between(0, 3600)] = 10.0


class LimitsConfig(Section, frozen=True):
    """Limits on client requests, in bytes and seconds.

    `clients`: open connections; further ones get 503 and are closed. `buffer_bytes`: request bytes
    held for all clients; excess gets 503. `messages`: entries of messages, input, tools or a prompt
    batch; `parts`: content parts of all messages; `json_values`: values of a body that is not small
    (bodies.py). Excess gets 400 where the router reads the body. `hold_bytes`: bodies up to this
    size are held until the first answer byte, for retries; larger ones are streamed and never
    retried. `response_timeout_s`: longest wait for the first answer byte, including queueing at the
    worker. `silence_timeout_s`: longest gap between answer bytes. `stall_timeout_s`: longest wait
    for a peer that does not read. `shutdown_delay_s`: time to serve as "not ready" after a stop
    signal, until load balancers react; then in-flight requests have `shutdown_grace_s` to finish.
    """

    clients: Count = 20_000
    header_bytes: Bytes = 32_768
    body_bytes: Bytes = 32 * 1024 * 1024
    hold_bytes: Annotated[int, between(0, 2**40)] = 4 * 1024 * 1024
    buffer_bytes: Bytes = 256 * 1024 * 1024
    messages: Count = 10_000
    parts: Count = 10_000
    json_values: Count = 500_000
    header_timeout_s: Timeout = 10.0
    body_timeout_s: Timeout = 30.0
    idle_timeout_s: Timeout = 75.0
    stall_timeout_s: Timeout = 300.0
    connect_timeout_s: Timeout = 3.0
    response_timeout_s: Timeout = 900.0
    silence_timeout_s: Timeout = 300.0
    shutdown_delay_s: Annotated[float, between(0, 86_400)] = 0.0
    shutdown_grace_s: Timeout = 30.0


class Rates(Section, frozen=True):
    """Rates per minute; 0: unlimited. Tokens are prompt plus completion."""

    max_in_flight: Rate = 0
    requests_per_minute: Rate = 0
    tokens_per_minute: Rate = 0


class KeyLimits(Section, frozen=True):
    """Limits of one key; None: `admission.per_key`. A key of weight 2 gets twice the work of one of
    weight 1 while both queue.
    """

    max_in_flight: Rate | None = None
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    weight: Annotated[float, between(0.01, 1000)] = 1.0


class QueueConfig(Section, frozen=True):
    depth: CountOrZero = 1000
    body_bytes: Bytes = 256 * 1024 * 1024
    timeout_s: Annotated[float, between(0.5, 86_400)] = 30.0


class AdmissionConfig(Section, frozen=True):
    """Limits of the endpoint at this router, of each key, and of each worker."""

    endpoint: Rates = Rates()
    per_key: Rates = Rates()
    worker_max_in_flight: int = 0
    queue: QueueConfig = QueueConfig()


class AccessLogConfig(Section, frozen=True):
    """Access log sampling: a share of all requests, plus failures."""

    sample: Share = 0.01
    errors: bool = True


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Decision journal: sampling share; the file and its predecessor stay within `max_bytes`."""

    file: Path
    sample: float = 1.0
    max_bytes: int = 256 * 1024 * 1024


class RecordingConfig(Section, frozen=True):
    """Recording of traffic: compressed bytes per hour, and in memory until they are collected."""

    enabled: bool = False
    hour_bytes: Annotated[int, between(65_536, 2**34)] = 64 * 1024 * 1024
    buffer_bytes: Annotated[int, between(65_536, 2**30)] = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StateStoreConfig:
    """Valkey or Redis through which the routers of an endpoint exchange state.

    `routers`: expected number of routers, by which limits are divided while the store is away.
    """

    host: str
    port: int
    database: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca: Path | None = None
    routers: int = 1

    def __str__(self) -> str:
        place = Address(self.host, self.port)
        return f"redis{'s' if self.tls else ''}://{place}/{self.database}"


@dataclass(frozen=True, slots=True)
class CanaryConfig:
    """Candidate strategy for a share of the sessions.

    `id` salts the assignment; another one starts other statistics. `session_key` None and
    `prefix_memory_blocks` 0: those of the configured strategy. `settle_s`: time without a request
    after which a session counts as ended.
    """

    id: str
    strategy: str
    share: float
    session_key: SessionKey | None = None
    prefix_memory_blocks: int = 0
    settle_s: float = 60.0


class TracingConfig(Section, frozen=True):
    """Span export (OTLP over HTTP); share of sampled requests without incoming trace context."""

    endpoint: str = ""
    sample: Share = 0.01
    timeout_s: Annotated[float, between(0.1, 60)] = 5.0


class Key(Section, frozen=True):
    """API key, stored as SHA-256.

    `pin`: may choose the worker. `admin`: may use control paths. `expires`: epoch seconds, 0:
    never. `models`: allowed model names; None: all. `spent_until`: epoch seconds until which the
    exhausted budget blocks the key; 0: not exhausted. `budget_tokens`: per period, 0: no budget.
    `group`: keys sharing a cache where isolation is "group".
    """

    id: Label
    sha256: Annotated[
        str,
        # The value is omitted: it may be a clear-text key.
        matching(
            "[0-9a-fA-F]{64}",
            "must be 64 hex digits",
            "Write the SHA-256 of the key, never the key.",
            hidden=True,
        ),
    ]
    pin: bool = False
    admin: bool = False
    expires: EpochSeconds = 0.0
    models: (
        Annotated[
            frozenset[Model],
            described("must be a list of model names", "Leave it out to allow every model."),
        ]
        | None
    ) = None
    limits: KeyLimits = KeyLimits()
    spent_until: EpochSeconds = 0.0
    budget_tokens: Annotated[int, between(0, 10**15)] = 0
    group: LabelOrEmpty = ""


class RetryConfig(Section, frozen=True):
    attempts: Annotated[int, between(1, 10)] = 2


class Parameters(Section, frozen=True, kw_only=True):
    """Parameters that `Config` has as the document gives them.

    `cache_isolation`: scope of KV cache reuse; without keys it is shared. `reuse_port`: several
    routers listen on the address. `l1_tokens`: size of each worker's L1; 0: unknown, or none.
    `allowed_origins`: of browsers' scripts; `*`: every origin. `paused`: it has no workers on
    purpose, and refusals say so.
    """

    reuse_port: bool = False
    endpoint: Label = "default"
    namespace: Label = "default"
    strategy: Strategy = "prefixaware"
    model: str = ""
    prefix_block_bytes: Annotated[int, between(16, 65_536)] = 256
    prefix_memory_blocks: Annotated[int, between(1, 100_000_000)] = 65_536
    l1_tokens: Annotated[int, between(0, 10**12)] = 0
    paused: bool = False
    cache_isolation: Isolation = "key"
    health: HealthConfig = HealthConfig()
    limits: LimitsConfig = LimitsConfig()
    allowed_origins: tuple[Origin, ...] = ("*",)
    recording: RecordingConfig = RecordingConfig()
    retry: RetryConfig = RetryConfig()


class Config(Parameters, frozen=True, kw_only=True):
    """Whole configuration.

    `keys` None: the data port is open; an empty tuple rejects everyone. `preview_chars`: of a
    prompt's text, kept with its decision; 0: none. `files`: referenced, watched with the main file.
    """

    listen: Address
    listen_more: tuple[Address, ...] = ()
    admin: Address | None = None
    tls: TlsConfig | None = None
    worker_tls: WorkerTlsConfig = WorkerTlsConfig()
    discovery: DiscoveryConfig = DiscoveryConfig()
    session_key: SessionKey = SessionKey("header", "x-session-id")
    keys: tuple[Key, ...] | None = None
    hash_key: bytes = b""
    workers: tuple[WorkerConfig, ...] = ()
    admission: AdmissionConfig = AdmissionConfig()
    kv: KvConfig = KvConfig()
    open_paths: tuple[str, ...] = ()
    decisions_keep: int = 2000
    preview_chars: int = 0
    access_log: AccessLogConfig = AccessLogConfig()
    journal: JournalConfig | None = None
    tracing: TracingConfig | None = None
    state_store: StateStoreConfig | None = None
    canary: CanaryConfig | None = None
    files: tuple[Path, ...] = ()

    def __repr__(self) -> str:  # without hash key and hashes of keys
        return f"Config(endpoint={self.endpoint!r}, listen={self.listen!r})"
