"""Checks that an endpoint's workers are identical and support KV events. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from routing.doctor.facts import CacheConfig, FleetFacts, Model, WorkerFacts
from routing.doctor.findings import (
    DoctorFinding,
    Severity,
    doctor_check,
    groups,
    require_one,
    require_two,
    worker_finding,
)
from routing.doctor.inspection import CHAT, PLAIN

# Tested vLLM version.
TESTED_VERSION = (0, 32)
_RANDOM_SEED = ("xxhash", "xxhash_cbor")  # random per process unless PYTHONHASHSEED is set

Part = Callable[[WorkerFacts], Any]


def _differing_groups(facts: FleetFacts, part: Part) -> list[tuple[Any, tuple[str, ...]]]:
    """Return groups of workers by value, empty if all agree; missing values are ignored."""
    values = [(worker.name, part(worker)) for worker in facts.workers]
    value_groups = list(
        groups((name, value) for name, value in values if value not in (None, "", ()))
    )
    return value_groups if len(value_groups) > 1 else []


def _difference(
    facts: FleetFacts,
    part: Part,
    show: Callable[[Any], str],
    severity: Severity,
    what: str,
    fix: str,
) -> Iterator[DoctorFinding]:
    """Yield a finding about the workers outside the largest group, if `part` differs."""
    if differing := _differing_groups(facts, part):
        lines = tuple(f"{show(value)}: {', '.join(names)}" for value, names in differing)
        minority = tuple(name for _, names in differing[1:] for name in names)
        yield DoctorFinding(severity, what, fix, lines, minority)


def _version(worker: WorkerFacts) -> str:
    return worker.version.found or ""


def _cache(worker: WorkerFacts) -> CacheConfig:
    return worker.cache.found or CacheConfig(False)


@doctor_check(
    "VersionDiffers",
    "All workers run one version of vLLM",
    require_two(attrgetter("version")),
    kv=False,
)
def version_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    return _difference(
        facts,
        _version,
        "vLLM {}".format,
        Severity.WARNING,
        "Workers run different versions of vLLM; metrics and block layout may differ.",
        "Use one image for all workers, by digest instead of a moving tag. During a rollout "
        "this is expected.",
    )


@doctor_check(
    "VersionUnproven",
    f"Workers run vLLM {'.'.join(map(str, TESTED_VERSION))} (tested version)",
    require_one(attrgetter("version"), "its version"),
)
def version_unproven(facts: FleetFacts) -> Iterator[DoctorFinding]:
    other: dict[str, str] = {}
    old = False
    for worker in facts.workers:
        numbers = re.match(r"v?(\d+)\.(\d+)", _version(worker))
        if numbers is None:
            continue
        version = (int(numbers[1]), int(numbers[2]))
        if version != TESTED_VERSION:
            other[worker.name] = f"vLLM {_version(worker)}"
            old |= version < TESTED_VERSION
    tested = ".".join(map(str, TESTED_VERSION))
    return worker_finding(
        Severity.WARNING if old else Severity.INFO,
        f"KV events are tested with vLLM {tested}; these workers run another version."
        + (
            " Older versions do not report their event endpoint and seed block hashes randomly."
            * old
        ),
        f"Use vLLM {tested}. With older versions set the sockets by --kv-events and --kv-replay "
        "and set PYTHONHASHSEED=0 for every worker."
        if old
        else "Check the other findings and the probe result to see whether it works.",
        other,
    )


def _models(worker: WorkerFacts) -> tuple[str, ...]:
    """Return the loaded base models, without adapters and regardless of served names."""
    base: list[Model] = [model for model in worker.models.found or () if not model.parent]
    return tuple(
        sorted({f"{model.root or model.id} ({model.max_length} tokens)" for model in base})
    )


@doctor_check(
    "ModelDiffers",
    "All workers serve the same model and context length",
    require_two(attrgetter("models")),
    kv=False,
)
def model_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    return _difference(
        facts,
        _models,
        ", ".join,
        Severity.ERROR,
        "Workers serve different models or context lengths: responses differ between workers, "
        "and their caches cannot be shared.",
        "Use one endpoint per model, and the same --model and --max-model-len for all workers.",
    )


@doctor_check(
    "PrefixCachingOff",
    "Prefix caching is enabled on all workers",
    require_one(attrgetter("cache"), "its cache configuration"),
    kv=False,
)
def prefix_caching_off(facts: FleetFacts) -> Iterator[DoctorFinding]:
    off = [w.name for w in facts.workers if _cache(w).prefix_caching == "False"]
    return worker_finding(
        Severity.ERROR,
        "Prefix caching is disabled on workers, so no strategy can get cache hits there.",
        "Start them without --no-enable-prefix-caching.",
        dict.fromkeys(off, 'enable_prefix_caching="False"'),
    )


@doctor_check(
    "BlockSizeDiffers", "All workers use the same block size", require_two(attrgetter("cache"))
)
def block_size_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    return _difference(
        facts,
        lambda worker: _cache(worker).block_size,
        "--block-size {}".format,
        Severity.WARNING,
        "Workers use different block sizes. The router hashes every prompt once per size, and "
        "workers with larger blocks match less of the same prefix.",
        "Start all workers with the same --block-size.",
    )


@doctor_check(
    "HashAlgorithmDiffers",
    "All workers use the same block hash algorithm",
    require_two(attrgetter("cache")),
    kv=False,
)
def hash_algorithm_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    return _difference(
        facts,
        lambda worker: _cache(worker).hash_algorithm,
        "--prefix-caching-hash-algo {}".format,
        Severity.WARNING if _shared(facts) else Severity.INFO,
        "Workers use different block hash algorithms. Routing is not affected, but blocks in a "
        "shared L2 cache are not found by the other workers.",
        "Start all workers with the same --prefix-caching-hash-algo (sha256 is the default).",
    )


@doctor_check(
    "HashSeedRandom",
    "Block hashes are the same in every process",
    require_one(attrgetter("cache"), "its hash algorithm"),
    kv=False,
)
def hash_seed(facts: FleetFacts) -> Iterator[DoctorFinding]:
    algorithms = {w.name: _cache(w).hash_algorithm for w in facts.workers}
    return worker_finding(
        Severity.WARNING if _shared(facts) else Severity.INFO,
        "With this algorithm each process seeds its block hashes randomly. Routing is not "
        "affected, but blocks in L2 are not found by other workers or after a restart.",
        "Use --prefix-caching-hash-algo sha256, or set PYTHONHASHSEED=0 for every worker "
        "(workers do not report whether it is set).",
        {name: algorithm for name, algorithm in algorithms.items() if algorithm in _RANDOM_SEED},
    )


def _shared(facts: FleetFacts) -> bool:
    return any(_cache(worker).offloads for worker in facts.workers)


def _ids(probe: str) -> Part:
    def part(worker: WorkerFacts) -> Any:
        """Return the token ids; a rejection is a value too, since other workers may accept."""
        if worker.tokens.found is None:
            return None
        ids = worker.tokens.found[probe]
        return "rejected" if ids is None else (len(ids), ids)

    return part


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value[0]} tokens, starting with {list(value[1][:6])}"


@doctor_check(
    "TokenizerDiffers",
    "All workers tokenize text identically",
    require_two(attrgetter("tokens")),
    kv=False,
)
def tokenizer_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    return _difference(
        facts,
        _ids(PLAIN),
        _shown,
        Severity.ERROR,
        "Workers tokenize the same text differently, so cached blocks of one never match the "
        "tokens of another.",
        "Start all workers with the same model and revision, and without --tokenizer or with the "
        "same one.",
    )


@doctor_check(
    "TemplateDiffers",
    "All workers render chats identically",
    require_two(attrgetter("tokens")),
    kv=False,
)
def template_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if _differing_groups(facts, _ids(PLAIN)):
        return  # explains different chat tokens already
    yield from _difference(
        facts,
        _ids(CHAT),
        _shown,
        Severity.ERROR,
        "Workers render the same chat differently (different chat templates), so a conversation "
        "that moves to another worker gets no cache hit.",
        "Start all workers with the same --chat-template (or none, and the same revision of the "
        "model), --chat-template-content-format and --default-chat-template-kwargs.",
    )
