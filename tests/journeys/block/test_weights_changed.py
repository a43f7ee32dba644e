"""Real vLLM: KV computed with other weights is never read from L2."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cachetier.vllm_connector.settings import L2Target
from endpoints.spec.endpoint_spec import merge, parse
from endpoints.workload.kv_identity import adapter_paths, kv_identity, model_arguments
from tests.support.cachenode import CacheNode
from tests.support.endpoints.fixtures import data
from tests.support.vllm.fixtures import PASSWORD, SMALL, patient_transfer
from tests.support.vllm.installation import short_model_path
from tests.support.vllm.lora import make_adapter
from tests.support.vllm.router_process import text
from tests.support.vllm.worker import BLOCK_TOKENS, Completion, Worker
from tests.support.waiting import until

__all__ = ["data"]
pytestmark = pytest.mark.vllm
WORDS = 200


@pytest.fixture(scope="module")
def model(short_folder: Path) -> Path:
    return Path(shutil.copytree(short_model_path(), short_folder / "weights"))


@pytest.fixture(scope="module")
def node(short_folder: Path) -> Iterator[CacheNode]:
    folder = short_folder / "weights-node"
    folder.mkdir()
    started = CacheNode(folder, memory="256MiB", password=PASSWORD)
    yield started
    started.kill()


def started(
    folder: Path, name: str, model: Path, node: CacheNode, source: str, *arguments: str
) -> Worker:
    target = L2Target(
        f"redis://127.0.0.1:{node.port}",
        source,
        ttl_s=3600,
        model_arguments=tuple(model_arguments(arguments)),
        adapters=tuple(adapter_paths(arguments)),
    )
    transfer = patient_transfer(target)
    secrets = {target.password_env: PASSWORD}
    worker = Worker(folder, name, transfer, secrets, "--model", str(model), *SMALL, *arguments)
    worker.wait_ready()
    return worker


@contextlib.contextmanager
def without_tier(folder: Path, model: Path, *arguments: str) -> Iterator[Worker]:
    """A worker that has neither L1 nor L2."""
    worker = Worker(folder, "plain", None, {}, "--model", str(model), *SMALL, *arguments)
    try:
        worker.wait_ready()
        yield worker
    finally:
        worker.kill()


def swap_weights(worker: Worker) -> None:
    """Load the changed weights as `/update_weights` does: vLLM resets its caches in the pause."""
    for path in ("/pause", "/collective_rpc", "/resume"):
        assert worker._post(path, {"method": "reload_weights"})[0] == 200


def stored(worker: Worker, node: CacheNode, prompt: str, **more: object) -> Completion:
    before = node.metric("emberline_l2_blocks")
    answer = worker.complete(prompt, **more)
    blocks = answer.prompt_tokens // BLOCK_TOKENS
    until(lambda: node.metric("emberline_l2_blocks") >= before + blocks, 90.0, "blocks in L2")
    return answer


def change_weights(path: Path, seed: int) -> None:
    """Change one tensor in place: sizes, names and both ends of the file stay.

    A norm, which vLLM's CPU build reloads with effect: linear layers keep their packed copies.
    """
    with path.open("r+b") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
        begin, end = header["model.layers.0.input_layernorm.weight"]["data_offsets"]
        assert 1 << 20 < begin < end < path.stat().st_size - (2 << 20)
        file.seek(8 + header_bytes + begin)
        numbers, chance = (end - begin) // 4, random.Random(seed)
        file.write(struct.pack(f"<{numbers}f", *(chance.gauss() for _ in range(numbers))))


def test_changed_weights_read_no_earlier_block(
    short_folder: Path, model: Path, node: CacheNode
) -> None:
    prompt, salted = text(WORDS), f"salted {text(WORDS)}"
    source = str(model)
    worker = started(short_folder, "weights-1", model, node, source)
    try:
        before = stored(worker, node, prompt)
    finally:
        worker.kill()

    change_weights(model / "model.safetensors", 1)
    worker = started(short_folder, "weights-2", model, node, source)
    try:
        after = stored(worker, node, prompt)
        assert (after.cached_tokens, worker.cached_from("disk")) == (0, 0)
        assert after.text != before.text, "these weights give another text"
        stored(worker, node, salted, cache_salt="of-one-key")
    finally:
        worker.kill()

    worker = started(short_folder, "weights-3", model, node, source)
    try:
        unchanged = worker.complete(prompt)
        loaded = worker.cached_from("disk")
        assert loaded > 0, "the same weights share L2 after a restart"
        for salt in ("of-another-key", None):
            worker.complete(salted, cache_salt=salt)
            assert worker.cached_from("disk") == loaded, "no other key reads these blocks"
        worker.complete(salted, cache_salt="of-one-key")
        assert worker.cached_from("disk") > loaded
        with without_tier(short_folder, model) as plain:
            assert unchanged.text == after.text == plain.complete(prompt).text
            change_weights(model / "model.safetensors", 2)
            swap_weights(plain)
            expected = plain.complete(prompt).text
        swap_weights(worker)
        loaded = worker.cached_from("disk")
        swapped = stored(worker, node, prompt)
        assert (swapped.cached_tokens, worker.cached_from("disk")) == (0, loaded)
        assert swapped.text == expected != after.text
    finally:
        worker.kill()


def test_changed_overrides_read_no_earlier_block(
    short_folder: Path, model: Path, node: CacheNode, data: dict[str, Any]
) -> None:
    prompt, weights = f"overrides {text(WORDS)}", str(model)
    answers = []
    for number, theta in enumerate((0, 100)):
        overrides = (
            "--hf-overrides",
            json.dumps({"rope_parameters": {"rope_type": "default", "rope_theta": theta}}),
        )
        arguments = overrides if theta else ()
        source = kv_identity(parse(merge(data, {"worker_args": list(arguments)})), weights)
        worker = started(short_folder, f"theta-{number}", model, node, source, *arguments)
        try:
            answer = stored(worker, node, prompt)
            assert (answer.cached_tokens, worker.cached_from("disk")) == (0, 0)
        finally:
            worker.kill()
        with without_tier(short_folder, model, *arguments) as plain:
            assert answer.text == plain.complete(prompt).text
        answers.append(answer.text)
    assert len(set(answers)) == 2, "each override gives another text"


def test_adapter_changed_in_its_folder_reads_no_earlier_block(
    short_folder: Path, model: Path, node: CacheNode
) -> None:
    prompt, source = f"adapter {text(WORDS)}", str(model)
    answers = []
    for number, seed in enumerate((2, 3)):
        adapter = make_adapter(short_folder / "adapter", seed)
        arguments = ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"ad={adapter}")
        worker = started(short_folder, f"adapter-{number}", model, node, source, *arguments)
        try:
            answer = stored(worker, node, prompt, model="ad")
            assert (answer.cached_tokens, worker.cached_from("disk")) == (0, 0)
        finally:
            worker.kill()
        answers.append(answer.text)
    assert answers[0] != answers[1], "each adapter gives another text"
