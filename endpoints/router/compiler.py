"""Compiler of an endpoint and its workers to the router's two files. Pure.

The output is validated with the router's own parser, so that a file it would reject is never
published. `listen` and `admin` contain the provisioner's placeholders.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console.core.state_store import StateStore
from console.provisioners.base import PermanentError
from endpoints.keys.terms import KeyFacts, KeyTerms
from endpoints.lifecycle.components import EndpointFacts, WorkerFacts
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.state_store import choose_store
from endpoints.spec.validators import ANY_HOST
from endpoints.workload.worker_pod import KV_EVENTS, KV_REPLAY
from endpoints.workload.worker_spec import workload_name
from routing.engine.config import ConfigError, parse, parse_keys

HTTP_PORT = "http"
ADMIN_PORT = "admin"
CONFIG_FILE = "router.json"
KEYS_FILE = "keys.json"
CONSOLE = "console"  # id of the console's own key on every endpoint
HASH_KEY_FILE = "prefix.key"
STORE_CA_FILE = "state-store-ca.pem"
_PREVIEW_CHARS = 120
_RECORDED_HOURS = 4  # that fit into an endpoint's limit at least
_SAMPLE = {"listen": "127.0.0.1:1", "admin": "127.0.0.1:2"}


def compile_config(
    endpoint: EndpointFacts,
    workers: tuple[WorkerFacts, ...],
    canary: Mapping[str, Any] | None = None,
    installed: StateStore | None = None,
) -> dict[str, Any]:
    """Compile the configuration with every addressed worker, ready or not; raise PermanentError if
    invalid. `installed`: the installation's state store.

    The router checks readiness itself, so that a returning worker need not wait for the console.
    """
    routing = endpoint.spec.routing
    config: dict[str, Any] = {
        "endpoint": endpoint.name,
        "namespace": endpoint.namespace,
        "listen": f"{{host}}:{{port:{HTTP_PORT}}}",
        "admin": f"{{host}}:{{port:{ADMIN_PORT}}}",
        "strategy": routing.effective_strategy,
        "session_key": routing.session_key,
        "cache_isolation": routing.cache_isolation,
        "model": endpoint.name,
        "api_keys_file": KEYS_FILE,
        **_worker_section(endpoint, workers, installed),
    }
    if not endpoint.spec.replicas and not endpoint.spec.scaling.enabled:
        config["paused"] = True
    if not endpoint.spec.on_cluster:
        config["reuse_port"] = True  # pods have addresses of their own
    if routing.allowed_origins != (ANY_HOST,):
        config["allowed_origins"] = list(routing.allowed_origins)
    if canary:
        config["canary"] = dict(canary)
    store = state_store(endpoint.spec, installed)
    if store:
        config["state_store"] = store
    if routing.prompt_preview:
        config["decisions"] = {"preview_chars": _PREVIEW_CHARS}
    if routing.record_traffic:
        hour = routing.record_mib * 2**20 // (_RECORDED_HOURS * endpoint.spec.routers)
        config["recording"] = {"enabled": True, "hour_bytes": max(hour, 2**16)}
    if endpoint.model_folder:
        config["kv"] = {"tokenizer": endpoint.model_folder}
    l2 = endpoint.spec.cache.l2
    if l2.enabled and l2.ttl_s and routing.effective_strategy == "kvaware":
        config.setdefault("kv", {})["l2_ttl_s"] = l2.ttl_s
    if endpoint.l1_tokens and "prefixaware" in (config["strategy"], (canary or {}).get("strategy")):
        config["l1_tokens"] = endpoint.l1_tokens
    try:
        # The keys separately, since their file does not exist yet, nor does the hash key's.
        parse({**config, **_SAMPLE, "api_keys_file": "", "state_store": {}}, Path("/"))
    except ConfigError as error:
        raise _config_error(error) from error
    return config


def state_store(spec: EndpointSpec, installed: StateStore | None = None) -> dict[str, Any]:
    """Return the store through which several routers share state; {} for one router, or without a
    store.
    """
    chosen = choose_store(spec, installed)
    if chosen is None:
        return {}
    section: dict[str, Any] = {"url": chosen.url, "routers": spec.routers}
    if chosen.username:
        section["username"] = chosen.username
    if chosen.ca or chosen.ca_file:
        section["ca"] = STORE_CA_FILE
    return section


def _worker_section(
    endpoint: EndpointFacts, workers: tuple[WorkerFacts, ...], installed: StateStore | None
) -> dict[str, Any]:
    """Return the worker list, or discovery on a cluster, where routers notice ending pods first."""
    if endpoint.spec.on_cluster:
        # Used instead of a worker list.
        service = f"{endpoint.cluster_namespace}/{worker_service(endpoint.name)}:http"
        section: dict[str, Any] = {"discovery": {"endpointslices": [service]}}
        limits = _admission(endpoint, bool(state_store(endpoint.spec, installed)))
        return section | ({"admission": limits} if limits else {})
    return {
        "workers": [
            {"id": worker.name, "url": worker.url, "draining": worker.draining} | _channels(worker)
            for worker in sorted(workers, key=lambda worker: worker.name)
            if worker.url
        ]
    }


def worker_service(endpoint: str) -> str:
    """Return the headless Service whose EndpointSlices list the workers."""
    return f"{workload_name(endpoint)}-pods"


def _admission(endpoint: EndpointFacts, shared: bool) -> dict[str, Any]:
    """Return the limits per worker, divided among routers that do not share state."""
    limits, routers = endpoint.spec.limits, endpoint.spec.routers
    workers = endpoint.spec.replicas if endpoint.wanted is None else endpoint.wanted
    admission: dict[str, Any] = {}
    if limits.max_concurrent:
        admission["worker_max_in_flight"] = -(-limits.max_concurrent // (1 if shared else routers))
    if limits.max_queue >= 0:
        admission["queue"] = {"depth": -(-limits.max_queue * max(workers, 1) // routers)}
    return admission


def _channels(worker: WorkerFacts) -> dict[str, str]:
    """Return the KV event addresses; published for every strategy, since it may change."""
    return {
        field: worker.channels[channel]
        for field, channel in (("kv_events", KV_EVENTS), ("kv_replay", KV_REPLAY))
        if channel in worker.channels
    }


def compile_keys(endpoint: EndpointFacts, installed: StateStore | None = None) -> dict[str, Any]:
    """Compile the key file with hashes only. An endpoint without keys rejects everyone."""
    spec = endpoint.spec
    routers = 1 if choose_store(spec, installed) else spec.routers
    ordered = sorted(endpoint.keys, key=lambda key: (key.id, key.sha256))
    data = {"keys": [_key(key, routers) for key in ordered]}
    try:
        parse_keys(data)
    except ConfigError as error:
        raise _config_error(error) from error
    return data


def _key(key: KeyFacts, routers: int) -> dict[str, Any]:
    """Return a key's entry; the router's defaults are omitted."""
    terms = key.terms
    optional = {
        "admin": terms.control,
        "models": sorted(terms.models),
        "expires": key.expires,
        "spent_until": key.spent_until,
        "budget_tokens": terms.budget_tokens,
        "group": key.group,
        "limits": _limits(terms, routers),
    }
    entry = {"id": key.id, "sha256": key.sha256, "pin": key.pin}
    return entry | {name: value for name, value in optional.items() if value}


def _limits(terms: KeyTerms, routers: int) -> dict[str, Any]:
    """Return the limits, divided among routers that do not share state."""
    stated = {
        "max_in_flight": terms.max_in_flight,
        "requests_per_minute": terms.requests_per_minute,
        "tokens_per_minute": terms.tokens_per_minute,
    }
    limits: dict[str, Any] = {name: -(-most // routers) for name, most in stated.items() if most}
    if terms.weight != 1.0:
        limits["weight"] = terms.weight
    return limits


def hash_key(keys: dict[str, Any]) -> str:
    """Return the key for prompt hashes, shared by an endpoint's routers and stable across restarts.

    Derived from the hash of the console's own key, which is private and exists as long as the
    endpoint.
    """
    first = min((str(key["sha256"]) for key in keys["keys"] if key["id"] == CONSOLE), default="")
    return hashlib.sha256(f"prefixes of {first}".encode()).hexdigest()


def as_text(data: dict[str, Any]) -> str:
    """Serialize deterministically, so that an unchanged file is not rewritten."""
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _config_error(error: ConfigError) -> PermanentError:
    return PermanentError(
        "RouterConfigRefused", f"The router would reject this configuration: {error}"
    )
