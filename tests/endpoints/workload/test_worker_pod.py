"""Worker workload of a spec on a cluster, compared with golden files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.provisioners.base import WorkloadSpec
from console.provisioners.crash_cause import crash_cause
from console.provisioners.kubernetes.rendering.names import port_numbers, replica_facts
from console.provisioners.kubernetes.rendering.network import network_policies
from console.provisioners.kubernetes.rendering.target import RenderingTarget
from endpoints.manifests import importer, objects
from endpoints.spec.endpoint_spec import GIB, merge, parse
from endpoints.spec.field import Effect
from endpoints.spec.fields import CLUSTER_FIELDS
from endpoints.workload import model_source, worker_pod
from endpoints.workload.worker_pod import KV_EVENTS, KV_REPLAY
from endpoints.workload.worker_spec import Installation, L2Access, worker_spec
from tests.endpoints.manifests.conftest import LEAST, put
from tests.endpoints.spec.test_cluster_spec import another
from tests.endpoints.workload.test_worker_spec import HERE, readable
from tests.support.vllm.forks import run_vllm_python

GOLDEN = Path(__file__).parent / "golden" / "pods"
TIER = L2Access("redis://cache-chat-pods.llm.svc:6400?nodes=dns", "/secrets/l2_password")
HF = {"source.type": "huggingface", "source.token_secret": "hf", "source.token_key": "token"}
S3 = {"source.type": "s3", "source.bucket": "b", "source.region": "eu-west-1"}
FSX = {
    "source.type": "fsx",
    "source.file_system": "fs-1",
    "source.mount_name": "m",
    "source.region": "eu-west-1",
}
PVC = {"source.type": "pvc", "source.claim": "weights", "source.location": "qwen/"}
OWN = {"pod.image": "lmcache/vllm-openai:v0.4.3", "pod.port": 8080, "pod.pull_secrets": ["reg"]}
WHOLE = {
    "placement.instance_types": ["ml.g5.8xlarge", "ml.g5.12xlarge"],
    "pod.resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}},
    "pod.env": {"HF_HOME": "/tmp/hf"},
    "pod.probes": {"startup": {"periodSeconds": 5}},
    "scaling.enabled": True,
    "scaling.triggers": [{"type": "prometheus", "metadata": {"query": "up"}}],
    "tags": {"team": "search"},
}
CASES: dict[str, tuple[dict[str, Any], L2Access | None]] = {
    "hub_by_itself": ({"model": "org/big", "resources.gpus": 2, "source.revision": "v2"}, None),
    "huggingface": ({"model": "org/big", **HF, "resources.gpus": 1}, TIER),
    "s3": ({**S3, "source.location": "big/v1"}, None),
    "s3_prefetch": ({**S3, "source.location": "big/v1", "source.prefetch": True}, None),
    "fsx_prefetch": ({**FSX, "source.location": "big", "source.prefetch": True}, None),
    "pvc": ({**PVC, "cache.l1.enabled": False}, None),
    "own_image_redis": ({**PVC, **OWN}, L2Access("redis://cache:6379", "/secrets/redis")),
    "whole": ({"model": "/models/in-image", **WHOLE}, None),
    "simulated": ({"engine": "simulated"}, TIER),
}


def made(data: dict[str, Any], changes: dict[str, Any], l2: L2Access | None) -> WorkloadSpec:
    here = {"engine": "vllm", "placement.cluster": "prod"}
    spec = parse(merge(data, {**here, **changes}))
    source = model_source.model_source(spec)
    installation = Installation(
        python="python3",
        vllm_python="python3",
        repo="",
        model=source.model,
        model_id=source.model_id,
        worker_image="emberline-worker:1",
        engine_image="emberline-engine:1",
    )
    return worker_spec(spec, installation, l2)


def shown(spec: WorkloadSpec) -> dict[str, Any]:
    """Without scripts, which are run below, and without what a pod leaves at its default."""
    facts = readable(spec)
    blank = WorkloadSpec("o", "n", "r", (), (), spec.probe)
    assert spec.pod is not None
    default = type(spec.pod)()
    pod = facts["pod"]
    facts["pod"] = {k: v for k, v in pod.items() if v != getattr(default, k)}
    for step in facts["pod"].get("init", ()):
        step["argv"] = [word if "\n" not in word else "<script>" for word in step["argv"]]
    return {k: v for k, v in facts.items() if v != getattr(blank, k)}


@pytest.mark.parametrize("name", CASES)
def test_golden(data: dict[str, Any], name: str) -> None:
    text = json.dumps(shown(made(data, *CASES[name])), indent=1) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "UPDATE_GOLDEN=1 writes it anew; then read the diff"


# Fields required by the tested one.
BASES = {
    "source.bucket": S3,
    "source.region": S3,
    "source.endpoint": S3,
    "source.location": S3,
    "source.prefetch": S3,
    "source.mount_path": S3,
    "source.file_system": FSX,
    "source.dns_name": FSX,
    "source.mount_name": FSX,
    "source.claim": PVC,
    "source.type": {"source.bucket": "b"},
    "source.revision": HF,
    "source.token_secret": HF,
    "source.token_key": HF,
}


@pytest.mark.parametrize("field", CLUSTER_FIELDS, ids=lambda field: field.path)
def test_field_restarts_workers_exactly_as_declared(data: dict[str, Any], field: Any) -> None:
    if field.effect is Effect.FIXED or field.path.startswith("pd."):
        return
    base = {"model": "org/big", **BASES.get(field.path, {})}
    before = made(data, base, None)
    after = made(data, {**base, field.path: another(field)}, None)
    assert (after.spec_hash != before.spec_hash) == (field.effect is Effect.RESTART)


def test_each_data_parallel_engine_has_ports_and_a_part_of_the_resources(
    data: dict[str, Any],
) -> None:
    """vLLM counts a worker's ports up by rank: those of replays follow all of the events."""
    changes = {"worker_args": ["--data-parallel-size=2"], "resources.gpus": 8, "model": "org/big"}
    spec = made(data, changes, None)
    values = replica_facts(spec)
    words = [values.fill(word) for word in spec.argv]
    events = json.loads(words[words.index("--kv-events-config") + 1])
    assert events["endpoint"] == "tcp://*:5557"
    assert events["replay_endpoint"] == "tcp://*:5559"
    assert words[words.index("--tensor-parallel-size") + 1] == "4"
    cache = json.loads(words[words.index("--kv-transfer-config") + 1])
    parts = cache["kv_connector_extra_config"]["cpu_bytes_to_use"]
    assert parts * 2 == int(parse(data).cache.l1.size_bytes)
    numbers = port_numbers(spec)
    assert [numbers[name] for name in spec.channels] == [5557, 5558, 5559, 5560]
    (policy,) = network_policies(spec, RenderingTarget("ns"))
    open_ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert open_ports >= {5557, 5558, 5559, 5560}
    assert made(data, {**changes, "engine": "simulated"}, None).channels == (KV_EVENTS, KV_REPLAY)


