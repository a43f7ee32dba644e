"""From an endpoint's spec to the processes that serve it: real vLLM, or simulated workers.

Promises a pure function: the same spec and installation give the same `WorkloadSpec`, so that its
hash changes exactly when workers must restart. Replicas and routing therefore leave no trace in
it beyond `replicas`. Secrets are named, never contained. Must not know Django.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cachetier.rendering.render import render
from cachetier.rendering.spec import L1, L2, CacheSpec, Rendered, Shape
from cachetier.vllm_connector.settings import PASSWORD_ENV
from console.provisioners.base import Probe, WorkloadSpec
from endpoints.spec import GIB, EndpointSpec
from endpoints.spec_words import flag_of

SHUTDOWN_S = 20
"""A stopping vLLM finishes requests for so long; the provisioner waits a little longer."""
STOP_GRACE_S = SHUTDOWN_S + 15
KV_SHARE = 8
"""Of a CPU worker's memory, one part in so many holds the KV cache of running requests."""
KV_EVENTS, KV_REPLAY = "kv-events", "kv-replay"
"""Channels on which a worker tells what its cache holds, and tells again what was missed."""
CPU_BLOCK_TOKENS = 32
"""vLLM's CPU kernels like multiples of 32 best; a smaller chunk forces a smaller block."""


@dataclass(frozen=True, slots=True)
class Installation:
    """Where things are. `model` is what vLLM loads, `model_id` names the weights themselves."""

    python: str
    vllm_python: str
    repo: str
    model: str
    model_id: str


@dataclass(frozen=True, slots=True)
class L2Access:
    """Where L2 is, and the file with its password ("" for none)."""

    url: str
    password_file: str = ""


def workload_name(endpoint: str) -> str:
    return f"{endpoint}-worker"


def served_names(spec: EndpointSpec) -> tuple[str, ...]:
    """Callers may name the endpoint or the model; metrics show the first."""
    model = Path(spec.model).name if spec.model.startswith("/") else spec.model
    return tuple(dict.fromkeys((spec.name, model)))


def worker_spec(
    spec: EndpointSpec, installation: Installation, l2: L2Access | None = None
) -> WorkloadSpec:
    """The workload of an endpoint's workers. `l2` is None when L2 is off."""
    argv, env = (
        _simulated(spec, installation, l2) if spec.simulated else _vllm(spec, installation, l2)
    )
    secret = {PASSWORD_ENV: l2.password_file} if l2 is not None and l2.password_file else {}
    return WorkloadSpec(
        owner=f"endpoint/{spec.name}",
        name=workload_name(spec.name),
        role="worker",
        argv=tuple(argv),
        ports=("http",),
        channels=(KV_EVENTS, KV_REPLAY),
        probe=Probe(path="/health", port="http"),
        replicas=spec.replicas,
        env=env,
        secret_env=secret,
        gpus=spec.resources.gpus,
        cpus=spec.resources.cpus,
        memory_bytes=int(spec.resources.memory_gib * GIB),
        stop_grace_s=STOP_GRACE_S,
    )


def _vllm(
    spec: EndpointSpec, installation: Installation, l2: L2Access | None
) -> tuple[list[str], dict[str, str]]:
    argv = [
        *(installation.vllm_python, "-m", "vllm.entrypoints.openai.api_server"),
        *("--host", "{host}", "--port", "{port:http}"),
        *("--model", installation.model),
        *("--served-model-name", *served_names(spec)),
        *("--block-size", str(_block_tokens(spec))),
        "--enable-prompt-tokens-details",
        *("--kv-events-config", json.dumps(_KV_EVENTS_CONFIG, separators=(",", ":"))),
        *_defaults(spec),
    ]
    env = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # Where bytecode may not be written, a start takes twice as long.
        "PYTHONDONTWRITEBYTECODE": "",
    }
    if installation.model.startswith("/"):
        env["HF_HUB_OFFLINE"] = "1"
    if not spec.resources.gpus:
        env |= _cpu_env(spec)
    if spec.cache.l1.enabled:
        cache = _cache(spec, installation, l2)
        argv += cache.args
        env |= {**cache.env, "PYTHONPATH": installation.repo}
    return [*argv, *spec.worker_args], env


# Always on: a strategy may change while workers run, and nobody listening costs them little.
_KV_EVENTS_CONFIG = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "endpoint": f"{{channel:{KV_EVENTS}}}",
    "replay_endpoint": f"{{channel:{KV_REPLAY}}}",
}


def _defaults(spec: EndpointSpec) -> list[str]:
    """Arguments a user may replace by naming them under worker arguments."""
    gpus = spec.resources.gpus
    pairs: list[tuple[str, ...]] = [("--shutdown-timeout", str(SHUTDOWN_S))]
    if gpus:
        pairs.append(("--tensor-parallel-size", str(gpus)))
    else:
        kv_bytes = int(spec.resources.memory_gib * GIB) // KV_SHARE
        pairs += [
            ("--dtype", "float32"),
            ("--enforce-eager",),
            # With the variable in `_cpu_env`: one process instead of two, a third less memory.
            ("--distributed-executor-backend", "uni"),
            ("--kv-cache-memory-bytes", str(kv_bytes)),
        ]
    given = {flag_of(argument) for argument in spec.worker_args}
    return [word for pair in pairs if pair[0] not in given for word in pair]


def _cpu_env(spec: EndpointSpec) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(max(1, int(spec.resources.cpus))),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }


def _block_tokens(spec: EndpointSpec) -> int:
    """vLLM's block: a chunk holds a whole number of them."""
    chunk = spec.cache.l1.chunk_tokens
    return CPU_BLOCK_TOKENS if chunk % CPU_BLOCK_TOKENS == 0 else 16


def _cache(spec: EndpointSpec, installation: Installation, l2: L2Access | None) -> Rendered:
    l1 = spec.cache.l1
    gpus = spec.resources.gpus
    return render(
        CacheSpec(
            L1(l1.size_bytes, l1.policy, l1.chunk_tokens),
            None
            if l2 is None
            else L2(l2.url, installation.model_id, spec.cache.l2.ttl_s, l2.password_file),
            Shape("cuda" if gpus else "cpu", max(1, gpus), block_tokens=_block_tokens(spec)),
        )
    )


def _simulated(
    spec: EndpointSpec, installation: Installation, l2: L2Access | None
) -> tuple[list[str], dict[str, str]]:
    l1 = spec.cache.l1
    argv = [
        *(installation.python, "-m", "endpoints.simulated_worker"),
        *("--listen", "{host}:{port:http}"),
        *("--model", ",".join(served_names(spec))),
        *("--block-size", str(_block_tokens(spec))),
        *("--kv-events", f"{{channel:{KV_EVENTS}}}", "--kv-replay", f"{{channel:{KV_REPLAY}}}"),
    ]
    if l1.enabled:
        argv += ["--l1-bytes", str(l1.size_bytes), "--l1-policy", l1.policy]
    if l2 is not None:
        argv += ["--l2-url", l2.url, "--l2-ttl", str(spec.cache.l2.ttl_s)]
    # It ignores what it does not know: these arguments are meant for vLLM.
    return [*argv, *spec.worker_args], {"PYTHONPATH": installation.repo}
