"""Contract of the vLLM hooks used by the plug-in, and its imports in the vLLM environment.

vLLM marks these hooks experimental. When one of these fails on a new vLLM, read what changed, adapt
`cachetier.vllm_connector`, run test_cache_proof, and only then add the version to compat.
"""

from __future__ import annotations

import json

import pytest

from tests.support.cachenode import ROOT
from tests.support.vllm.forks import run_vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(120)]

# name -> its parameters, in order; "=" marks one with a default.
SIGNATURES = {
    "tiering.base:SecondaryTierManager.__init__": (
        "self offloading_spec primary_kv_view tier_type backpressure_detector="
    ),
    "tiering.base:SecondaryTierManager.lookup": "self key req_context",
    "tiering.base:SecondaryTierManager.submit_store": "self job_metadata",
    "tiering.base:SecondaryTierManager.submit_load": "self job_metadata",
    "tiering.base:SecondaryTierManager.get_finished_jobs": "self",
    "tiering.base:SecondaryTierManager.on_new_request": "self req_context",
    "tiering.base:SecondaryTierManager.on_request_finished": "self req_context",
    "tiering.base:SecondaryTierManager.on_schedule_end": "self context",
    "tiering.base:SecondaryTierManager.drain_jobs": "self",
    "tiering.base:SecondaryTierManager.shutdown": "self",
    "tiering.base:SecondaryTierManager.get_stats": "self",
    "tiering.base:SecondaryTierManager.take_events": "self",
    "tiering.base:SecondaryTierManager.build_metric_definitions": "extra_config",
    "tiering.base:TransferJob": "job_id keys chunk_ids is_promotion req_context submit_time=",
    "tiering.base:JobResult": ("job_id success successful_keys= transfer_time= transfer_bytes="),
    "tiering.spec:TieringOffloadingSpec.__init__": "self config",
    "tiering.spec:TieringOffloadingSpec.get_manager": "self",
    "tiering.spec:TieringOffloadingSpec.get_worker": "self kv_caches",
    "base:OffloadingWorker.submit_store": "self job_id src_spec dst_spec",
    "base:OffloadingWorker.submit_load": "self job_id src_spec dst_spec",
    "base:OffloadingWorker.get_finished": "self",
    "base:OffloadingWorker.wait": "self job_ids",
    "base:OffloadingWorker.shutdown": "self",
    "base:OffloadingEvent": ("keys medium removed locality= ownership= removal_expected="),
    "base:TransferResult": "job_id success transfer_size= transfer_time=",
    "base:GPULoadStoreSpec.__init__": "self block_ids group_sizes block_indices",
    "base:CanonicalKVCaches": "tensors group_data_refs",
    "base:CanonicalKVCacheTensor": "tensor page_size_bytes",
    "base:CanonicalKVCacheRef": "tensor_idx page_size_bytes mapping=",
    "base:get_offload_block_hash": "key",
    "base:get_offload_group_idx": "key",
    "cpu.shared_offload_region:SharedOffloadRegion.__init__": (
        "self engine_id num_chunks rank kv_bytes_per_chunk cpu_page_size barrier= "
        "creator_memory_check= populate_only_on_creator="
    ),
    "cpu.shared_offload_region:SharedOffloadRegion.create_next_worker_view": (
        "self tensor_page_size"
    ),
    "cpu.shared_offload_region:SharedOffloadRegion.cleanup": "self",
}
# Attributes we touch which no signature shows.
SOURCES = {
    "cpu.shared_offload_region:SharedOffloadRegion": (
        'self.mmap_path = f"/dev/shm/vllm_offload_',
        "self._creator = True",
        "self.fd",
    ),
    "tiering.spec:TieringOffloadingSpec": (
        "self._scheduler_mmap = scheduler_mmap",
        "self._engine_id = config.engine_id",
    ),
    "base:OffloadingSpec": (
        "self.kv_events_config = OffloadingKVEventsConfig(",
        "enable_kv_cache_events=",
    ),
    "cpu.spec:CPUOffloadingSpec": (
        "self.num_chunks",
        "self.kv_bytes_per_chunk",
        "self.cpu_page_size_per_worker",
        "self._worker",
    ),
    "cpu.gpu_worker:CPUOffloadingWorker": ("self._mmap_region = mmap_region",),
    "config:OffloadingConfig": (
        "groups:",
        "model:",
        "cache:",
        "parallel:",
        "kv_cache_layout:",
        "canonical_layout:",
    ),
    "config:OffloadingParallelConfig": (
        "world_size:",
        "tp_size:",
        "pp_size:",
        "pcp_size:",
        "dcp_size:",
        "rank:",
    ),
}
ABSTRACT = [
    "drain_jobs",
    "get_finished_jobs",
    "lookup",
    "on_new_request",
    "submit_load",
    "submit_store",
]

