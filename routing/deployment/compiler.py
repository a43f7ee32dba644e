"""From an endpoint and its workers to the two files its router reads. Pure.

Promises that what comes out has been accepted by the router's own parser, so that a file it would
refuse is never published. Must not know Django, provisioners or where the files will lie: `listen`
and `admin` hold the provisioner's placeholders.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from console.provisioners.base import PermanentError
from endpoints.keys.terms import KeyFacts, KeyTerms
from endpoints.lifecycle.components import EndpointFacts, WorkerFacts
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.workload.worker_pod import KV_EVENTS, KV_REPLAY
from endpoints.workload.worker_spec import workload_name
from routing.engine.config import ConfigError, parse, parse_keys

HTTP_PORT = "http"
ADMIN_PORT = "admin"
CONFIG_FILE = "router.json"
KEYS_FILE = "keys.json"
CONSOLE = "console"  # the id of the console's own key, which an endpoint always has
HASH_KEY_FILE = "prefix.key"
_SAMPLE = {"listen": "127.0.0.1:1", "admin": "127.0.0.1:2"}


def compile_config(endpoint: EndpointFacts, workers: tuple[WorkerFacts, ...]) -> dict[str, Any]:
    """Every worker with an address, ready or not: whether it serves is the router's to find out,
    and one that comes back must not wait for the console. Raises PermanentError if refused."""
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
        **_where_workers_are(endpoint, workers),
    }
    if endpoint.model_folder:
        config["kv"] = {"tokenizer": endpoint.model_folder}
    _check(config)
    return config


def _where_workers_are(endpoint: EndpointFacts, workers: tuple[WorkerFacts, ...]) -> dict[str, Any]:
    """On a cluster routers look for themselves: a pod that ends is known there first."""
    if endpoint.spec.on_cluster:
        found: dict[str, Any] = {"discovery": _discovery(endpoint)}
        limits = _admission(endpoint.spec)
        return found | ({"admission": limits} if limits else {})
    return {
        "workers": [
            {"id": worker.name, "url": worker.url, "draining": worker.draining} | _channels(worker)
            for worker in sorted(workers, key=lambda worker: worker.name)
            if worker.url
        ]
    }


def worker_service(endpoint: str) -> str:
    """The headless Service whose EndpointSlices list the workers."""
    return f"{workload_name(endpoint)}-pods"


def _discovery(endpoint: EndpointFacts) -> dict[str, Any]:
    """In the router's configuration, in place of a list of workers."""
    service = f"{endpoint.cluster_namespace}/{worker_service(endpoint.name)}:http"
    return {"endpointslices": [service]}


def _admission(spec: EndpointSpec) -> dict[str, Any]:
    """Limits of each worker, shared among the routers, none of which sees another's requests."""
    limits, routers = spec.limits, max(spec.router.replicas, 1)
    found: dict[str, Any] = {}
    if limits.max_concurrent:
        found["worker_max_in_flight"] = -(-limits.max_concurrent // routers)
    if limits.max_queue >= 0:
        found["queue"] = {"depth": -(-limits.max_queue * max(spec.replicas, 1) // routers)}
    return found


def _channels(worker: WorkerFacts) -> dict[str, str]:
    """Where it tells what its cache holds; published for every strategy, since one may change."""
    return {
        field: worker.channels[channel]
        for field, channel in (("kv_events", KV_EVENTS), ("kv_replay", KV_REPLAY))
        if channel in worker.channels
    }


def compile_keys(endpoint: EndpointFacts) -> dict[str, Any]:
    """Hashes only. An endpoint without keys lets nobody in."""
    spec = endpoint.spec
    routers = max(spec.router.replicas, 1) if spec.on_cluster else 1
    ordered = sorted(endpoint.keys, key=lambda key: (key.id, key.sha256))
    data = {"keys": [_key(key, routers) for key in ordered]}
    try:
        parse_keys(data)
    except ConfigError as error:
        raise _refused(error) from error
    return data


def _key(key: KeyFacts, routers: int) -> dict[str, Any]:
    """What is as the router has it by itself is left out."""
    terms = key.terms
    entry: dict[str, Any] = {"id": key.id, "sha256": key.sha256, "pin": key.pin}
    if terms.control:
        entry["admin"] = True
    if terms.models:
        entry["models"] = sorted(terms.models)
    if key.expires:
        entry["expires"] = key.expires
    if key.spent_until:
        entry["spent_until"] = key.spent_until
    if terms.budget_tokens:
        entry["budget_tokens"] = terms.budget_tokens
    if key.group:
        entry["group"] = key.group
    limits = _limits(terms, routers)
    return entry | ({"limits": limits} if limits else {})


def _limits(terms: KeyTerms, routers: int) -> dict[str, Any]:
    """Shared among the routers, none of which sees another's requests."""
    wanted = {
        "max_in_flight": terms.max_in_flight,
        "requests_per_minute": terms.requests_per_minute,
        "tokens_per_minute": terms.tokens_per_minute,
    }
    limits: dict[str, Any] = {name: -(-most // routers) for name, most in wanted.items() if most}
    if terms.weight != 1.0:
        limits["weight"] = terms.weight
    return limits


def hash_key(keys: dict[str, Any]) -> str:
    """What an endpoint's routers hash prompts with, so that they all show one prefix under one
    name, and the same after a restart. Made of the hash of the console's own key, which nobody
    outside has and which stays as long as the endpoint does."""
    first = min((str(key["sha256"]) for key in keys["keys"] if key["id"] == CONSOLE), default="")
    return hashlib.sha256(f"prefixes of {first}".encode()).hexdigest()


def as_text(data: dict[str, Any]) -> str:
    """The same facts give the same bytes, so that an unchanged file is not written again."""
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _check(config: dict[str, Any]) -> None:
    """Ask the router's parser. Keys are checked by themselves: their file does not exist yet."""
    try:
        parse({**config, **_SAMPLE, "api_keys_file": ""}, Path("/"))
    except ConfigError as error:
        raise _refused(error) from error


def _refused(error: ConfigError) -> PermanentError:
    return PermanentError("RouterConfigRefused", f"The router would refuse this: {error}")