_RANKS = """
import json, sys
from vllm.distributed.kv_events import ZmqEventPublisher
events, replay, binds = json.loads(sys.argv[1])
if not binds:
    count = ZmqEventPublisher.offset_endpoint_port
    print(json.dumps([[count(events, rank), count(replay, rank)] for rank in range(2)]))
else:
    ranks = [ZmqEventPublisher(rank, endpoint=events, replay_endpoint=replay) for rank in range(2)]
    print(json.dumps([[rank._endpoint, rank._replay_endpoint] for rank in ranks]))
    for rank in ranks:
        rank.shutdown()
"""


@pytest.mark.vllm
def test_vllm_gives_each_engine_its_own_ports(data: dict[str, Any]) -> None:
    changes = {"worker_args": ["--data-parallel-size=2"], "engine": "vllm"}
    on_cluster = made(data, {**changes, "model": "org/big"}, None)
    local = worker_spec(parse(merge(data, changes)), HERE, None)
    endpoints = []
    for spec, binds in ((on_cluster, False), (local, True)):
        words = [replica_facts(spec).fill(word) for word in spec.argv]
        events = json.loads(words[words.index("--kv-events-config") + 1])
        both = json.dumps([events["endpoint"], events["replay_endpoint"], binds])
        done = run_vllm_python("-c", _RANKS, both, env=spec.env)
        assert done.returncode == 0, done.stderr[-2000:]
        endpoints.append(json.loads(done.stdout.splitlines()[-1]))
    numbers = port_numbers(on_cluster)
    assert endpoints[0] == [
        [f"tcp://*:{numbers['kv-events']}", f"tcp://*:{numbers['kv-replay']}"],
        [f"tcp://*:{numbers['kv-events-1']}", f"tcp://*:{numbers['kv-replay-1']}"],
    ]
    chosen = [endpoint for rank in endpoints[1] for endpoint in rank]
    assert len(set(chosen)) == 4
    assert all(endpoint.startswith("tcp://127.0.0.1:") for endpoint in chosen)


def test_memory_limit_includes_l1(data: dict[str, Any]) -> None:
    changes = {"resources.memory_gib": 4.0, "cache.l1.size_gib": 2.0, "model": "org/big"}
    spec = made(data, changes, None)
    assert spec.pod is not None
    assert spec.pod.shm_bytes > 2 * GIB
    assert spec.memory_bytes == 6 * GIB


def test_memory_of_a_manifest_is_the_memory_of_the_pod() -> None:
    """30Gi with L1 in it; vLLM's queues in /dev/shm add nothing."""
    document = put(LEAST, "spec/worker/resources", {"requests": {"cpu": "4", "memory": "30Gi"}})
    data = importer.data(objects.read(document))
    spec = made(data, {}, None)
    assert spec.pod is not None
    assert spec.pod.shm_bytes > 0
    assert spec.memory_bytes == 30 * GIB


