"""From an endpoint and its workers to the two files its router reads. Pure.

Promises that what comes out has been accepted by the router's own parser, so that a file it would
refuse is never published. Must not know Django, provisioners or where the files will lie: `listen`
and `admin` hold the provisioner's placeholders.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from console.provisioners.base import PermanentError
from endpoints.components import EndpointFacts, WorkerFacts
from endpoints.worker_pod import KV_EVENTS, KV_REPLAY
from routing.engine.config import ConfigError, parse, parse_keys

HTTP_PORT = "http"
ADMIN_PORT = "admin"
CONFIG_FILE = "router.json"
KEYS_FILE = "keys.json"
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
        "model": endpoint.name,
        "api_keys_file": KEYS_FILE,
        "workers": [
            {"id": worker.name, "url": worker.url, "draining": worker.draining} | _channels(worker)
            for worker in sorted(workers, key=lambda worker: worker.name)
            if worker.url
        ],
    }
    if endpoint.model_folder:
        config["kv"] = {"tokenizer": endpoint.model_folder}
    _check(config)
    return config


def _channels(worker: WorkerFacts) -> dict[str, str]:
    """Where it tells what its cache holds; published for every strategy, since one may change."""
    return {
        field: worker.channels[channel]
        for field, channel in (("kv_events", KV_EVENTS), ("kv_replay", KV_REPLAY))
        if channel in worker.channels
    }


def compile_keys(endpoint: EndpointFacts) -> dict[str, Any]:
    """Hashes only. An endpoint without keys lets nobody in."""
    keys = [
        {"id": key.id, "sha256": key.sha256, "pin": key.pin}
        for key in sorted(endpoint.keys, key=lambda key: key.id)
    ]
    data = {"keys": keys}
    try:
        parse_keys(data)
    except ConfigError as error:
        raise _refused(error) from error
    return data


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