_PROBE = """
import importlib, inspect, json, sys
asked = json.load(sys.stdin)
def find(name):
    module, path = name.split(":")
    thing = importlib.import_module("vllm.v1.kv_offload." + module)
    for part in path.split("."):
        thing = getattr(thing, part)
    return thing
def show(thing):
    parts = inspect.signature(thing).parameters.values()
    return " ".join(p.name + ("=" if p.default is not p.empty else "") for p in parts)
from cachetier.vllm_connector import compat, cpu_spec, settings, tier
base = importlib.import_module("vllm.v1.kv_offload.tiering.base").SecondaryTierManager
print(json.dumps({
    "signatures": {name: show(find(name)) for name in asked["signatures"]},
    "sources": {name: inspect.getsource(find(name)) for name in asked["sources"]},
    "abstract": sorted(base.__abstractmethods__),
    "ours_abstract": sorted(tier.EmberlineL2Tier.__abstractmethods__),
    "metrics": sorted(tier.EmberlineL2Tier.build_metric_definitions({})),
    "version": compat.VLLM_MINOR,
    "foreign": sorted(
        name for name in ("django", "celery", "redis", "console", "cachetier.engine")
        if name in sys.modules
    ),
}))
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, object]:
    requested = {"signatures": list(SIGNATURES), "sources": list(SOURCES)}
    done = run_vllm_python(
        "-c", _PROBE, stdin=json.dumps(requested).encode(), env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_signatures_are_unchanged(seen: dict[str, object]) -> None:
    assert seen["signatures"] == SIGNATURES


def test_used_attributes_exist(seen: dict[str, dict[str, str]]) -> None:
    missing = [
        (name, text)
        for name, texts in SOURCES.items()
        for text in texts
        if text not in seen["sources"][name]
    ]
    assert not missing


def test_tier_implements_every_abstract_method(seen: dict[str, object]) -> None:
    assert seen["abstract"] == ABSTRACT
    assert seen["ours_abstract"] == []


def test_plug_in_imports_nothing_else(seen: dict[str, object]) -> None:
    assert seen["foreign"] == []
    assert seen["version"] == "0.32"
    assert seen["metrics"] == [
        "emberline_l2_client_breaker_open",
        "emberline_l2_client_bytes",
        "emberline_l2_client_lookups_timed_out",
        "emberline_l2_client_node_breaker_open",
        "emberline_l2_client_node_bytes",
        "emberline_l2_client_node_operations",
        "emberline_l2_client_nodes",
        "emberline_l2_client_operations",
        "emberline_l2_client_previous_owner",
        "emberline_l2_client_shared_memory",
        "emberline_l2_client_stores_dropped",
    ]


def test_unknown_version_is_rejected_with_a_message(seen: dict[str, object]) -> None:
    """In vLLM's environment, since that is where it would happen."""
    program = (
        "import vllm.version; vllm.version.__version__ = '0.33.1'\n"
        "import cachetier.vllm_connector.tier"
    )
    done = run_vllm_python("-c", program, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode != 0
    assert "supports vLLM 0.32, not 0.33.1" in done.stderr
