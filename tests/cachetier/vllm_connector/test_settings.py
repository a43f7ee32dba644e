"""Worker settings of the plug-in: golden files, no secrets, rejected combinations."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from cachetier.vllm_connector.settings import L2Target, kv_transfer_config
from tests.support.cachenode import ROOT

TARGET = L2Target("redis://127.0.0.1:6400/0", "org/model", ttl_s=3600, revision="v2")
GOLDEN = """
{"kv_connector": "OffloadingConnector",
 "kv_role": "kv_both",
 "kv_load_failure_policy": "recompute",
 "kv_connector_extra_config": {
   "spec_name": "EmberlineTieringSpec",
   "spec_module_path": "cachetier.vllm_connector.cpu_spec",
   "cpu_bytes_to_use": 536870912,
   "eviction_policy": "arc",
   "self_describing_kv_events": true,
   "secondary_tiers": [{
     "type": "EmberlineL2Tier",
     "module_path": "cachetier.vllm_connector.tier",
     "url": "redis://127.0.0.1:6400/0",
     "model_id": "org/model",
     "ttl_s": 3600,
     "password_env": "EMBERLINE_L2_PASSWORD",
     "lookup_timeout_ms": 500,
     "load_timeout_ms": 2000,
     "revision": "v2"}],
   "block_size": 64}}
"""


def test_golden() -> None:
    made = kv_transfer_config(512 * 1024 * 1024, "arc", TARGET, "cpu", chunk_tokens=64)
    assert made == json.loads(GOLDEN)


def test_what_the_worker_decides_is_passed_where_it_is_set() -> None:
    target = replace(TARGET, model_arguments=("--max-model-len=9",), adapters=("/a", "/b"))
    extra: Any = kv_transfer_config(1, "lru", target, "cpu")["kv_connector_extra_config"]
    (tier,) = extra["secondary_tiers"]
    assert tier["model_arguments"] == ["--max-model-len=9"]
    assert tier["adapters"] == ["/a", "/b"]


def test_l1_alone_has_no_secondary_tier_and_the_vllm_chunk() -> None:
    extra = kv_transfer_config(1, "lru", None, "cuda")["kv_connector_extra_config"]
    assert isinstance(extra, dict)
    assert extra["secondary_tiers"] == []
    assert extra["spec_name"] == "TieringOffloadingSpec", "vLLM's own, where it has a copy"
    assert "spec_module_path" not in extra
    assert "block_size" not in extra


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((0, "lru", TARGET, "cpu"), "positive size"),
        ((1, "fifo", TARGET, "cpu"), "lru, arc"),
        ((1, "lru", TARGET, "tpu"), "cpu, cuda"),
        ((1, "lru", L2Target("redis://h", ""), "cpu"), "identity"),
    ],
)
def test_impossible_settings_are_rejected(args: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kv_transfer_config(*args)  # type: ignore[arg-type]


def test_credentials_are_not_in_the_json() -> None:
    with pytest.raises(ValueError, match="credentials") as caught:
        kv_transfer_config(1, "lru", L2Target("redis://:hunter2@h:1", "m"), "cpu")
    assert "hunter2" not in str(caught.value)


def test_module_imports_without_vllm_and_torch() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('vllm', 'torch', 'numpy')))\n"
        "import cachetier.vllm_connector.settings, cachetier.vllm_connector.lookups\n"
        "import cachetier.vllm_connector.transfers, cachetier.vllm_connector.shm\n"
        "import cachetier.vllm_connector.namespace, cachetier.client.cache_client\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


# -- the model's identity ----------------------------------------------------------------------
