"""Rules of a spec across fields, and on the installation's `Context`.

`check` is the only gate: a spec that passes can be started here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from console.core.confined_files import FileRefused
from console.core.errors import Problem
from console.core.grants import Grant
from endpoints.refusals import name_taken
from endpoints.spec.cluster_rules import ClusterFacts
from endpoints.spec.cluster_rules import violations as cluster_violations
from endpoints.spec.endpoint_spec import GIB, EndpointSpec, SpecErrors, read
from endpoints.spec.field import Effect, SpecField
from endpoints.spec.fields import ANYWHERE, BY_PATH, CLUSTER_FIELDS, FIELDS
from endpoints.spec.grants import grant_errors as refused_needs
from endpoints.spec.grants import required_grants
from endpoints.spec.validators import connector_flag, redact, url_files
from endpoints.spec.worker_options import option_problems

_STORE_FILES = ("password_file", "ca_file")
BLOCK_TOKENS = 16
"""Granularity of vLLM's KV block size (tokens); a chunk is whole blocks."""


@dataclass(frozen=True)
class Context:
    """Capabilities of this installation.

    `models`: folders by name, "" if not prepared yet. `other_names`: taken, also by endpoints being
    deleted. `tiers`: usable cache tiers (the default one is created on first use). `misfits`: why
    no allowed machine holds the model. `clusters`: selectable ones; `cluster` returns the facts of
    one. `tier_clusters`: location of each tier, "" for this machine. `grants`: those of the
    endpoint's `team` ("" for none). `model_folder`: whether a path is inside the installation's
    model folder.
    """

    memory_bytes: int = 0
    shared_memory_bytes: int = 0
    cpus: int = 0
    gpus: int = 0
    models: Mapping[str, str] = field(default_factory=dict)
    other_names: frozenset[str] = frozenset()
    tiers: frozenset[str] = frozenset({"default"})
    folder_exists: Callable[[str], bool] = field(default=lambda _path: True)
    l2_file_refusal: Callable[[str], FileRefused | None] = field(default=lambda _path: None)
    l2_folder: str = ""
    misfits: Callable[[EndpointSpec], list[Problem]] = field(default=lambda _spec: [])
    defaults: Mapping[str, Any] = field(default_factory=dict)
    clusters: frozenset[str] = frozenset()
    cluster: Callable[[str], ClusterFacts] = field(default=ClusterFacts)
    tier_clusters: Mapping[str, str] = field(default_factory=dict)
    grants: frozenset[Grant] = frozenset()
    team: str = ""
    model_folder: Callable[[str], bool] = field(default=lambda _path: False)
    vllm_version: Callable[[EndpointSpec], str] = field(default=lambda _spec: "")
    hub_problem: Callable[[EndpointSpec], Problem | None] = field(default=lambda _spec: None)


def check(data: Any, context: Context, present: EndpointSpec | None = None) -> EndpointSpec:
    """Return the spec in `data`. Raise SpecErrors with all errors. A change that only removes
    workers from `present` skips the installation's rules: a missing file must not keep an
    endpoint running.
    """
    spec, errors = read(data, {**context.defaults, **_fixed_values(present)})
    if not errors and present is not None and _only_scales_down(spec, present):
        return spec
    refused = {error.field for error in errors}
    errors.extend(_fixed_field_errors(spec, present) if present is not None else ())
    errors.extend(error for error in violations(spec, context) if error.field not in refused)
    errors.extend(
        error for error in start_errors(spec, context, present) if error.field not in refused
    )
    errors.extend(grant_violations(spec, context, present))
    if errors:
        raise SpecErrors(errors)
    return spec


def grant_violations(
    spec: EndpointSpec, context: Context, present: EndpointSpec | None = None
) -> list[Problem]:
    """Return what exceeds a plain pod without a grant. A change that leaves pods and grants as they
    are passes, so that scaling needs no grants.
    """
    missing = [
        need
        for need in required_grants(spec, context.model_folder)
        if need.grant not in context.grants
    ]
    if missing and present is not None:
        before, after = present.flat(), spec.flat()
        judged = {need.field for need in missing}
        changed = {path for path in after if before[path] != after[path]}
        if not any(path in judged or BY_PATH[path].effect is not Effect.LIVE for path in changed):
            return []
    return refused_needs(spec, missing, context.team)


