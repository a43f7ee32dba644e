"""Pod of an endpoint's workers on a cluster: security, network access, shared memory, GPUs.

Workers run without root whatever their image sets, accept connections only from the endpoint's
router and its operators, and have enough room for weights and L1.
"""

from __future__ import annotations

from console.provisioners.pods import Around, Autoscale, InitStep, Peer, Pod, Scrape, Volume
from endpoints.spec.endpoint_spec import EndpointSpec, gpu_resource
from endpoints.workload.model_source import ModelSource

KV_EVENTS, KV_REPLAY = "kv-events", "kv-replay"
"""Channels of KV events and of their replay, of a worker's first engine."""
_FIRST_KV_PORT = 5557
HTTP_PORT = "http"
ROUTER, CONSOLE, PROMETHEUS = "router", "console", "prometheus"
"""Roles allowed to reach a worker; the last two by component label."""
PLUGIN_PATH = "/emberline/plugin"
HOME = "/emberline/home"
_ANY_USER = 10_001
_CPU_PERCENT = 70
# A killed process leaves its L1 file, which occupies memory until the pod ends; no other process
# writes there.
_SWEEP = 'rm -f /dev/shm/vllm_offload_*.mmap; exec "$@"'
# Reports in one line what vLLM would report in a hundred; takes about 0.1 s without importing
# packages. Only some vLLM builds (for CPU) need libnuma.
_PREFLIGHT = """lacks() { echo "emberline: the worker image lacks $1" >&2; exit 127; }
command -v "$1" >/dev/null || lacks "$1"
"$1" -c '
import ctypes, glob, importlib.util, sys
def lacking(name, library):
    found = importlib.util.find_spec(name)
    if found is None:
        yield name
    for folder in (found and found.submodule_search_locations) or ():
        for path in glob.glob(folder + "/_C*.so"):
            try:
                with open(path, "rb") as file:
                    library.encode() in file.read(1 << 20) and ctypes.CDLL(library)
            except OSError:
                yield library
lacks = {one for name in sys.argv[1:] for one in lacking(name, "libnuma.so.1")}
sys.exit("emberline: the worker image lacks " + ", ".join(sorted(lacks)) if lacks else 0)
' %s || exit
"""
_COPY_PLUGIN = """
import os, shutil, sys, cachetier
here = os.path.dirname(cachetier.__file__)
skip = shutil.ignore_patterns("__pycache__", "migrations", "api")
shutil.copytree(here, os.path.join(sys.argv[1], "cachetier"), ignore=skip, dirs_exist_ok=True)
"""


def start_command(argv: list[str], needs: tuple[str, ...]) -> list[str]:
    """Return a command that clears /dev/shm after a killed process, checks the image for the Python
    packages in `needs`, and starts `argv`.
    """
    preflight = _PREFLIGHT % " ".join(needs) if needs else ""
    return ["sh", "-c", preflight + _SWEEP, "worker", *argv]


def image_needs(spec: EndpointSpec) -> tuple[str, ...]:
    if spec.pod.command:
        return ()
    return ("vllm", "cachetier") if spec.cache.l1.enabled else ("vllm",)


def home_env() -> dict[str, str]:
    """Return USER and HOME for users unknown to the image, which libraries need."""
    return {"HOME": HOME, "USER": "emberline"}


def needs_plugin(spec: EndpointSpec, worker_image: str) -> bool:
    """Return whether the plug-in must be copied beside a custom image."""
    other = bool(spec.pod.image) and spec.pod.image != worker_image
    return other and bool(worker_image) and spec.cache.l1.enabled and not spec.simulated


def worker_pod(
    spec: EndpointSpec, source: ModelSource | None, shm_bytes: int, worker_image: str
) -> Pod:
    """`source` None: a simulated worker, which reads no weights."""
    placement, pod = spec.placement, spec.pod
    volumes = (Volume("home", {"emptyDir": {}}, HOME), *(source.volumes if source else ()))
    init = source.init if source else ()
    if needs_plugin(spec, worker_image):
        volumes = (*volumes, Volume("plugin", {"emptyDir": {}}, PLUGIN_PATH))
        argv = ("python3", "-c", _COPY_PLUGIN, PLUGIN_PATH)
        step = InitStep("plugin", argv, image=worker_image, mounts={"plugin": PLUGIN_PATH})
        init = (*init, step)
    return Pod(
        ports={**({HTTP_PORT: pod.port} if pod.port else {}), **_kv_ports(spec)},
        volumes=volumes,
        init=init,
        secret_env=source.secret_env if source else {},
        shm_bytes=shm_bytes,
        working_dir=pod.working_dir,
        startup_s=spec.rollout.deadline_s,
        drain_s=spec.rollout.drain_s,
        gpu_resource=gpu_resource(spec)[0],
        instance_types=placement.instance_types,
        node_selector=placement.node_selector,
        node_affinity=placement.node_affinity,
        tolerations=tuple(placement.tolerations),
        priority_class=placement.priority_class,
        scheduler=placement.scheduler,
        service_account=pod.service_account,
        image_pull_secrets=pod.pull_secrets,
        run_as_user=_ANY_USER if pod.image and pod.image != worker_image else 0,
        resources=pod.resources,
        probes=pod.probes,
        init_containers=tuple(pod.init_containers),
        volumes_raw=tuple(pod.volumes),
        env_raw=tuple(pod.env_from),
    )


def kv_channels(spec: EndpointSpec) -> tuple[str, ...]:
    """Return the channels of all engines in the order of the ports by which vLLM counts them up."""
    later = range(1, spec.data_parallel)
    events, replays = ([f"{name}-{rank}" for rank in later] for name in (KV_EVENTS, KV_REPLAY))
    return (KV_EVENTS, *events, KV_REPLAY, *replays)


def _kv_ports(spec: EndpointSpec) -> dict[str, int]:
    """Return the numbers of several engines' channels; one engine has the usual ones."""
    channels = kv_channels(spec) if spec.data_parallel > 1 else ()
    return {name: _FIRST_KV_PORT + index for index, name in enumerate(channels)}


def worker_around(spec: EndpointSpec) -> Around:
    router = Peer(ROUTER, f"endpoint/{spec.name}")
    monitoring = spec.monitoring
    scraped = (Scrape(HTTP_PORT, monitoring.path, monitoring.interval_s),)
    return Around(
        reach={
            HTTP_PORT: (router, Peer(CONSOLE), Peer(PROMETHEUS)),
            **dict.fromkeys(kv_channels(spec), (router,)),
        },
        scrape=scraped if monitoring.enabled else (),
        autoscale=_autoscale(spec),
        annotations=dict(spec.tags),
    )


def _autoscale(spec: EndpointSpec) -> Autoscale | None:
    scaling = spec.scaling
    if not scaling.enabled:
        return None
    return Autoscale(
        minimum=scaling.min,
        maximum=scaling.max,
        triggers=tuple(scaling.triggers),
        cpu_percent=0 if scaling.triggers else _CPU_PERCENT,
        polling_s=scaling.polling_s,
        cooldown_s=scaling.cooldown_s,
        initial_cooldown_s=scaling.initial_cooldown_s,
        up_stabilization_s=scaling.up_stabilization_s,
        down_stabilization_s=scaling.down_stabilization_s,
    )
