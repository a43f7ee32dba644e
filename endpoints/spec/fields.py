"""Field table of an endpoint: types, bounds, texts and effects of a change.

Source of the form's labels and help, of API messages, and of the marks "restarts workers" and
"applies live".
"""
# ruff: noqa: RUF009 (`declare` returns a dataclass field)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_type_hints

from endpoints.spec.cluster_spec import (
    ExposureSpec,
    LimitsSpec,
    MonitoringSpec,
    PdSpec,
    PlacementSpec,
    PodSpec,
    RolloutSpec,
    RouterSpec,
    ScalingSpec,
    SourceSpec,
)
from endpoints.spec.field import PAIRS, Effect, Plain, declare, declared_fields, section_paths
from endpoints.spec.validators import (
    aliases_problem,
    allowed_origins_problem,
    media_domains_problem,
    model_problem,
    name_problem,
    password_file_problem,
    redis_url_problem,
    session_key_problem,
    worker_args_problem,
)
from routing.engine.strategies import STRATEGIES as STRATEGIES
from routing.engine.strategies import STRATEGY_CHOICES

ISOLATIONS = ("key", "group", "shared")
BACKENDS = ("tieredstorage", "redis")
POLICIES = ("lru", "arc")
ENGINES = ("vllm", "simulated")
MAX_REPLICAS = 64
_FIXED, _LIVE = Effect.FIXED, Effect.LIVE


@dataclass(frozen=True, slots=True)
class L1Spec:
    enabled: bool = declare(True, "L1 cache", "KV cache in the memory of each worker.")
    size_gib: float = declare(
        0.5,
        "L1 size (GiB)",
        "Per worker, in addition to its memory.",
        remedy="Give a number of GiB above 0, such as 0.5.",
        above=0,
        maximum=4096,
    )
    policy: str = declare(
        "lru",
        "L1 eviction policy",
        "lru evicts the least recently used entries; arc also weighs how often they are used.",
        choices=POLICIES,
    )
    chunk_tokens: int = declare(
        32,
        "Chunk size (tokens)",
        "Unit of storage and lookup. Smaller chunks raise the hit rate, larger ones cost less.",
        remedy="Give a multiple of 16, such as 32.",
        minimum=16,
        maximum=4096,
    )

    @property
    def size_bytes(self) -> int:
        return int(self.size_gib * 1024**3)


@dataclass(frozen=True, slots=True)
class L2Spec:
    enabled: bool = declare(False, "L2 cache", "KV cache shared by all workers.")
    backend: str = declare(
        "tieredstorage",
        "L2 backend",
        "tieredstorage: Emberline's cache tier; redis: your own Redis or Valkey.",
        choices=BACKENDS,
    )
    tier: str = declare(
        "default",
        "Cache tier",
        "Backend tieredstorage only: a tier of the page Cache. default is created on first use.",
        remedy="Give the name of a cache tier, such as default.",
    )
    url: str = declare(
        "",
        "L2 address",
        "Backend redis only, such as redis://cache.internal:6379/0; rediss:// for TLS, "
        "redis://a:6379,b:6379?nodes=cluster for a cluster.",
        remedy="Write redis://HOST:PORT or redis://HOST:PORT/DATABASE.",
        rule=redis_url_problem,
    )
    password_file: str = declare(
        "",
        "L2 password file",
        "Backend redis only: a file in the console's folder EMBERLINE_L2_SECRETS that contains "
        "the password.",
        remedy="Give the absolute path of a file in EMBERLINE_L2_SECRETS, or leave it empty.",
        rule=password_file_problem,
    )
    ttl_s: int = declare(
        3600,
        "L2 time to live (s)",
        "Entries are evicted after this time.",
        remedy="Give whole seconds from 1 to 2592000 (30 days).",
        minimum=1,
        maximum=2_592_000,
    )


@dataclass(frozen=True, slots=True)
class CacheSpec:
    l1: L1Spec = field(default_factory=L1Spec)
    l2: L2Spec = field(default_factory=L2Spec)


@dataclass(frozen=True, slots=True)
class RoutingSpec:
    enabled: bool = declare(
        True, "Intelligent routing", "Off: round robin over the workers.", _LIVE
    )
    strategy: str = declare(
        "prefixaware",
        "Strategy",
        "; ".join(f"{name}: {chosen}" for name, chosen in STRATEGY_CHOICES.items()) + ".",
        _LIVE,
        choices=STRATEGIES,
    )
    session_key: str = declare(
        "header:x-session-id",
        "Session key",
        "Strategy session only: header:NAME, cookie:NAME or body:FIELD.",
        _LIVE,
        remedy="Write header:NAME, cookie:NAME or body:FIELD.",
        rule=session_key_problem,
    )
    cache_isolation: str = declare(
        "key",
        "Cache isolation",
        "Requests that share KV cache entries. key: those of one API key; group: those of one "
        "key group; shared: all, so that one key can infer from response times what another "
        "has sent.",
        _LIVE,
        choices=ISOLATIONS,
    )
    allowed_origins: tuple[str, ...] = declare(
        ("*",),
        "Allowed origins",
        "Origins of web pages whose scripts may call the endpoint with a key, one per line. "
        "*: every origin; empty: none.",
        _LIVE,
        remedy="Give origins such as https://app.example.com, or * alone.",
        rule=allowed_origins_problem,
    )
    prompt_preview: bool = declare(
        False,
        "Prompt preview",
        "Decisions and prefixes show the first 120 characters of a prompt to everyone who may see "
        "the endpoint. Routers keep them in memory only. Off: no prompt text is kept anywhere.",
        _LIVE,
    )
    record_traffic: bool = declare(
        False,
        "Traffic recording",
        "Arrivals, keyed hashes of prompt prefixes, token counts and latencies of requests, never "
        "text; for what-if analysis and export.",
        _LIVE,
    )
    record_days: int = declare(
        7,
        "Recorded days",
        "Older hours are deleted.",
        _LIVE,
        remedy="Give whole days from 1 to 90.",
        minimum=1,
        maximum=90,
    )
    record_mib: int = declare(
        256,
        "Recording size (MiB)",
        "In the console's database, compressed; the oldest hours are deleted first. An hour can "
        "take a quarter.",
        _LIVE,
        remedy="Give whole MiB from 1 to 65536.",
        minimum=1,
        maximum=65_536,
    )

    @property
    def effective_strategy(self) -> str:
        """Return the strategy; round robin with routing off."""
        return self.strategy if self.enabled else "roundrobin"


