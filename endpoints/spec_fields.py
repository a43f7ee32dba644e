"""The fields of an endpoint, declared once: type, bounds, words for people, what a change does.

Promises that the form's labels and help, the API's messages and the marks "restarts workers" or
"applies live" come from this one table. Must not know Django, other fields or the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from endpoints.spec_words import (
    CONTROL,
    Problem,
    model_problem,
    name_problem,
    password_file_problem,
    redis_url_problem,
    session_key_problem,
    worker_args_problem,
)

STRATEGIES = ("prefixaware", "kvaware", "session", "roundrobin")
BACKENDS = ("tieredstorage", "redis")
POLICIES = ("lru", "arc")
ENGINES = ("vllm", "simulated")
MAX_REPLICAS = 64
_READABLE = 1e300
"""A whole number beyond a float's range cannot even be shown in short."""


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
            return None, (
                f"{self.label} must be {_KIND_NAMES[self.kind]}{_instead(self.kind, value)}.",
                self.remedy,
                "type",
            )
        if self.choices and typed not in self.choices:
            return None, self._not_a_choice(typed)
        bounds = self._out_of_bounds(typed)
        if bounds:
            return None, (bounds, self.remedy, "out_of_range")
        return typed, self.rule(typed) if self.rule else None

    def _not_a_choice(self, value: Any) -> Problem:
        remedy = f"Choose one of: {', '.join(self.choices)}."
        return f"{value!r} is not a known {self.label.lower()}.", remedy, "invalid_choice"

    def _out_of_bounds(self, value: Any) -> str:
        if self.kind not in (int, float):
            return ""
        given = f"{value:g}" if abs(value) < _READABLE else "a number of very many digits"
        if self.minimum is not None and value < self.minimum:
            return f"{self.label} cannot be less than {self.minimum:g}: {given} was given."
        if self.above is not None and value <= self.above:
            return f"{self.label} must be more than {self.above:g}: {given} was given."
        if self.maximum is not None and value > self.maximum:
            return f"{self.label} cannot be more than {self.maximum:g}: {given} was given."
        return ""


def _instead(kind: type, value: Any) -> str:
    """What was given; not for texts, which may be addresses with a secret inside."""
    if kind in (str, tuple):
        return ""
    text = repr(value)
    return f", not {text}" if len(text) <= 60 else f", not {text[:60]}…"


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
    return value, isinstance(value, str) and not CONTROL.search(value)


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
        "For redis only: a file on this machine whose content is the password.",
        "Give an absolute path, or leave it empty.",
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
