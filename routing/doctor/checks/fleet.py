"""Checks that an endpoint's workers are identical and support KV events. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from routing.doctor.checks import conditions
from routing.doctor.facts import CacheConfig, FleetFacts, Model, Statement, WorkerFacts
from routing.doctor.findings import DoctorCheck, DoctorFinding, Severity, groups
from routing.doctor.inspection import CHAT, PLAIN

# Tested vLLM version.
TESTED_VERSION = (0, 32)
_RANDOM_SEED = ("xxhash", "xxhash_cbor")  # random per process unless PYTHONHASHSEED is set

Part = Callable[[WorkerFacts], Any]


def _differing_groups(facts: FleetFacts, part: Part) -> list[tuple[Any, tuple[str, ...]]]:
    """Return groups of workers by value, empty if all agree; missing values are ignored."""
    told = [(worker.name, part(worker)) for worker in facts.workers]
    found = list(groups((name, value) for name, value in told if value not in (None, "", ())))
    return found if len(found) > 1 else []


def _minority(found: list[tuple[Any, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return the workers outside the largest group."""
    return tuple(name for _, names in found[1:] for name in names)


def _lines(found: list[tuple[Any, tuple[str, ...]]], what: str) -> tuple[str, ...]:
    return tuple(f"{what} {value}: {', '.join(names)}" for value, names in found)


def _version(worker: WorkerFacts) -> str:
    return worker.version.found or ""


def _cache(worker: WorkerFacts) -> CacheConfig:
    return worker.cache.found or CacheConfig(False)


def version_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if found := _differing_groups(facts, _version):
        yield DoctorFinding(
            Severity.WARNING,
            "Workers run different versions of vLLM: what they report and how they cut blocks may "
            "differ.",
            "Give all workers one image, by its digest rather than by a tag that moves. During a "
            "rollout this passes by itself.",
            _lines(found, "vLLM"),
            _minority(found),
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
            other[worker.name] = _version(worker)
            old |= version < TESTED_VERSION
    if other:
        shown = ".".join(map(str, TESTED_VERSION))
        yield DoctorFinding(
            Severity.WARNING if old else Severity.INFO,
            f"KV events were tried with vLLM {shown}; these workers run another version."
            + (" Older ones tell not where they publish, and seed block hashes at random." * old),
            f"Use vLLM {shown}. With an older one name its sockets by --kv-events and --kv-replay "
            "and set PYTHONHASHSEED=0 for every worker."
            if old
            else "Look at the next findings and at the probe's result: they say whether it works.",
            tuple(f"{name}: vLLM {version}" for name, version in other.items()),
            tuple(other),
        )


def _models(worker: WorkerFacts) -> tuple[str, ...]:
    """Return the loaded base models, without adapters and regardless of served names."""
    base: list[Model] = [model for model in worker.models.found or () if not model.parent]
    return tuple(
        sorted({f"{model.root or model.id} ({model.max_length} tokens)" for model in base})
    )


def model_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if found := _differing_groups(facts, _models):
        yield DoctorFinding(
            Severity.ERROR,
            "Workers of this endpoint serve different models, or with different lengths: one "
            "caller gets different answers from them, and no cache of one is worth a thing to "
            "the other.",
            "Give each model an endpoint of its own; give all workers the same --model and "
            "--max-model-len.",
            tuple(f"{', '.join(value)}: {', '.join(names)}" for value, names in found),
            _minority(found),
        )


def prefix_caching_off(facts: FleetFacts) -> Iterator[DoctorFinding]:
    off = [w.name for w in facts.workers if _cache(w).prefix_caching == "False"]
    if off:
        yield DoctorFinding(
            Severity.ERROR,
            "Workers cache no prefixes at all: no strategy can find anything there.",
            "Start them without --no-enable-prefix-caching.",
            tuple(f'{name}: enable_prefix_caching="False"' for name in off),
            tuple(off),
        )


def block_size_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if found := _differing_groups(facts, lambda worker: _cache(worker).block_size):
        yield DoctorFinding(
            Severity.WARNING,
            "Workers cut prompts into blocks of different sizes. The router counts with each "
            "worker's own, at the price of hashing every prompt several times, and a worker with "
            "large blocks is credited less of the same prefix.",
            "Start all workers with the same --block-size.",
            _lines(found, "--block-size"),
            _minority(found),
        )


def hash_algorithm_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if found := _differing_groups(facts, lambda worker: _cache(worker).hash_algorithm):
        yield DoctorFinding(
            Severity.WARNING if _shared(facts) else Severity.INFO,
            "Workers name their blocks by different algorithms. The router does not mind, but a "
            "cache they share (L2) never finds for one what another has stored.",
            "Start all workers with the same --prefix-caching-hash-algo (sha256 is the default).",
            _lines(found, "--prefix-caching-hash-algo"),
            _minority(found),
        )


def hash_seed(facts: FleetFacts) -> Iterator[DoctorFinding]:
    random = [w.name for w in facts.workers if _cache(w).hash_algorithm in _RANDOM_SEED]
    if random:
        yield DoctorFinding(
            Severity.WARNING if _shared(facts) else Severity.INFO,
            "With this algorithm each process seeds its block hashes at random. The router does "
            "not mind, but what a worker stored in L2 is lost to the others, and to itself after "
            "a restart.",
            "Use --prefix-caching-hash-algo sha256, or set PYTHONHASHSEED=0 for every worker "
            "(if it is set already, all is well: a worker does not tell).",
            tuple(f"{name}: {_algorithm(facts, name)}" for name in random),
            tuple(random),
        )


def _shared(facts: FleetFacts) -> bool:
    return any(_cache(worker).offloads for worker in facts.workers)


def _algorithm(facts: FleetFacts, name: str) -> str:
    worker = facts.worker(name)
    return _cache(worker).hash_algorithm if worker else ""


def _ids(probe: str) -> Part:
    def part(worker: WorkerFacts) -> Any:
        """Return the token ids; a rejection is a value too, since other workers may accept."""
        if worker.tokens.found is None:
            return None
        ids = worker.tokens.found[probe]
        return "refused" if ids is None else (len(ids), ids)

    return part


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value[0]} tokens, beginning {list(value[1][:6])}"