def start_errors(
    spec: EndpointSpec, context: Context, present: EndpointSpec | None = None
) -> Iterator[Problem]:
    """Yield why vLLM would not start: options it does not have, a model that the hub does not have.
    Unchanged values pass, so that a vLLM upgrade does not block other changes.
    """
    if spec.simulated:
        return
    running = present if present is not None and not present.simulated else None
    if running is None or spec.worker_args != running.worker_args:
        redacted = redact("worker_args", list(spec.worker_args))
        for problem in option_problems(spec.worker_args, context.vllm_version(spec)):
            yield Problem("worker_args", redacted, *problem)
    if running is None or (spec.model, spec.source) != (running.model, running.source):
        missing = context.hub_problem(spec)
        if missing is not None:
            yield missing


def standing_errors(spec: EndpointSpec, context: Context) -> list[Problem]:
    """Return why a stored spec may no longer be applied, e.g. after revoked grants."""
    named = (*l2_files(spec, context), *store_files(spec, context))
    outside = [problem for problem in named if problem.code == "file_not_allowed"]
    return [*outside, *grant_violations(spec, context)]


def _only_scales_down(spec: EndpointSpec, present: EndpointSpec) -> bool:
    return spec.replicas < present.replicas and spec == replace(present, replicas=spec.replicas)


def _fixed_values(present: EndpointSpec | None) -> dict[str, Any]:
    """Return the immutable values as defaults, so that they may be omitted."""
    if present is None:
        return {}
    flat = present.flat()
    return {field.path: flat[field.path] for field in FIELDS if _is_fixed(field)}


def _fixed_field_errors(spec: EndpointSpec, present: EndpointSpec) -> list[Problem]:
    before, after = present.flat(), spec.flat()
    return [
        Problem(
            field.path,
            after[field.path],
            f"{field.label} cannot be changed: it is {before[field.path] or 'empty'!r}.",
            "Create another endpoint with the new value, then delete this one.",
            "fixed",
        )
        for field in FIELDS
        if _is_fixed(field) and before[field.path] != after[field.path]
    ]


def _is_fixed(one: SpecField) -> bool:
    """Return whether the field is immutable; the name is compared by the caller, who has it in the
    URL.
    """
    return one.effect is Effect.FIXED and one.path != "name"


def violations(spec: EndpointSpec, context: Context) -> list[Problem]:
    rules = _COMMON_RULES + (_CLUSTER_RULES if spec.on_cluster else _LOCAL_RULES)
    return [error for rule in rules for error in rule(spec, context)]


Found = Iterator[Problem]


def _name_free(spec: EndpointSpec, context: Context) -> Found:
    if spec.name in context.other_names:
        yield name_taken(spec.name)


def _model_known(spec: EndpointSpec, context: Context) -> Found:
    model = spec.model
    if not model or ("/" in model and not model.startswith("/")):
        return  # a Hugging Face name is checked by the worker
    if model.startswith("/"):
        may_name = Grant.MACHINE in context.grants or context.model_folder(model)
        if not spec.simulated and may_name and not context.folder_exists(model):
            message = "The folder does not exist on this machine."
            remedy = "Give the absolute path of a folder that contains the model's config.json."
            yield Problem("model", model, message, remedy, "unknown_model")
    elif model not in context.models:
        names = ", ".join(sorted(context.models)) or "none"
        message = f"Unknown model {model}."
        remedy = f"Give one of {names}, organisation/name or an absolute path."
        yield Problem("model", model, message, remedy, "unknown_model")
    elif not context.models[model] and not spec.simulated:
        message = f"The files of {model} are not on this machine."
        remedy = "Run `make vllm` to prepare them, or choose the simulated engine."
        yield Problem("model", model, message, remedy, "model_missing")


def _connector(spec: EndpointSpec, _context: Context) -> Found:
    flag = connector_flag(spec.worker_args)
    if flag and spec.cache.l1.enabled and not spec.simulated:
        message = f"{flag} is set by Emberline: L1 is on."
        remedy = f"Remove {flag}, or turn L1 off to use another connector, such as LMCache's."
        value = redact("worker_args", list(spec.worker_args))
        yield Problem("worker_args", value, message, remedy, "collision")


