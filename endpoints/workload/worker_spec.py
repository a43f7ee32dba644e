"""Render an endpoint's spec to worker processes: vLLM or simulated workers.

A pure function: its hash changes exactly when workers must restart, so that replicas and routing
affect only `replicas`. Secrets are referenced, never included.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from cachetier.vllm_connector.settings import PASSWORD_ENV, L2Target, kv_transfer_config
from console.provisioners.base import Probe, WorkloadSpec
from endpoints.spec.endpoint_spec import GIB, EndpointSpec
from endpoints.spec.validators import ANY_HOST, flag_of
from endpoints.workload.kv_identity import adapter_paths, model_arguments
from endpoints.workload.model_source import model_source
from endpoints.workload.worker_pod import (
    HTTP_PORT,
    KV_EVENTS,
    KV_REPLAY,
    PLUGIN_PATH,
    home_env,
    image_needs,
    kv_channels,
    needs_plugin,
    start_command,
    worker_around,
    worker_pod,
)

MIB = 1024**2
SHUTDOWN_S = 20
"""Drain limit of a stopping vLLM; the provisioner waits slightly longer."""
STOP_GRACE_S = SHUTDOWN_S + 15
LOOPBACK = "127.0.0.1"
NO_HOST = "none.invalid"
"""Never resolves (RFC 2606); vLLM treats an empty list of media domains as any."""
_API_SERVER = "vllm.entrypoints.openai.api_server"
KV_SHARE = 8
"""Divisor of a CPU worker's memory that gives its KV cache."""
CPU_BLOCK_TOKENS = 32
"""Preferred block size of vLLM's CPU kernels; a smaller chunk forces a smaller block."""


@dataclass(frozen=True, slots=True)
class Installation:
    """Locations and images. `model`: argument of vLLM; `model_id`: see `kv_identity`. On
    clusters, interpreters and model are those in the pod.
    """

    python: str
    vllm_python: str
    repo: str
    model: str
    model_id: str
    worker_image: str = ""
    engine_image: str = ""


@dataclass(frozen=True, slots=True)
class L2Access:
    """Address of L2 and its password file ("" for none). `folder`: the only one from which the file
    may be read, "" for a file chosen by the console.
    """

    url: str
    password_file: str = ""
    folder: str = ""


def workload_name(endpoint: str) -> str:
    return f"{endpoint}-worker"


def served_names(spec: EndpointSpec) -> tuple[str, ...]:
    """Return endpoint name, model name and aliases, all accepted by vLLM; metrics use the first."""
    model = Path(spec.model).name if spec.model.startswith("/") else spec.model
    return tuple(dict.fromkeys((spec.name, model, *spec.aliases)))


def worker_spec(
    spec: EndpointSpec, installation: Installation, l2: L2Access | None = None
) -> WorkloadSpec:
    argv, env = (
        _simulated(spec, installation, l2) if spec.simulated else _vllm(spec, installation, l2)
    )
    if spec.source.weights_version:
        env["EMBERLINE_WEIGHTS_VERSION"] = spec.source.weights_version  # restarts the worker
    secret = {PASSWORD_ENV: l2.password_file} if l2 is not None and l2.password_file else {}
    made = WorkloadSpec(
        owner=f"endpoint/{spec.name}",
        name=workload_name(spec.name),
        role="worker",
        argv=tuple(argv),
        ports=(HTTP_PORT,),
        channels=() if _counts_own_ports(spec) else kv_channels(spec),
        probe=Probe(path="/health", port=HTTP_PORT),
        replicas=spec.replicas,
        env=env,
        secret_env=secret,
        secrets_within=dict.fromkeys(secret, l2.folder) if l2 and l2.folder else {},
        gpus=spec.gpus,
        cpus=spec.resources.cpus,
        memory_bytes=int(spec.resources.memory_gib * GIB),
        stop_grace_s=STOP_GRACE_S,
    )
    return _on_cluster(made, spec, installation, argv) if spec.on_cluster else made


def _on_cluster(
    made: WorkloadSpec, spec: EndpointSpec, installation: Installation, argv: list[str]
) -> WorkloadSpec:
    """Return the workload for a cluster. The pod's memory is `resources.memory_gib` plus L1; the
    queues in /dev/shm beside L1 are part of the former.
    """
    l1_bytes = spec.cache.l1.size_bytes if spec.cache.l1.enabled else 0
    image, shm, source = installation.engine_image, 0, None
    if not spec.simulated:
        image, source = installation.worker_image, model_source(spec)
        shm = _shared_memory_bytes(spec, l1_bytes)
        argv = start_command(argv, image_needs(spec))
    return replace(
        made,
        argv=tuple(argv),
        env={**home_env(), **(source.env if source else {}), **made.env, **spec.pod.env},
        image=spec.pod.image or image,
        memory_bytes=made.memory_bytes + l1_bytes,
        pod=worker_pod(spec, source, shm, installation.worker_image),
        around=worker_around(spec),
    )