def _tokenizer_lines(found: list[tuple[Any, tuple[str, ...]]]) -> tuple[str, ...]:
    return tuple(f"{_shown(value)}: {', '.join(names)}" for value, names in found)


def tokenizer_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if found := _differing_groups(facts, _ids(PLAIN)):
        yield DoctorFinding(
            Severity.ERROR,
            "Workers make different tokens of the same text: what one holds can never be found "
            "by another's tokens.",
            "Start all workers with the same model and revision, and without --tokenizer or with "
            "the same one.",
            _tokenizer_lines(found),
            _minority(found),
        )


def template_differs(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if _differing_groups(facts, _ids(PLAIN)):
        return  # explains different chat tokens already
    if found := _differing_groups(facts, _ids(CHAT)):
        yield DoctorFinding(
            Severity.ERROR,
            "Workers make different prompts of the same chat: they use different chat templates, "
            "so a conversation that moves from one to the other finds nothing.",
            "Start all workers with the same --chat-template (or none, and the same revision of "
            "the model), --chat-template-content-format and --default-chat-template-kwargs.",
            _tokenizer_lines(found),
            _minority(found),
        )


def _cache_statement(worker: WorkerFacts) -> Statement[Any]:
    return worker.cache


CHECKS = (
    DoctorCheck(
        "VersionDiffers",
        "All workers run one version of vLLM",
        version_differs,
        conditions.require_two(lambda worker: worker.version),
        kv=False,
    ),
    DoctorCheck(
        "VersionUnproven",
        f"Workers run vLLM {'.'.join(map(str, TESTED_VERSION))}, with which this was tried",
        version_unproven,
        conditions.require_one(lambda worker: worker.version, "its version"),
    ),
    DoctorCheck(
        "ModelDiffers",
        "All workers serve one model, with one length",
        model_differs,
        conditions.require_two(lambda worker: worker.models),
        kv=False,
    ),
    DoctorCheck(
        "PrefixCachingOff",
        "Every worker caches prefixes",
        prefix_caching_off,
        conditions.require_one(_cache_statement, "how it caches"),
        kv=False,
    ),
    DoctorCheck(
        "BlockSizeDiffers",
        "All workers cut blocks of one size",
        block_size_differs,
        conditions.require_two(_cache_statement),
    ),
    DoctorCheck(
        "HashAlgorithmDiffers",
        "All workers name blocks by one algorithm",
        hash_algorithm_differs,
        conditions.require_two(_cache_statement),
        kv=False,
    ),
    DoctorCheck(
        "HashSeedRandom",
        "Block hashes are the same in every process",
        hash_seed,
        conditions.require_one(_cache_statement, "how it hashes"),
        kv=False,
    ),
    DoctorCheck(
        "TokenizerDiffers",
        "All workers make the same tokens of a text",
        tokenizer_differs,
        conditions.require_two(lambda worker: worker.tokens),
        kv=False,
    ),
    DoctorCheck(
        "TemplateDiffers",
        "All workers make the same prompt of a chat",
        template_differs,
        conditions.require_two(lambda worker: worker.tokens),
        kv=False,
    ),
)