def _l2(spec: EndpointSpec, context: Context) -> Found:
    l2 = spec.cache.l2
    if not l2.enabled:
        return
    if not spec.cache.l1.enabled:
        message = "L2 requires L1, and L1 is off."
        remedy = "Turn L1 on (0.25 GiB is enough), or turn L2 off."
        yield Problem("cache.l1.enabled", False, message, remedy, "l2_needs_l1")
    if l2.backend == "redis" and not l2.url:
        message = "The backend redis requires an address."
        remedy = "Write redis://HOST:PORT, or choose tieredstorage."
        yield Problem("cache.l2.url", "", message, remedy, "required")
    if l2.backend == "tieredstorage":
        yield from _redis_only(spec)
        yield from _tier(l2.tier, context)
    else:
        yield from l2_files(spec, context)


def l2_files(spec: EndpointSpec, context: Context) -> Found:
    """Reject files on the console's machine, unless an admin put them into the folder for such
    files.

    A Redis URL used by pods names files in the pods.
    """
    l2 = spec.cache.l2
    if not l2.enabled or l2.backend != "redis":
        return
    named = [("cache.l2.password_file", l2.password_file)] if l2.password_file else []
    if not spec.on_cluster:
        named += [("cache.l2.url", path) for path in url_files(l2.url)]
    yield from _refused_files(named, context)


def _refused_files(named: list[tuple[str, str]], context: Context) -> Found:
    remedy = (
        f"Ask an admin to put the file into {context.l2_folder} on the console's machine "
        "(EMBERLINE_L2_SECRETS), and name it there."
    )
    for path, file in named:
        refused = context.l2_file_refusal(file)
        if refused:
            code = "file_not_allowed" if refused.outside else "file_unreadable"
            yield Problem(path, file, f"{refused}.", remedy, code)


def _state_store(spec: EndpointSpec, context: Context) -> Found:
    store = spec.router.state_store
    path = "router.state_store."
    if not store.url and store != type(store)():
        message = "User, password file and CA file of a state store require its URL."
        yield Problem(f"{path}url", "", message, "Give the URL, or clear them.", "required")
    if store.username and not store.password_file:
        message = "A state store user requires a password."
        remedy = "Give the password file, or clear the user."
        yield Problem(f"{path}password_file", "", message, remedy, "required")
    if store.ca_file and store.url.startswith("redis:"):
        message = "The CA file applies to TLS only, and the URL begins with redis://."
        remedy = "Write rediss:// in the URL, or clear the field."
        yield Problem(f"{path}ca_file", store.ca_file, message, remedy, "not_used")
    yield from store_files(spec, context)


def store_files(spec: EndpointSpec, context: Context) -> Found:
    """Reject files of the state store as `l2_files` does."""
    store = spec.router.state_store
    named = [(f"router.state_store.{name}", getattr(store, name)) for name in _STORE_FILES]
    yield from _refused_files([file for file in named if file[1] and store.url], context)


def _tier(name: str, context: Context) -> Found:
    if name not in context.tiers:
        names = ", ".join(sorted(context.tiers))
        remedy = f"Choose one of: {names}; or create it on the page Cache."
        message = f"Unknown cache tier {name!r}."
        yield Problem("cache.l2.tier", name, message, remedy, "unknown_tier")


def _redis_only(spec: EndpointSpec) -> Found:
    for name in ("url", "password_file"):
        path, value = f"cache.l2.{name}", getattr(spec.cache.l2, name)
        if value:
            message = f"{BY_PATH[path].label} is for the backend redis only."
            remedy = "Clear it, or choose the backend redis."
            yield Problem(path, value, message, remedy, "not_used")


