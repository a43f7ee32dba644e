"""Worker workload of a spec, compared with golden files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cachetier.vllm_connector.settings import L2Target, kv_transfer_config
from console.provisioners.base import WorkloadSpec, asdict_plain
from endpoints.simulated_worker.options import parse as parse_simulated
from endpoints.spec.endpoint_spec import GIB, SpecErrors, merge, parse
from endpoints.spec.fields import CLUSTER_FIELDS
from endpoints.workload.worker_spec import Installation, L2Access, served_names, worker_spec

GOLDEN = Path(__file__).parent / "golden"
HERE = Installation(
    python="/venv/bin/python",
    vllm_python="/vllm/bin/python",
    repo="/repo",
    model="/models/smollm2",
    model_id="sha256:abc",
)
L2 = L2Access("redis://127.0.0.1:6400", "/secrets/l2_password")

CASES: dict[str, tuple[dict[str, Any], L2Access | None]] = {
    "vllm_no_cache": ({"engine": "vllm", "cache.l1.enabled": False}, None),
    "vllm_l1": ({"engine": "vllm", "cache.l1.chunk_tokens": 64, "cache.l1.policy": "arc"}, None),
    "vllm_l1_l2": (
        {"engine": "vllm", "worker_args": ["--max-model-len=2048", "--revision", "v2"]},
        L2,
    ),
    "vllm_gpu": ({"engine": "vllm", "resources.gpus": 2, "model": "org/big"}, L2),
    "simulated_l1_l2": ({}, L2),
    "simulated_no_cache": ({"cache.l1.enabled": False}, None),
}


def made(data: dict[str, Any], name: str) -> WorkloadSpec:
    changes, l2 = CASES[name]
    return worker_spec(parse(merge(data, changes)), HERE, l2)


def readable(spec: WorkloadSpec) -> dict[str, Any]:
    """The spec with what another room decides (vLLM's JSON for the cache) left out."""
    facts = asdict_plain(spec)
    argv = list(spec.argv)
    if "--kv-transfer-config" in argv:
        argv[argv.index("--kv-transfer-config") + 1] = "..."
    return facts | {"argv": argv}


@pytest.mark.parametrize("name", CASES)
def test_golden(data: dict[str, Any], name: str) -> None:
    text = json.dumps(readable(made(data, name)), indent=1) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "UPDATE_GOLDEN=1 writes it anew; then read the diff"


def test_cache_configuration_comes_from_cachetier(data: dict[str, Any]) -> None:
    context = ("--max-model-len=2048",)
    target = L2Target(L2.url, "sha256:abc", 3600, model_arguments=context, revision="v2")
    for name, expected in {
        "vllm_l1": kv_transfer_config(GIB // 2, "arc", None, "cpu", chunk_tokens=64),
        "vllm_l1_l2": kv_transfer_config(GIB // 2, "lru", target, "cpu", chunk_tokens=32),
    }.items():
        argv = made(data, name).argv
        assert json.loads(argv[argv.index("--kv-transfer-config") + 1]) == expected
    assert "--kv-transfer-config" not in made(data, "vllm_no_cache").argv


def test_local_data_parallel_engines_choose_ports_of_this_machine(data: dict[str, Any]) -> None:
    """vLLM has no sockets in files for later ranks; the router asks the worker for the ports."""
    patch = {"engine": "vllm", "worker_args": ["-dp", "2"]}
    spec = worker_spec(parse(merge(data, patch)), HERE, None)
    events = json.loads(spec.argv[spec.argv.index("--kv-events-config") + 1])
    assert events["endpoint"] == events["replay_endpoint"] == "tcp://*:0"
    assert spec.env["VLLM_HOST_IP"] == "127.0.0.1"
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in spec.env
    assert spec.channels == ()


def test_only_restart_fields_are_in_the_hash(data: dict[str, Any]) -> None:
    from endpoints.spec.field import Effect
    from endpoints.spec.fields import FIELDS

    other = {
        "replicas": 3,
        "routing.enabled": False,
        "routing.strategy": "session",
        "routing.session_key": "body:user",
        "routing.cache_isolation": "group",
        "routing.allowed_origins": [],
        "routing.prompt_preview": True,
        "routing.record_traffic": True,
        "routing.record_days": 1,
        "routing.record_mib": 1,
        "model": "org/other",
        "engine": "simulated",
        "cache.l1.enabled": False,
        "cache.l1.size_gib": 1.0,
        "cache.l1.policy": "arc",
        "cache.l1.chunk_tokens": 64,
        "cache.l2.ttl_s": 60,
        "worker_args": ["--max-num-seqs=4"],
        "aliases": ["gpt-4o-mini"],
        "media_domains": ["images.example.com"],
        "resources.cpus": 2.0,
        "resources.memory_gib": 5.0,
        "resources.gpus": 1,
    }
    base = merge(data, {"engine": "vllm", "cache.l2.enabled": True})
    before = worker_spec(parse(base), HERE, L2).spec_hash
    for field in FIELDS:
        # Where L2 is reaches the workers as an address, tried below.
        if field.path == "name" or (field.path.startswith("cache.l2.") and field.path not in other):
            continue
        if field in CLUSTER_FIELDS:
            continue
        after = worker_spec(parse(merge(base, {field.path: other[field.path]})), HERE, L2)
        assert (after.spec_hash != before) == (field.effect is Effect.RESTART), field.path
    moved = worker_spec(parse(base), HERE, L2Access("redis://127.0.0.1:6401", L2.password_file))
    assert moved.spec_hash != before


def test_user_can_override_a_default(data: dict[str, Any]) -> None:
    args = ["--dtype=bfloat16", "--shutdown_timeout", "5"]
    spec = worker_spec(parse(merge(data, {"engine": "vllm", "worker_args": args})), HERE, None)
    assert "float32" not in spec.argv
    assert spec.argv.count("--shutdown-timeout") == 0
    assert spec.argv[-3:] == tuple(args)


FLAG, REDIRECTS = "--allowed-media-domains", "VLLM_MEDIA_URL_ALLOW_REDIRECTS"


@pytest.mark.parametrize(
    ("hosts", "rendered"),
    [([], ["none.invalid"]), (["a.example", "10.0.0.1"], ["a.example", "10.0.0.1"]), (["*"], None)],
)
def test_worker_fetches_media_from_listed_hosts_only(
    data: dict[str, Any], hosts: list[str], rendered: list[str] | None
) -> None:
    """Callers choose the URL, and the worker is inside the network."""
    args = ["--max-num-seqs=4"]
    wanted = {"engine": "vllm", "media_domains": hosts, "worker_args": args}
    spec = worker_spec(parse(merge(data, wanted)), HERE, None)
    argv = list(spec.argv)
    if rendered is None:
        assert FLAG not in argv
        assert REDIRECTS not in spec.env
    else:
        at = argv.index(FLAG) + 1
        assert argv[at : at + len(rendered)] == rendered
        assert argv[at + len(rendered)].startswith("--"), "nothing else is taken for a host"
        assert spec.env[REDIRECTS] == "0"


def test_hosts_in_the_arguments_replace_the_field(data: dict[str, Any]) -> None:
    args = [FLAG, "b.example"]
    spec = worker_spec(parse(merge(data, {"engine": "vllm", "worker_args": args})), HERE, None)
    assert spec.argv.count(FLAG) == 1
    assert spec.argv[-2:] == tuple(args)
    assert spec.env[REDIRECTS] == "0"


@pytest.mark.parametrize("host", ["https://a.example", "A.example", "a/b", "", "*.example", "-x"])
def test_invalid_host_is_rejected(data: dict[str, Any], host: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse(merge(data, {"media_domains": [host]}))
    assert caught.value.errors[0].code == "invalid_host"
    with pytest.raises(SpecErrors):
        parse(merge(data, {"media_domains": ["*", "a.example"]}))


def test_spec_contains_no_secret(data: dict[str, Any], tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hunter2")
    spec = worker_spec(parse(data), HERE, L2Access("redis://127.0.0.1:1", str(secret)))
    assert "hunter2" not in json.dumps(asdict_plain(spec))
    assert spec.secret_env == {"EMBERLINE_L2_PASSWORD": str(secret)}


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("simulated")])
def test_simulated_worker_accepts_its_arguments(data: dict[str, Any], name: str) -> None:
    argv = [word.replace("{host}:{port:http}", "127.0.0.1:1") for word in made(data, name).argv]
    options = parse_simulated(argv[3:])
    assert options.models == ("demo", "smollm2-135m-instruct")
    assert not options.ignored
    if name == "simulated_l1_l2":
        assert options.l1_bytes == 512 * 1024**2
        assert options.l2 is not None


def test_served_names(data: dict[str, Any]) -> None:
    assert served_names(parse(data)) == ("demo", "smollm2-135m-instruct")
    assert served_names(parse(merge(data, {"model": "/a/b/c"}))) == ("demo", "c")
    assert served_names(parse(merge(data, {"model": "demo"}))) == ("demo",)
    aliases = ["gpt-4o-mini", "demo", "org/other:7b"]
    assert served_names(parse(merge(data, {"model": "demo", "aliases": aliases}))) == (
        "demo", "gpt-4o-mini", "org/other:7b",
    )  # fmt: skip