def _vllm(
    spec: EndpointSpec, installation: Installation, l2: L2Access | None
) -> tuple[list[str], dict[str, str]]:
    argv = [
        *(spec.pod.command or (installation.vllm_python, "-m", _API_SERVER)),
        *("--host", "{host}", "--port", "{port:http}"),
        *("--model", installation.model),
        *("--served-model-name", *served_names(spec)),
        *("--block-size", str(_block_tokens(spec))),
        "--enable-prompt-tokens-details",
        "--enable-scale-out",  # its renderer: the tokens of tools and thinking, for kvaware
        *("--kv-events-config", _kv_events_config(spec)),
        *_default_arguments(spec),
    ]
    env = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # A start takes twice as long without writable bytecode.
        "PYTHONDONTWRITEBYTECODE": "",
    }
    if spec.media_domains != (ANY_HOST,):
        env["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] = "0"  # a redirect would bypass the allowed hosts
    if installation.model.startswith("/"):
        env["HF_HUB_OFFLINE"] = "1"
    if spec.on_cluster:
        env["PYTHONHASHSEED"] = "0"  # block hashes must be equal across replicas
    if not spec.gpus:
        env |= _cpu_env(spec)
    if _counts_own_ports(spec):
        env["VLLM_HOST_IP"] = LOOPBACK
    if spec.cache.l1.enabled:
        argv += ["--kv-transfer-config", _kv_transfer_config(spec, installation, l2)]
        env |= _plugin_path(spec, installation)
    return [*argv, *spec.worker_args], env


def _plugin_path(spec: EndpointSpec, installation: Installation) -> dict[str, str]:
    """Return PYTHONPATH for the plug-in, unless the image has it installed."""
    if not spec.on_cluster:
        return {"PYTHONPATH": installation.repo}
    return {"PYTHONPATH": PLUGIN_PATH} if needs_plugin(spec, installation.worker_image) else {}


def _counts_own_ports(spec: EndpointSpec) -> bool:
    """Return whether engines choose their ports: vLLM has no sockets in files for later ranks. The
    router asks the worker for them.
    """
    return spec.data_parallel > 1 and not spec.on_cluster


def _kv_events_config(spec: EndpointSpec) -> str:
    """Return vLLM's configuration of KV events, which are always on: the strategy may change at
    runtime, and publishing without subscribers is cheap.
    """
    any_port = "tcp://*:0" if _counts_own_ports(spec) else ""  # of VLLM_HOST_IP
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": any_port or f"{{channel:{KV_EVENTS}}}",
        "replay_endpoint": any_port or f"{{channel:{KV_REPLAY}}}",
    }
    return json.dumps(config, separators=(",", ":"))


def tensor_parallel(spec: EndpointSpec) -> int:
    """Return the GPUs of an engine's tensor parallelism, unless the worker arguments set it."""
    return max(1, spec.gpus // (spec.pipeline_parallel * spec.data_parallel))


def _default_arguments(spec: EndpointSpec) -> list[str]:
    gpus, source = spec.gpus, spec.source
    pairs: list[tuple[str, ...]] = [("--shutdown-timeout", str(SHUTDOWN_S))]
    if source.revision and not source.type:  # the worker downloads the model itself
        pairs.append(("--revision", source.revision))
    if spec.media_domains != (ANY_HOST,):
        pairs.append(("--allowed-media-domains", *(spec.media_domains or (NO_HOST,))))
    if gpus:
        pairs.append(("--tensor-parallel-size", str(tensor_parallel(spec))))
    else:
        kv_bytes = int(spec.resources.memory_gib * GIB) // KV_SHARE // spec.data_parallel
        pairs += [
            ("--dtype", "float32"),
            ("--enforce-eager",),
            # With the variable in `_cpu_env`: one process instead of two, a third less memory.
            ("--distributed-executor-backend", "uni"),
            ("--kv-cache-memory-bytes", str(kv_bytes)),
        ]
    flags = {flag_of(argument) for argument in spec.worker_args}
    return [word for pair in pairs if pair[0] not in flags for word in pair]


def _cpu_env(spec: EndpointSpec) -> dict[str, str]:
    env = {
        "OMP_NUM_THREADS": str(max(1, int(spec.resources.cpus) // spec.data_parallel)),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    return env if spec.data_parallel > 1 else env | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def _block_tokens(spec: EndpointSpec) -> int:
    """Return vLLM's block size, a divisor of the chunk size."""
    chunk = spec.cache.l1.chunk_tokens
    return CPU_BLOCK_TOKENS if chunk % CPU_BLOCK_TOKENS == 0 else 16


def _kv_transfer_config(spec: EndpointSpec, installation: Installation, l2: L2Access | None) -> str:
    l1 = spec.cache.l1
    shared = None
    if l2 is not None:
        shared = L2Target(
            l2.url,
            installation.model_id,
            spec.cache.l2.ttl_s,
            model_arguments=tuple(model_arguments(spec.worker_args)),
            adapters=tuple(adapter_paths(spec.worker_args)),
            revision=spec.argument("--revision") or spec.source.revision,
        )
    config = kv_transfer_config(
        l1.size_bytes // spec.data_parallel,
        l1.policy,
        shared,
        "cuda" if spec.gpus else "cpu",
        chunk_tokens=l1.chunk_tokens,
    )
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def _shared_memory_bytes(spec: EndpointSpec, l1_bytes: int) -> int:
    """Return what /dev/shm must hold: L1; message queues between ranks, NCCL and torch buffers."""
    ranks = max(1, spec.gpus // spec.data_parallel)
    return -(-(l1_bytes + (64 + (ranks - 1) * 256) * MIB) // MIB) * MIB


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
    # Unknown arguments are ignored, since they are meant for vLLM.
    env = {} if spec.on_cluster else {"PYTHONPATH": installation.repo}
    return [*argv, *spec.worker_args], env