def _chunk(spec: EndpointSpec, _context: Context) -> Found:
    chunk = spec.cache.l1.chunk_tokens
    if chunk % BLOCK_TOKENS:
        below = max(BLOCK_TOKENS, chunk // BLOCK_TOKENS * BLOCK_TOKENS)
        message = f"The chunk size must be a multiple of {BLOCK_TOKENS}: {chunk} is not a multiple."
        remedy = f"Use {below} or {below + BLOCK_TOKENS}."
        yield Problem("cache.l1.chunk_tokens", chunk, message, remedy, "not_a_multiple")


def requested_memory_gib(spec: EndpointSpec) -> float:
    """Return the memory of one worker, with its L1."""
    return spec.resources.memory_gib + (spec.cache.l1.size_gib if spec.cache.l1.enabled else 0.0)


def _memory(spec: EndpointSpec, context: Context) -> Found:
    own_gib, each = spec.resources.memory_gib, requested_memory_gib(spec)
    total = context.memory_bytes / GIB
    if each * spec.replicas <= total:
        return
    fitting = int(total // each)
    message = (
        f"{spec.replicas} × {each:g} GiB ({own_gib:g} memory, "
        f"{each - own_gib:g} L1) need {each * spec.replicas:g} GiB; this machine has {total:.1f}."
    )
    remedy = (
        f"Use at most {fitting} replica{'s' if fitting != 1 else ''}, or reduce memory or L1."
        if fitting
        else f"Use less than {total:.1f} GiB per worker, including L1."
    )
    yield Problem("resources.memory_gib", own_gib, message, remedy, "over_capacity")


def _shared_memory(spec: EndpointSpec, context: Context) -> Found:
    """Check the size of /dev/shm for L1: exceeding it kills a worker without an error."""
    l1 = spec.cache.l1
    needed, total = l1.size_gib * spec.replicas, context.shared_memory_bytes / GIB
    if spec.simulated or not l1.enabled or needed <= total:
        return
    message = (
        f"L1 of {spec.replicas} workers needs {needed:g} GiB of shared memory; "
        f"this machine has {total:.2f} GiB (/dev/shm)."
    )
    remedy = f"Use at most {total / max(1, spec.replicas):.2f} GiB, or enlarge /dev/shm."
    yield Problem("cache.l1.size_gib", l1.size_gib, message, remedy, "over_capacity")


def _processors(spec: EndpointSpec, context: Context) -> Found:
    cpus, gpus = spec.resources.cpus, spec.resources.gpus
    if cpus > context.cpus:
        message = f"A worker of {cpus:g} CPUs does not fit: this machine has {context.cpus}."
        remedy = f"Use at most {context.cpus}."
        yield Problem("resources.cpus", cpus, message, remedy, "over_capacity")
    needed = gpus * spec.replicas
    if needed > context.gpus:
        message = (
            f"{spec.replicas} workers need {needed} GPUs; this console can assign {context.gpus}."
        )
        most = f"Use at most {context.gpus} in total."
        remedy = most if context.gpus else "Use 0 to run on the CPU."
        yield Problem("resources.gpus", gpus, message, remedy, "over_capacity")


def _cluster_only(spec: EndpointSpec, _context: Context) -> Found:
    if spec.on_cluster:
        return
    flat_fields = spec.flat()
    for item in CLUSTER_FIELDS:
        if item.path not in ANYWHERE and flat_fields[item.path] != _json(item.default):
            message = f"{item.label} applies to endpoints on a cluster only."
            remedy = "Remove it, or set placement.cluster."
            value = redact(item.path, flat_fields[item.path])
            yield Problem(item.path, value, message, remedy, "cluster_only")


def _json(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default


def _fits(spec: EndpointSpec, context: Context) -> Found:
    yield from context.misfits(spec)


def _on_cluster(spec: EndpointSpec, context: Context) -> Found:
    cluster = spec.placement.cluster
    if cluster in context.clusters:
        yield from cluster_violations(spec, context.cluster(cluster))
        return
    names = ", ".join(sorted(context.clusters)) or "none yet"
    message = f"Unknown cluster {cluster}."
    remedy = f"Choose one of: {names}; or add it on the page Clusters."
    yield Problem("placement.cluster", cluster, message, remedy, "unknown_cluster")


def _tier_near(spec: EndpointSpec, context: Context) -> Found:
    """Require a tier on the workers' side: they reach it by a local file or a cluster-internal
    name.
    """
    tier, here = spec.cache.l2.tier, spec.placement.cluster
    there = context.tier_clusters.get(tier, here)
    if not spec.needs_cache_tier or there == here:
        return
    near = sorted(
        name for name, tier_cluster in context.tier_clusters.items() if tier_cluster == here
    )
    message = f"Cache tier {tier} is on {_place(there)}, the endpoint on {_place(here)}."
    names = ", ".join(near) or "none yet"
    remedy = f"Choose one of: {names}; or create one there on the page Cache."
    yield Problem("cache.l2.tier", tier, message, remedy, "tier_elsewhere")


def _place(cluster: str) -> str:
    return f"cluster {cluster}" if cluster else "this machine"


_Rules = tuple[Callable[[EndpointSpec, Context], Found], ...]
_COMMON_RULES: _Rules = (
    *(_name_free, _cluster_only, _connector, _l2, _state_store, _tier_near, _chunk, _fits),
)
_LOCAL_RULES: _Rules = (_model_known, _memory, _shared_memory, _processors)
_CLUSTER_RULES: _Rules = (_on_cluster,)
