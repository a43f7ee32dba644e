"""Run LMCache's Redis connectors: `python lmcache_driver.py PACKAGES URL [URL ...]`.

Run by a Python with torch (the vLLM environment); PACKAGES is the folder with the published lmcache
wheel. The connectors are those LMCache creates from a `remote_url` (`redis://`: redis-py;
`resp://`: its C++ client with eight threads), with a minimal engine around them: configuration,
model shape, CPU memory. Prints "ok", the connector and the bytes read back, for each URL.
"""

from __future__ import annotations

import asyncio
import os
import sys

PACKAGES, *URLS = sys.argv[1:]
sys.path.append(PACKAGES)  # after the environment's packages

import torch  # noqa: E402
from lmcache.utils import CacheEngineKey  # noqa: E402
from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402
from lmcache.v1.storage_backend.connector import CreateConnector  # noqa: E402
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend  # noqa: E402

LAYERS, CHUNK, HEADS, SIZE = 4, 256, 3, 64
CHUNKS = 12


def _engine(url: str) -> tuple[LMCacheEngineConfig, LMCacheMetadata, LocalCPUBackend]:
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=CHUNK,
        max_local_cpu_size=0.25,
        remote_url=url,
        extra_config={"save_chunk_meta": False} if url.startswith("resp") else None,
    )
    metadata = LMCacheMetadata(
        model_name="HuggingFaceTB/SmolLM2-135M-Instruct",
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=torch.float32,
        kv_shape=(LAYERS, 2, CHUNK, HEADS, SIZE),
        chunk_size=CHUNK,
    )
    return config, metadata, LocalCPUBackend(config, metadata, dst_device="cpu")


async def main(url: str) -> None:
    config, metadata, backend = _engine(url)
    loop = asyncio.get_running_loop()
    connector = CreateConnector(url, loop, backend, config, metadata)
    keys = [CacheEngineKey(metadata.model_name, 1, 0, n, torch.float32) for n in range(CHUNKS)]
    values, sent = [], []
    for _ in keys:
        memory = backend.allocate(metadata.get_shapes(), metadata.get_dtypes())
        assert memory is not None
        memory.tensor.copy_(torch.randn(memory.tensor.shape))
        sent.append(memory.tensor.clone())  # the connector frees it once stored
        values.append(memory)
    assert await connector.batched_async_contains("before", keys) == 0
    await connector.put(keys[0], values[0])
    await connector.batched_put(keys[1:-1], values[1:-1])
    assert await connector.exists(keys[0])
    assert not await connector.exists(keys[-1])
    assert await connector.batched_async_contains("after", keys) == CHUNKS - 1
    found = [await connector.get(keys[0])]
    found += await connector.batched_get_non_blocking("get", keys[1:-1])
    read = 0
    for tensor, got in zip(sent, found, strict=False):
        assert got is not None
        assert torch.equal(tensor, got.tensor)
        read += got.tensor.nbytes
    assert len(found) == CHUNKS - 1
    print(f"ok {url.partition(':')[0]} {read}", flush=True)


for one in URLS:
    asyncio.run(main(one))
# LMCache closes the connectors' threads and queues from another thread's loop; here that would
# block forever.
os._exit(0)