def test_token_reaches_only_the_download_step(data: dict[str, Any]) -> None:
    spec = made(data, {"model": "org/big", **HF}, None)
    assert spec.pod is not None
    assert list(spec.pod.init[0].secret_env) == ["HF_TOKEN"]
    assert not spec.pod.secret_env


def test_only_the_router_of_the_endpoint_reaches_kv_events(data: dict[str, Any]) -> None:
    around = made(data, {"model": "org/big"}, None).around
    assert around is not None
    for channel in (worker_pod.KV_EVENTS, worker_pod.KV_REPLAY):
        assert [(p.role, p.owner) for p in around.reach[channel]] == [("router", "endpoint/demo")]


def _run(script: str, *argv: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *argv],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, **env},
    )
    return done.stdout


def test_init_steps_work(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub").mkdir(parents=True)
    (source / "config.json").write_text("{}")
    (source / "sub" / "weights").write_bytes(b"x" * 1000)
    target.mkdir()
    assert "1002 bytes read of 2 files" in _run(model_source.READ, str(source))
    for _ in range(2):  # a step may be run again over what the last one left
        _run(model_source.COPY, str(source), str(target))
    assert (target / "sub" / "weights").read_bytes() == b"x" * 1000
    assert not list(target.rglob("*.half"))
    hub = tmp_path / "hub" / "huggingface_hub"
    hub.mkdir(parents=True)
    (hub / "__init__.py").write_text("def snapshot_download(*a, **k): print(a, k)\n")
    text = _run(model_source.DOWNLOAD, "org/big", "", str(target), PYTHONPATH=str(tmp_path / "hub"))
    assert "('org/big',) {'revision': None" in text


def test_plug_in_is_copied_completely(tmp_path: Path) -> None:
    here = Path(worker_pod.__file__).parents[2]
    _run(worker_pod._COPY_PLUGIN, str(tmp_path), PYTHONPATH=str(here))
    found = "import cachetier.vllm_connector.settings as s; print(s.__file__)"
    assert str(tmp_path) in _run(found, PYTHONPATH=str(tmp_path))


def start(tmp_path: Path, argv: list[str], *needs: str) -> subprocess.CompletedProcess[str]:
    """As the pod does, with a /dev/shm of its own."""
    words = worker_pod.start_command(argv, needs)
    words[2] = words[2].replace("/dev/shm", str(tmp_path))
    return subprocess.run(words, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("needs", [(), ("json", "email")])
def test_shared_memory_of_a_killed_worker_is_removed(
    tmp_path: Path, needs: tuple[str, ...]
) -> None:
    left, other = tmp_path / "vllm_offload_1.mmap", tmp_path / "else"
    left.touch()
    other.touch()
    program = "import sys; print(*sys.argv[1:], sep='|')"
    done = start(tmp_path, [sys.executable, "-c", program, "a b", "$HOME"], *needs)
    assert (done.stdout, done.stderr, done.returncode) == ("a b|$HOME\n", "", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["else"]


def test_missing_parts_of_the_image_are_named_in_one_line(tmp_path: Path) -> None:
    runs = [sys.executable, "-c", "print('started')"]
    done = start(tmp_path, runs, "json", "no_such_package", "nor_this")
    text = "emberline: the worker image lacks no_such_package, nor_this"
    assert (done.stderr.strip(), done.stdout, done.returncode) == (text, "", 1)
    assert crash_cause(done.stderr) == text, "what the console shows of it"
    done = start(tmp_path, ["/nowhere/python3", "-m", "vllm"], "json")
    text = "emberline: the worker image lacks /nowhere/python3"
    assert (crash_cause(done.stderr), done.returncode) == (text, 127)


@pytest.mark.parametrize(("linked", "code"), [(b"\0libnosuch.so.1\0", 1), (b"\0libc.so.6\0", 0)])
def test_library_is_required_only_where_vllm_links_it(
    tmp_path: Path, linked: bytes, code: int
) -> None:
    package = tmp_path / "built"
    package.mkdir()
    (package / "_C.abi3.so").write_bytes(linked)
    (package / "__init__.py").touch()
    words = worker_pod.start_command([sys.executable, "-c", "print('started')"], ("built",))
    words[2] = words[2].replace("libnuma.so.1", "libnosuch.so.1").replace("/dev/shm", str(tmp_path))
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode == code
    assert ("lacks libnosuch.so.1" in done.stderr) is bool(code)


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, ("vllm", "cachetier")),
        ({"cache": {"l1": {"enabled": False}}}, ("vllm",)),
        ({"pod": {"command": ["serve"]}}, ()),
    ],
)
def test_only_required_parts_are_checked(changes: dict[str, Any], needs: tuple[str, ...]) -> None:
    base = {"name": "demo", "model": "org/m", "placement": {"cluster": "prod"}}
    assert worker_pod.image_needs(parse(merge(base, changes))) == needs


def test_local_worker_has_no_pod(data: dict[str, Any]) -> None:
    local = worker_spec(parse(data), Installation("p", "v", "/r", "m", "i"), None)
    assert (local.pod, local.around) == (None, None)
