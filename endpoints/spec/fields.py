"""Field table of an endpoint: types, bounds, texts and effects of a change.

Source of the form's labels and help, of API messages, and of the marks "restarts workers" and
"applies live".
"""

from __future__ import annotations

from endpoints.spec.cluster_fields import CLUSTER_FIELDS
from endpoints.spec.field import Effect, SpecField
from endpoints.spec.section import SECTIONS as CLUSTER_SECTIONS
from endpoints.spec.validators import (
    media_domains_problem,
    model_problem,
    name_problem,
    password_file_problem,
    redis_url_problem,
    session_key_problem,
    worker_args_problem,
)

__all__ = ["BACKENDS", "BY_PATH", "ENGINES", "FIELDS", "POLICIES", "SECTIONS", "STRATEGIES"]
__all__ += ["ISOLATIONS", "MAX_REPLICAS", "Effect", "SpecField"]

ISOLATIONS = ("key", "group", "shared")
STRATEGIES = ("prefixaware", "kvaware", "session", "roundrobin")
BACKENDS = ("tieredstorage", "redis")
POLICIES = ("lru", "arc")
ENGINES = ("vllm", "simulated")
MAX_REPLICAS = 64

_L1 = "cache.l1."
_L2 = "cache.l2."

FIELDS: tuple[SpecField, ...] = (
    SpecField(
        "name",
        str,
        None,
        "Name",
        "Part of addresses, files and metrics. It cannot be changed.",
        "Use up to 40 lower-case letters, digits and dashes.",
        Effect.FIXED,
        rule=name_problem,
    ),
    SpecField(
        "model",
        str,
        None,
        "Model",
        "A model of the list, an absolute path on this machine, or a Hugging Face name.",
        "Give a model of the list, an absolute path or organisation/name.",
        Effect.RESTART,
        rule=model_problem,
    ),
    SpecField(
        "engine",
        str,
        "vllm",
        "Engine",
        "vllm serves the model; simulated answers like it without computing, for trying things.",
        f"Choose one of: {', '.join(ENGINES)}.",
        Effect.RESTART,
        choices=ENGINES,
    ),
    SpecField(
        "replicas",
        int,
        1,
        "Replicas",
        "How many workers serve the model. 0 pauses the endpoint.",
        f"Give a whole number from 0 to {MAX_REPLICAS}.",
        Effect.LIVE,
        minimum=0,
        maximum=MAX_REPLICAS,
    ),
    SpecField(
        _L1 + "enabled",
        bool,
        True,
        "L1 cache",
        "Keep what was computed in each worker's memory.",
        "Give true or false.",
        Effect.RESTART,
    ),
    SpecField(
        _L1 + "size_gib",
        float,
        0.5,
        "L1 size",
        "GiB for each worker, beside the memory given under Resources.",
        "Give a number of GiB above 0, such as 0.5.",
        Effect.RESTART,
        above=0,
        maximum=4096,
    ),
    SpecField(
        _L1 + "policy",
        str,
        "lru",
        "L1 eviction policy",
        "lru drops what was used longest ago; arc also keeps what is used often.",
        f"Choose one of: {', '.join(POLICIES)}.",
        Effect.RESTART,
        choices=POLICIES,
    ),
    SpecField(
        _L1 + "chunk_tokens",
        int,
        32,
        "Chunk size",
        "Tokens which are stored and found together. Smaller finds more, larger costs less.",
        "Give a multiple of 16, such as 32.",
        Effect.RESTART,
        minimum=16,
        maximum=4096,
    ),
    SpecField(
        _L2 + "enabled",
        bool,
        False,
        "L2 cache",
        "Share what was computed between workers.",
        "Give true or false.",
        Effect.RESTART,
    ),
    SpecField(
        _L2 + "backend",
        str,
        "tieredstorage",
        "L2 backend",
        "tieredstorage is Emberline's own cache tier; redis is a Redis or Valkey of yours.",
        f"Choose one of: {', '.join(BACKENDS)}.",
        Effect.RESTART,
        choices=BACKENDS,
    ),
    SpecField(
        _L2 + "tier",
        str,
        "default",
        "Cache tier",
        "For tieredstorage: which of the tiers on the page Cache. default is made on first need.",
        "Give the name of a cache tier, such as default.",
        Effect.RESTART,
    ),
    SpecField(
        _L2 + "url",
        str,
        "",
        "L2 address",
        "For redis only, such as redis://cache.internal:6379/0; rediss:// for TLS, "
        "redis://a:6379,b:6379?nodes=cluster for a cluster.",
        "Write redis://HOST:PORT or redis://HOST:PORT/DATABASE.",
        Effect.RESTART,
        rule=redis_url_problem,
    ),
    SpecField(
        _L2 + "password_file",
        str,
        "",
        "L2 password file",
        "For redis only: a file in the console's folder EMBERLINE_L2_SECRETS whose content is the "
        "password.",
        "Give the absolute path of a file in EMBERLINE_L2_SECRETS, or leave it empty.",
        Effect.RESTART,
        rule=password_file_problem,
    ),
    SpecField(
        _L2 + "ttl_s",
        int,
        3600,
        "L2 time to live",
        "Seconds after which an entry is dropped.",
        "Give whole seconds from 1 to 2592000 (30 days).",
        Effect.RESTART,
        minimum=1,
        maximum=2_592_000,
    ),
    SpecField(
        "routing.enabled",
        bool,
        True,
        "Intelligent routing",
        "Off: the router hands requests to the workers in turn.",
        "Give true or false.",
        Effect.LIVE,
    ),
    SpecField(
        "routing.strategy",
        str,
        "prefixaware",
        "Strategy",
        "prefixaware: the worker which was sent most of the prompt before; kvaware: the worker "
        "which reports to hold most of it; session: one worker for each session; roundrobin: in "
        "turn.",
        f"Choose one of: {', '.join(STRATEGIES)}.",
        Effect.LIVE,
        choices=STRATEGIES,
    ),
    SpecField(
        "routing.session_key",
        str,
        "header:x-session-id",
        "Session key",
        "Where the strategy session finds it: header:NAME, cookie:NAME or body:FIELD.",
        "Write header:NAME, cookie:NAME or body:FIELD.",
        Effect.LIVE,
        rule=session_key_problem,
    ),
    SpecField(
        "routing.cache_isolation",
        str,
        "key",
        "Cache isolation",
        "Whose requests may reuse each other's KV cache. key: those of one API key; group: those "
        "of one key group; shared: all, which lets one key find out what another has sent.",
        f"Choose one of: {', '.join(ISOLATIONS)}.",
        Effect.LIVE,
        choices=ISOLATIONS,
    ),
    SpecField(
        "worker_args",
        tuple,
        (),
        "Worker arguments",
        "Further arguments, one a line.",
        'Give a list of texts, such as ["--max-model-len=2048"].',
        Effect.RESTART,
        rule=worker_args_problem,
    ),
    SpecField(
        "media_domains",
        tuple,
        (),
        "Media hosts",
        "Hosts from which workers may fetch images, audio and video that a request names by URL, "
        "one a line. Empty: none, only data: URLs. *: any host, also of the internal network.",
        "Give host names such as images.example.com, or * alone.",
        Effect.RESTART,
        rule=media_domains_problem,
    ),
    SpecField(
        "resources.cpus",
        float,
        1.0,
        "CPUs",
        "For each worker.",
        "Give a number above 0, such as 1.",
        Effect.RESTART,
        above=0,
        maximum=1024,
    ),
    SpecField(
        "resources.memory_gib",
        float,
        4.0,
        "Memory",
        "GiB for each worker, without L1.",
        "Give a number of GiB above 0, such as 4.",
        Effect.RESTART,
        above=0,
        maximum=65536,
    ),
    SpecField(
        "resources.gpus",
        int,
        0,
        "GPUs",
        "For each worker. 0 serves on the CPU.",
        "Give a whole number, 0 for none.",
        Effect.RESTART,
        minimum=0,
        maximum=16,
    ),
    *CLUSTER_FIELDS,
)

SECTIONS = ("cache", "cache.l1", "cache.l2", "routing", "resources", *CLUSTER_SECTIONS)
BY_PATH = {spec_field.path: spec_field for spec_field in FIELDS}
