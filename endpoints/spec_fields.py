"""The fields of an endpoint, declared once: type, bounds, words for people, what a change does.

Promises that the form's labels and help, the API's messages and the marks "restarts workers" or
"applies live" come from this one table. Must not know Django, other fields or the machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

STRATEGIES = ("prefixaware", "session", "roundrobin")
BACKENDS = ("tieredstorage", "redis")
POLICIES = ("lru", "arc")
ENGINES = ("vllm", "simulated")
MAX_REPLICAS = 64

Problem = tuple[str, str, str]
"""message, remedy, code"""


class Effect(StrEnum):
    """What changing a field of a running endpoint does."""

    FIXED = "fixed"
    RESTART = "restart"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class SpecField:
    """`kind` is str, int, float, bool or tuple (of str). `default` None means required."""

    path: str
    kind: type
    default: Any
    label: str
    help: str
    remedy: str
    effect: Effect
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    rule: Callable[[Any], Problem | None] | None = None

    def accept(self, value: Any) -> tuple[Any, Problem | None]:
        """The value in the field's own type, or what is wrong with it."""
        typed, fits = _typed(self.kind, value)
        if not fits:
            return None, (f"{self.label} must be {_KIND_NAMES[self.kind]}.", self.remedy, "type")
        if self.choices and typed not in self.choices:
            return None, self._not_a_choice(typed)
        bounds = self._out_of_bounds(typed)
        if bounds:
            return None, (bounds, self.remedy, "out_of_range")
        return typed, self.rule(typed) if self.rule else None

    def _not_a_choice(self, value: Any) -> Problem:
        remedy = f"Choose one of: {', '.join(self.choices)}."
        if self.path == "routing.strategy" and value == "kvaware":
            return "The strategy kvaware is not available yet.", remedy, "not_available"
        return f"{value!r} is not a known {self.label.lower()}.", remedy, "invalid_choice"

    def _out_of_bounds(self, value: Any) -> str:
        if self.kind not in (int, float):
            return ""
        if self.minimum is not None and value < self.minimum:
            return f"{self.label} cannot be less than {self.minimum:g}."
        if self.above is not None and value <= self.above:
            return f"{self.label} must be more than {self.above:g}."
        if self.maximum is not None and value > self.maximum:
            return f"{self.label} cannot be more than {self.maximum:g}."
        return ""


_KIND_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of texts",
}


def _typed(kind: type, value: Any) -> tuple[Any, bool]:
    if kind is bool:
        return value, isinstance(value, bool)
    if isinstance(value, bool):
        return None, False
    if kind is int:
        return value, isinstance(value, int)
    if kind is float:
        finite = isinstance(value, int | float) and abs(value) < 1e15
        return (float(value) if finite else None), finite
    if kind is tuple:
        fits = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return (tuple(value) if fits else None), fits
    return value, isinstance(value, str) and not _CONTROL.search(value)


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_HF_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_MODEL_WORD = re.compile(r"[A-Za-z0-9][\w.-]*")
_SESSION_KEY = re.compile(r"(header|cookie):[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}|body:[\w.-]{1,64}")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?", re.DOTALL)
RESERVED_NAMES = ("new",)

# Flags whose value Emberline decides, and why a user cannot.
OWN_FLAGS = {
    "--host": "the provisioner chooses where a worker listens",
    "--port": "the provisioner chooses where a worker listens",
    "--listen": "the provisioner chooses where a worker listens",
    "--uds": "the provisioner chooses where a worker listens",
    "--root-path": "the router forwards paths unchanged",
    "--model": "the field model sets it",
    "--served-model-name": "the field model sets it",
    "--block-size": "the field cache.l1.chunk_tokens sets it",
    "--enable-prefix-caching": "caching rests on it",
    "--no-enable-prefix-caching": "caching rests on it",
    "--prefix-caching-hash-algo": "all workers that share L2 must agree on it",
    "--kv-transfer-config": "the fields under cache set it",
    "--kv-offloading-size": "the fields under cache set it",
    "--kv-offloading-backend": "the fields under cache set it",
    "--kv-events-config": "the router's needs set it",
    "--enable-prompt-tokens-details": "the dashboards rest on it",
    "--api-key": "secrets do not belong on a command line; create a key on the endpoint's page",
    "--hf-token": "secrets do not belong on a command line; put the model into a folder",
    "--ssl-keyfile": "workers are reached through the router only",
    "--ssl-certfile": "workers are reached through the router only",
    "--headless": "a worker must answer HTTP",
    "--l1-bytes": "the fields under cache set it",
    "--l2-url": "the fields under cache set it",
}