@dataclass(frozen=True, slots=True)
class ResourcesSpec:
    cpus: float = declare(
        1.0,
        "CPUs",
        "Per worker.",
        remedy="Give a number above 0, such as 1.",
        above=0,
        maximum=1024,
    )
    memory_gib: float = declare(
        4.0,
        "Memory (GiB)",
        "Per worker, without L1.",
        remedy="Give a number of GiB above 0, such as 4.",
        above=0,
        maximum=65536,
    )
    gpus: int = declare(
        0,
        "GPUs",
        "Per worker. 0: the model runs on the CPU.",
        remedy="Give a whole number, 0 for none.",
        minimum=0,
        maximum=16,
    )


@dataclass(frozen=True, slots=True)
class EndpointFields:
    """All fields in the order of forms, texts and messages."""

    name: str = declare(
        None,
        "Name",
        "Used in URLs, file names and metrics. Cannot be changed later.",
        _FIXED,
        remedy="Use up to 40 lower-case letters, digits and dashes.",
        rule=name_problem,
    )
    model: str = declare(
        None,
        "Model",
        "A known model, a Hugging Face name or an absolute path on the worker's machine.",
        remedy="Give a known model, organisation/name or an absolute path.",
        rule=model_problem,
    )
    engine: str = declare(
        "vllm",
        "Engine",
        "vllm serves the model; simulated returns generated responses, for tests.",
        choices=ENGINES,
    )
    replicas: int = declare(
        1,
        "Replicas",
        "Number of workers; with autoscaling the initial one. 0 pauses the endpoint.",
        _LIVE,
        minimum=0,
        maximum=MAX_REPLICAS,
    )
    cache: CacheSpec = field(default_factory=CacheSpec)
    routing: RoutingSpec = field(default_factory=RoutingSpec)
    aliases: tuple[str, ...] = declare(
        (),
        "Model aliases",
        "Further model names that requests may use, one per line.",
        remedy='Give a list of model names, such as ["gpt-4o-mini"].',
        rule=aliases_problem,
    )
    worker_args: tuple[str, ...] = declare(
        (),
        "Worker arguments",
        "vLLM options, one per line, such as --max-model-len=2048.",
        remedy='Give a list of texts, such as ["--max-model-len=2048"].',
        rule=worker_args_problem,
    )
    media_domains: tuple[str, ...] = declare(
        (),
        "Media hosts",
        "Hosts from which workers may fetch images, audio and video named by URL in a request, "
        "one per line. Empty: only data: URLs. *: any host, including the internal network.",
        remedy="Give host names such as images.example.com, or * alone.",
        rule=media_domains_problem,
    )
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    placement: PlacementSpec = field(default_factory=PlacementSpec)
    source: SourceSpec = field(default_factory=SourceSpec)
    pod: PodSpec = field(default_factory=PodSpec)
    rollout: RolloutSpec = field(default_factory=RolloutSpec)
    scaling: ScalingSpec = field(default_factory=ScalingSpec)
    exposure: ExposureSpec = field(default_factory=ExposureSpec)
    router: RouterSpec = field(default_factory=RouterSpec)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    monitoring: MonitoringSpec = field(default_factory=MonitoringSpec)
    pd: PdSpec = field(default_factory=PdSpec)
    tags: Plain = declare(
        {}, "Tags", "Labels of all created objects, as KEY=VALUE.", _LIVE, **PAIRS
    )
    manifest: Plain = declare({}, "Manifest", "The imported InferenceEndpointConfig.", _LIVE)


FIELDS = tuple(declared_fields(EndpointFields))
SECTIONS = tuple(dict.fromkeys(path for field in FIELDS for path in section_paths(field.path)))
BY_PATH = {spec_field.path: spec_field for spec_field in FIELDS}
DEFAULTS: dict[str, Any] = {
    name: kind()
    for name, kind in get_type_hints(EndpointFields).items()
    if name in SECTIONS and name not in ("cache", "routing", "resources")
}
"""Default of each cluster section."""
ANYWHERE = frozenset(
    path
    for path in BY_PATH
    if path in ("tags", "manifest", "router.replicas") or path.startswith("router.state_store.")
)
"""Fields of clusters that also apply to this machine."""
CLUSTER_FIELDS = tuple(f for f in FIELDS if f.path.partition(".")[0] in {*DEFAULTS, *ANYWHERE})
