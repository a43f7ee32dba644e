"""What the router is told, as frozen values: one Config and its parts, with their defaults.

Promises nothing about the values by itself: `parse` makes and checks them. Must not know files,
flags or how a Config is put to work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

STRATEGIES = ("prefixaware", "kvaware", "session", "roundrobin")
ISOLATIONS = ("shared", "group", "key")
LOG_LEVELS = ("debug", "info", "warning", "error")


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
    max_in_flight: int = 0  # requests at a time; 0: as `admission.worker_max_in_flight` says
    tls_name: str = ""  # speaks TLS: the name in its certificate
    cache_tokens: int = 0  # its whole cache; 0: learned from its metrics
    source: str = "config"  # who told us of it
    kv_events: str = ""  # ZeroMQ endpoints of its KV events; "": asked of the worker itself
    kv_replay: str = ""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS for clients; `client_ca`: only clients with a certificate of this CA may connect.
    `digest` changes when one of the files does."""

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
    """For workers with https:// URLs. `ca` None: the system's. `cert`, `key`: who we are.
    `server_name`: whose certificate a worker shows, where its URL does not say it."""

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
    """A name all of whose addresses are workers."""

    name: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{'https://' if self.tls else ''}{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Service:
    """A Kubernetes Service whose ready pods are workers; `port_name` "" for its first port."""

    namespace: str
    name: str
    port_name: str = ""
    tls: bool = False

    def __str__(self) -> str:
        port = f":{self.port_name}" if self.port_name else ""
        return f"{'https://' if self.tls else ''}{self.namespace}/{self.name}{port}"


@dataclass(frozen=True, slots=True)
class KubernetesConfig:
    """The API server; without one that of the cluster this pod runs in."""

    server: str = ""
    token_file: Path | None = None
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class DiscoveryConfig:
    dns: tuple[DnsName, ...] = ()
    dns_interval_s: float = 5.0
    services: tuple[Service, ...] = ()
    kubernetes: KubernetesConfig = KubernetesConfig()

    @property
    def tls(self) -> bool:
        """May it find workers which speak TLS?"""
        return any(name.tls for name in self.dns) or any(one.tls for one in self.services)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Where a session's name is found: a header, a cookie, or a key of the body, with dots
    one in objects of the body."""

    source: str  # header, cookie, body
    name: str


@dataclass(frozen=True, slots=True)
class KvConfig:
    """For the strategy kvaware.

    `tokenizer`: the model's folder, with its tokenizer and chat template; None: prompts are
    tokenized by the workers, which costs a question each. `chat_template`: instead of the model's.
    `wait_s`: longest wait for a prompt's tokens; then it is placed by its prefix.
    `probe_interval_s`: each worker is sent a prompt of ours twice so often; 0: never. `relearn`: a
    worker whose history is not known whole is asked to tell which blocks a request found.
    """

    tokenizer: Path | None = None
    chat_template: Path | None = None
    wait_s: float = 0.5
    threads: int = 1
    cache_bytes: int = 256 * 1024 * 1024
    probe_interval_s: float = 300.0
    relearn: bool = True


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """A worker is asked every `interval_s`; refused is down at once, silent after `fall` times:
    one on a busy machine may be late and is still alive.

    `eject_after` failed requests in a row leave a worker out for `eject_s`, each time twice as
    long up to `eject_longest_s`. For `slow_start_s` a worker that came gets less than the others.
    """

    path: str = "/health"
    interval_s: float = 1.0
    timeout_s: float = 2.0
    fall: int = 3
    eject_after: int = 3
    eject_s: float = 1.0
    eject_longest_s: float = 30.0
    slow_start_s: float = 10.0


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Bounds of what clients may ask of the router. Bytes and seconds.

    `clients`: connections at a time; one more is answered with 503 and closed.

    `buffer_bytes`: request bytes held for all clients together; what does not fit gets 503.
    `messages`: entries of messages, input, tools or a batch of prompts; `parts`: content parts of
    all messages; `json_values`: values of a body which is not small (bodies.py). More are refused
    with 400, where the router reads the body at all.
    `hold_bytes`: a body up to this size is held until the first byte of the answer, so that the
    request can be sent again elsewhere; a larger one is streamed through and never retried.
    `response_timeout_s`: longest wait for an answer's first byte. A prompt can queue for minutes.
    `silence_timeout_s`: longest wait for its next bytes, once it has begun.
    `stall_timeout_s`: longest wait for a client which does not read, or a worker which does not.
    `shutdown_delay_s`: told to stop, go on as before while saying "not ready", until who sends us
    clients has noticed; then take nothing new and finish within `shutdown_grace_s`.
    """

    clients: int = 20_000
    header_bytes: int = 32_768
    body_bytes: int = 32 * 1024 * 1024
    hold_bytes: int = 4 * 1024 * 1024
    buffer_bytes: int = 256 * 1024 * 1024
    messages: int = 10_000
    parts: int = 10_000
    json_values: int = 500_000
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    idle_timeout_s: float = 75.0
    stall_timeout_s: float = 300.0
    connect_timeout_s: float = 3.0
    response_timeout_s: float = 900.0
    silence_timeout_s: float = 300.0
    shutdown_delay_s: float = 0.0
    shutdown_grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Rates:
    """How much of something; 0: as much as one likes. Tokens count prompt and completion."""

    max_in_flight: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """A key's own limits; None: as `admission.per_key` says. A key of weight 2 gets twice the
    work of one of weight 1 while both wait."""

    max_in_flight: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """What may wait for a slot: requests, the bytes of their bodies, and for how long."""

    depth: int = 1000
    body_bytes: int = 256 * 1024 * 1024
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    """Limits of the endpoint at this router, of each of its keys, and of each worker."""

    endpoint: Rates = Rates()
    per_key: Rates = Rates()
    worker_max_in_flight: int = 0
    queue: QueueConfig = QueueConfig()


@dataclass(frozen=True, slots=True)
class AccessLogConfig:
    """Which requests leave a line: a share of all, and those which went wrong."""

    sample: float = 0.01
    errors: bool = True


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Decisions on disk: a share of them; the file and its predecessor stay within `max_bytes`."""

    file: Path
    sample: float = 1.0
    max_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TracingConfig:
    """Where spans go (OTLP over HTTP), and of which share of requests that bring no trace."""

    endpoint: str
    sample: float = 0.01
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Key:
    """A caller's key, known by its SHA-256 only.

    `pin`: may choose the worker itself. `admin`: may use paths which control a worker. `expires`:
    epoch seconds, 0 for never. `models`: those it may name; None: all. `spent_until`: epoch seconds
    until which it is refused because its budget is used up, 0 while it is not. `budget_tokens`: of
    a period, 0 without a budget. `group`: its keys share a cache where isolation is "group".
    """

    id: str
    sha256: str
    pin: bool = False
    admin: bool = False
    expires: float = 0.0
    models: frozenset[str] | None = None
    limits: KeyLimits = KeyLimits()
    spent_until: float = 0.0
    budget_tokens: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class Config:
    """All of it. `keys` None means the data port is open; an empty tuple lets nobody in.

    `cache_isolation`: whose prompts may reuse each other's KV cache; without keys, everybody's.
    """

    listen: Address
    listen_more: tuple[Address, ...] = ()
    tls: TlsConfig | None = None
    worker_tls: WorkerTlsConfig = field(default_factory=WorkerTlsConfig)
    discovery: DiscoveryConfig = field(default_factory=DiscoveryConfig)
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
    cache_isolation: str = "key"
    workers: tuple[WorkerConfig, ...] = ()
    health: HealthConfig = field(default_factory=HealthConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    kv: KvConfig = field(default_factory=KvConfig)
    open_paths: tuple[str, ...] = ()
    decisions_keep: int = 2000
    retry_attempts: int = 2
    access_log: AccessLogConfig = AccessLogConfig()
    journal: JournalConfig | None = None
    tracing: TracingConfig | None = None
    files: tuple[Path, ...] = ()  # read beside the main file; watched with it
