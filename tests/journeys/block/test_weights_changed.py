"""Real vLLM: KV computed with other weights is never read from L2."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachetier.vllm_connector.settings import L2Target, kv_transfer_config, model_identity
from tests.support.cachenode import CacheNode
from tests.support.vllm.fixtures import L1_BYTES, PASSWORD, SMALL
from tests.support.vllm.installation import short_model_path
from tests.support.vllm.router_process import text
from tests.support.vllm.worker import BLOCK_TOKENS, Completion, Worker
from tests.support.waiting import until

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


def started(folder: Path, name: str, model: Path, node: CacheNode, source: str) -> Worker:
    target = L2Target(f"redis://127.0.0.1:{node.port}", source, ttl_s=3600)
    transfer = kv_transfer_config(L1_BYTES, "lru", target, "cpu")
    secrets = {target.password_env: PASSWORD}
    worker = Worker(folder, name, transfer, secrets, "--model", str(model), *SMALL)
    worker.wait_ready()
    return worker


def stored(worker: Worker, node: CacheNode, prompt: str) -> Completion:
    before = node.metric("emberline_l2_blocks")
    answer = worker.complete(prompt)
    blocks = answer.prompt_tokens // BLOCK_TOKENS
    until(lambda: node.metric("emberline_l2_blocks") >= before + blocks, 90.0, "blocks in L2")
    return answer


def change_in_the_middle(path: Path) -> None:
    """Change numbers of one tensor; sizes, names and both ends stay."""
    middle = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.seek(middle - middle % 4096)
        file.write(struct.pack("<65536H", *(index * 7 & 0x3FFF for index in range(65_536))))


def test_changed_weights_read_no_earlier_block(
    short_folder: Path, model: Path, node: CacheNode
) -> None:
    prompt = text(WORDS)
    # The console's part of the identity is the same throughout: the worker's own must tell.
    source = model_identity(str(model))
    worker = started(short_folder, "weights-1", model, node, source)
    try:
        before = stored(worker, node, prompt)
    finally:
        worker.kill()

    change_in_the_middle(model / "model.safetensors")
    assert model_identity(str(model)) == source
    worker = started(short_folder, "weights-2", model, node, source)
    try:
        after = stored(worker, node, prompt)
        assert (after.cached_tokens, worker.cached_from("disk")) == (0, 0)
        assert after.text != before.text, "these weights give another text"
        # Replaced at run time: vLLM resets its caches, and what L2 holds is of unknown weights.
        answer = worker._post("/reset_prefix_cache?reset_external=true", {})
        assert answer[0] == 200
        again = stored(worker, node, prompt)
        assert (again.cached_tokens, worker.cached_from("disk")) == (0, 0)
        assert again.text == after.text
    finally:
        worker.kill()

    worker = started(short_folder, "weights-3", model, node, source)
    try:
        unchanged = worker.complete(prompt)
        assert worker.cached_from("disk") > 0, "the same weights share L2 after a restart"
        assert unchanged.text == after.text
    finally:
        worker.kill()
