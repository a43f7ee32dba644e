"""An endpoint's router as a workload. Pure; must not know Django.

Its files are live: the router watches them and takes over what it accepts, so that a new worker, a
revoked key or another strategy costs no restart and no request.
"""

from __future__ import annotations

import sys
from typing import Any

from console.provisioners.base import FileSpec, Probe, WorkloadSpec
from routing.deployment.compiler import (
    ADMIN_PORT,
    CONFIG_FILE,
    HASH_KEY_FILE,
    HTTP_PORT,
    KEYS_FILE,
    as_text,
    hash_key,
)

# The router lets running requests end for 30 s; a little more, so that it is never killed first.
_STOP_GRACE_S = 35
_MEMORY_BYTES = 512 * 1024**2


def workload_name(endpoint: str) -> str:
    return f"{endpoint}-router"


def router_spec(
    endpoint: str, config: dict[str, Any], keys: dict[str, Any], python: str = sys.executable
) -> WorkloadSpec:
    return WorkloadSpec(
        owner=f"endpoint/{endpoint}",
        name=workload_name(endpoint),
        role="router",
        argv=(python, "-m", "routing.engine", "--config", f"{{dir}}/{CONFIG_FILE}"),
        ports=(HTTP_PORT, ADMIN_PORT),
        # That it answers, not that a worker is up: a paused endpoint's router is well.
        probe=Probe(path="/healthz", port=ADMIN_PORT),
        # Keys first: the router reads them when it reads the configuration.
        live_files=(
            FileSpec(KEYS_FILE, as_text(keys)),
            FileSpec(HASH_KEY_FILE, hash_key(keys)),
            FileSpec(CONFIG_FILE, as_text({**config, "hash_key_file": HASH_KEY_FILE})),
        ),
        cpus=1.0,
        memory_bytes=_MEMORY_BYTES,
        stop_grace_s=_STOP_GRACE_S,
    )