def _name(value: str) -> Problem | None:
    remedy = "Use up to 40 lower-case letters, digits and dashes, starting with a letter."
    if len(value) > 40 or not _NAME.fullmatch(value):
        return f"{value!r} cannot be a name.", remedy, "invalid_name"
    if value in RESERVED_NAMES:
        problem = f"{value!r} is a word of the console's own addresses."
        return problem, "Choose another name.", "reserved_name"
    return None


def _model(value: str) -> Problem | None:
    if value.startswith("/") or _HF_ID.fullmatch(value) or _MODEL_WORD.fullmatch(value):
        return None
    return (
        f"{value!r} is neither a known model, a folder nor a Hugging Face name.",
        "Give a model of the list, an absolute path or organisation/name.",
        "invalid_model",
    )


def _session_key(value: str) -> Problem | None:
    if _SESSION_KEY.fullmatch(value):
        return None
    return (
        f"{value!r} does not say where the session is found.",
        "Write header:NAME, cookie:NAME or body:FIELD, such as header:x-session-id.",
        "invalid_session_key",
    )


def redis_url_problem(value: str) -> Problem | None:
    """What is wrong with the address of a Redis, if anything. The empty address passes."""
    if not value:
        return None
    remedy = "Write redis://HOST:PORT or redis://HOST:PORT/DATABASE."
    try:
        parts = urlsplit(value)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        return f"The address cannot be read: {error}.", remedy, "invalid_url"
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        return (
            "The address holds a user name or password.",
            "Take it out of the address and give cache.l2.password_file.",
            "secret_in_url",
        )
    if parts.scheme != "redis":
        return f"The scheme {parts.scheme!r} is not served.", remedy, "invalid_scheme"
    if not host or port == 0:
        return "The address names no host.", remedy, "invalid_url"
    if parts.query or parts.fragment or not re.fullmatch(r"(/\d{0,3})?", parts.path):
        return "The address holds more than host, port and database.", remedy, "invalid_url"
    return None


def _password_file(value: str) -> Problem | None:
    if not value or value.startswith("/"):
        return None
    return "The password file must be an absolute path.", "Start it with /.", "invalid_path"


def showable(path: str, value: Any) -> Any:
    """A refused value as it may be repeated to people and logs: without what could be a secret."""
    if path == "cache.l2.url" and isinstance(value, str):
        return re.sub(r"(//)?[^/@]*(:[^/@]*)?@", r"\1***@", value)
    if path == "worker_args" and isinstance(value, list | tuple):
        return [flag_of(item) or "…" if isinstance(item, str) else item for item in value]
    return value


def flag_of(argument: str) -> str:
    """The flag in an argument, as vLLM reads it: `--served_model_name=x` → `--served-model-name`.
    Empty when the argument is the value of the flag before it."""
    if not _FLAG.fullmatch(argument):
        return ""
    return argument.partition("=")[0].replace("_", "-")


def _worker_args(value: tuple[str, ...]) -> Problem | None:
    if value and not flag_of(value[0]):
        return (
            f"{value[0]!r} is not a flag.",
            "Start with a flag, one argument a line, such as --max-model-len=2048.",
            "invalid_argument",
        )
    if any(_CONTROL.search(item) or not item for item in value):
        return (
            "An argument is empty or holds control characters.",
            "Give one argument a line.",
            "invalid_argument",
        )
    for item in value:
        flag = flag_of(item)
        if flag in OWN_FLAGS:
            return f"{flag} is set by Emberline: {OWN_FLAGS[flag]}.", f"Remove {flag}.", "collision"
    return None


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
        rule=_name,
    ),
    SpecField(
        "model",
        str,
        None,
        "Model",
        "A model of the list, an absolute path on this machine, or a Hugging Face name.",
        "Give a model of the list, an absolute path or organisation/name.",
        Effect.RESTART,
        rule=_model,
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
        _L2 + "url",
        str,
        "",
        "L2 address",
        "For redis only, such as redis://cache.internal:6379/0.",
        "Write redis://HOST:PORT or redis://HOST:PORT/DATABASE.",
        Effect.RESTART,
        rule=redis_url_problem,
    ),
    SpecField(
        _L2 + "password_file",
        str,
        "",
        "L2 password file",
        "For redis only: a file on this machine whose content is the password.",
        "Give an absolute path, or leave it empty.",
        Effect.RESTART,
        rule=_password_file,
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
        "prefixaware: the worker which knows most of the prompt; session: one worker for each "
        "session; roundrobin: in turn.",
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
        rule=_session_key,
    ),
    SpecField(
        "worker_args",
        tuple,
        (),
        "Worker arguments",
        "Further arguments, one a line.",
        'Give a list of texts, such as ["--max-model-len=2048"].',
        Effect.RESTART,
        rule=_worker_args,
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
)

SECTIONS = ("cache", "cache.l1", "cache.l2", "routing", "resources")
BY_PATH = {spec_field.path: spec_field for spec_field in FIELDS}
