"""Rendered worker settings of each cache configuration, compared with golden files."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cachetier.rendering.render import render
from cachetier.rendering.sizes import GIB, MIB, compute_rows
from cachetier.rendering.spec import (
    L1,
    L2,
    CacheSpec,
    Connector,
    Mooncake,
    Rendered,
    RenderError,
    Shape,
)
from tests.support.cachenode import ROOT

GOLDEN = Path(__file__).parent / "golden"
# SmolLM2-135M in float32, and Llama-3.1-70B in bfloat16 on four GPUs.
CPU = Shape("cpu", ranks=1, kv_bytes_per_token=46_080, block_tokens=32)
GPU = Shape("cuda", ranks=4, kv_bytes_per_token=81_920, block_tokens=16)
SMALL, LARGE = L1(512 * MIB, chunk_tokens=32), L1(80 * GIB, "arc", chunk_tokens=64)
OURS = L2("redis://cache.kv.svc:6400?nodes=dns&replicas=2", "sha256:abc", 3600, "/secrets/l2")
REDIS = L2("rediss://redis:6380?ca_file=/ca.pem", "org/m@main", 600, "/secrets/redis")
CLUSTER = L2("redis://r1:6379,r2:6379?nodes=cluster", "org/m@main")
PLAIN = L2("redis://redis:6379", "org/m@main")
LRU = L1(80 * GIB)

CASES: dict[str, CacheSpec] = {
    "cpu_l1": CacheSpec(SMALL, shape=CPU),
    "cpu_l1_tieredstorage": CacheSpec(SMALL, OURS, CPU),
    "gpu_l1": CacheSpec(LARGE, shape=GPU),
    "gpu_l1_tieredstorage": CacheSpec(LARGE, OURS, GPU),
    "gpu_l1_redis_tls": CacheSpec(LARGE, REDIS, GPU),
    "gpu_l1_redis_cluster": CacheSpec(LARGE, CLUSTER, GPU),
    "gpu_unknown_model": CacheSpec(LARGE, shape=Shape("cuda", ranks=2)),
    "lmcache_env": CacheSpec(LRU, PLAIN, GPU, Connector.LMCACHE),
    "lmcache_yaml": CacheSpec(LRU, PLAIN, GPU, Connector.LMCACHE, in_yaml=True),
    "lmcache_secret_url": CacheSpec(
        LRU, L2(url_file="/secrets/url"), GPU, Connector.LMCACHE, in_yaml=True
    ),
    "lmcache_l1": CacheSpec(LRU, None, GPU, Connector.LMCACHE),
    "lmcache_server": CacheSpec(LRU, PLAIN, GPU, Connector.LMCACHE_SERVER),
    "mooncake": CacheSpec(
        LRU, None, GPU, Connector.MOONCAKE, mooncake=Mooncake("mooncake-master:50051")
    ),
}


def readable(made: Rendered) -> str:
    facts = dataclasses.asdict(made)
    facts["args"] = [_opened(argument) for argument in made.args]
    return json.dumps(facts, indent=1) + "\n"


def _opened(argument: str) -> object:
    return json.loads(argument) if argument.startswith("{") else argument


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    text = readable(render(CASES[name]))
    path = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "UPDATE_GOLDEN=1 writes it anew; then read the diff"


def test_every_connector_has_a_golden_file() -> None:
    assert {spec.connector for spec in CASES.values()} == set(Connector)
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_secrets_are_kept_and_not_rendered(name: str) -> None:
    made, spec = render(CASES[name]), CASES[name]
    wanted = [] if spec.l2 is None else [spec.l2.password_file, spec.l2.url_file]
    assert sorted(made.secret_env.values()) == sorted(path for path in wanted if path)


def test_row_size_covers_all_ranks_rounded_up_to_pages() -> None:
    """As vLLM's CPUOffloadingSpec counts: 81,920 bytes x 4 ranks x 64 tokens is whole pages."""
    found = compute_rows(LARGE, GPU)
    assert found.row_bytes == 81_920 * 4 * 64
    assert found.count == 80 * GIB // found.row_bytes
    odd = compute_rows(
        L1(10 * MIB, chunk_tokens=16), Shape("cuda", ranks=1, kv_bytes_per_token=1000)
    )
    assert (odd.row_bytes, odd.count) == (16_384, 640)
    assert odd.used_bytes == 640 * 16_384


def test_shared_memory_exceeds_l1_and_counts_for_the_pod() -> None:
    made = render(CASES["gpu_l1"])
    (volume,) = made.volumes
    assert volume.path == "/dev/shm"
    assert volume.size_bytes > compute_rows(LARGE, GPU).used_bytes
    assert volume.size_bytes == made.memory_bytes


def test_lmcache_and_mooncake_sizes_are_per_rank() -> None:
    assert render(CASES["lmcache_env"]).env["LMCACHE_MAX_LOCAL_CPU_SIZE"] == "20.0"
    (file,) = render(CASES["mooncake"]).files
    assert json.loads(file.content)["global_segment_size"] == 20 * GIB


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (CacheSpec(L1(0)), "l1.size_bytes: 0 is not a size"),
        (CacheSpec(L1(1), shape=GPU), "l1.size_bytes: 1 is less than one chunk"),
        (CacheSpec(L1(GIB, "fifo")), "lru, arc"),
        (CacheSpec(L1(GIB), shape=Shape("tpu")), "shape.platform: 'tpu'"),
        (CacheSpec(L1(GIB), shape=Shape(ranks=0)), "shape.ranks: 0"),
        (CacheSpec(L1(GIB, chunk_tokens=40)), "40 is not a multiple of .* use 32"),
        (CacheSpec(L1(GIB), L2("http://x", "m")), "l2.url: .*must begin with redis"),
        (CacheSpec(L1(GIB), L2("redis://u:p@x", "m")), "l2.url: .*credentials"),
        (CacheSpec(L1(GIB), L2("redis://x", "")), "identity"),
        (CacheSpec(L1(GIB), L2("redis://x", "m", url_file="/f")), "only LMCache"),
        (CacheSpec(SMALL, None, CPU, Connector.LMCACHE), "lmcache needs a GPU"),
        (
            CacheSpec(LARGE, None, GPU, Connector.LMCACHE),
            "l1.policy: 'arc' is not supported by LMCache",
        ),
        (CacheSpec(LRU, REDIS, GPU, Connector.LMCACHE), "set l2.url_file"),
        (CacheSpec(LRU, CLUSTER, GPU, Connector.LMCACHE), "several nodes"),
        (CacheSpec(LRU, L2(), GPU, Connector.LMCACHE), "l2.url: is missing"),
        (CacheSpec(LRU, REDIS, GPU, Connector.LMCACHE_SERVER), "accepts no password"),
        (CacheSpec(LRU, None, GPU, Connector.LMCACHE_SERVER, server="x"), "HOST:PORT"),
        (CacheSpec(LRU, None, GPU, Connector.MOONCAKE), "mooncake.master: is missing"),
        (CacheSpec(LRU, PLAIN, GPU, Connector.MOONCAKE, mooncake=Mooncake("m:1")), "remove l2"),
        (
            CacheSpec(LRU, None, GPU, Connector.MOONCAKE, mooncake=Mooncake("m:1", "udp")),
            "not one of rdma, tcp",
        ),
    ],
)
def test_impossible_settings_are_rejected_with_a_message(spec: CacheSpec, words: str) -> None:
    with pytest.raises(RenderError, match=words):
        render(spec)


def test_rendering_imports_without_django_and_vllm() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('vllm', 'torch', 'django', 'celery')))\n"
        "import cachetier.rendering.render\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)
