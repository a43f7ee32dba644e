"""vLLM secondary tier backed by L2, which never raises into or blocks the engine.

Runs in the engine process on the scheduler thread: lookups go through LookupBoard, bytes through
TransferPool, both on one CachePool. A slow lookup is a miss, a partial load keeps the verified
blocks, a store that cannot be queued is dropped. All are counted in vLLM's /metrics as
emberline_l2_client_*. Stored blocks are published as KV events, as a hint that any worker can load
them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.pool import CachePool
from cachetier.vllm_connector import namespace, shm, stats
from cachetier.vllm_connector.compat import (
    VLLM_MINOR,
    JobResult,
    Locality,
    LookupResult,
    Medium,
    OffloadingConnectorStats,
    OffloadingEvent,
    OffloadingMetricMetadata,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    SecondaryTierManager,
    TransferJob,
    get_offload_block_hash,
    get_offload_group_idx,
    log,
    page_layout,
)
from cachetier.vllm_connector.lookups import LookupBoard, StepPauses
from cachetier.vllm_connector.settings import LOAD_TIMEOUT_MS, LOOKUP_TIMEOUT_MS, PASSWORD_ENV
from cachetier.vllm_connector.transfers import FinishedJob, Item, TransferPool
from cachetier.vllm_connector.weights import depends_on_arguments, weights_identity
from cachetier.wire.envelope import block_key

# Blocks per batch: large enough for throughput, small enough to spread over threads.
_PART_ITEMS = 4
# Load deadline: base time plus this per MiB (a quarter of a 1 Gbit/s line).
_SECONDS_PER_MIB = 1 / 32
_STORE_TIMEOUT_S = 10.0
_JOIN_S = 5.0


class EmberlineL2Tier(SecondaryTierManager):
    """Tier selected by `type` and `module_path` in --kv-transfer-config."""

    medium = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        url: str,
        model_id: str,
        backpressure_detector: Any = None,
        ttl_s: int = 0,
        password_env: str = PASSWORD_ENV,
        lookup_timeout_ms: int = LOOKUP_TIMEOUT_MS,
        load_timeout_ms: int = LOAD_TIMEOUT_MS,
        threads: int = 4,
        max_store_bytes: int = 256 * 1024 * 1024,
        model_arguments: Sequence[str] = (),
        adapters: Sequence[str] = (),
        revision: str = "",
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality.REMOTE
        for path in shm.sweep_dead_files():  # on a GPU vLLM's own spec does not sweep
            log.warning("Removed L1 file %s of a killed worker", path)
        self._rows = primary_kv_view.cast("B")
        self._ttl_s = ttl_s
        self._load_timeout_s = load_timeout_ms / 1000
        self._lookup_timeout_s = lookup_timeout_ms / 1000
        self._namespace = self._make_namespace(
            offloading_spec, model_id, model_arguments, adapters, revision
        )
        self._l2 = CachePool(
            Nodes.parse(url), os.environ.get(password_env, ""), on_change=log.warning
        )
        self._keys_of_job: dict[int, list[OffloadKey]] = {}
        self._reports_events = bool(offloading_spec.kv_events_config.enable_kv_cache_events)
        self._unreported: list[OffloadKey] = []
        self._pauses = StepPauses(lambda: self._pool.is_loading or self._board.is_waiting)
        self._board = LookupBoard(
            self._exists, self._lane, self._lookup_timeout_s, self._pauses.news
        )
        self._pool = TransferPool(
            self._load,
            self._store,
            self._l2.lane,
            threads=threads,
            part_items=_PART_ITEMS,
            max_store_bytes=max_store_bytes,
            on_news=self._pauses.news,
        )
        self._reporter = stats.Reporter(self._l2, self._board)
        log.info("L2 at %s, namespace %s", self._l2, self._namespace)

    def _make_namespace(
        self,
        spec: Any,
        model_id: str,
        model_arguments: Sequence[str],
        adapters: Sequence[str],
        revision: str,
    ) -> str:
        if not model_id:
            raise ValueError("L2 needs model_id: two models would read each other's blocks")
        namespace_fields = namespace.facts(
            spec.config,
            row_bytes=self.block_size_bytes,
            replicated=bool(spec.replicated_layout),
            model_id=model_id,
            vllm=VLLM_MINOR,
        )
        model = spec.config.model.name
        namespace_fields |= {"page": page_layout(), "weights": weights_identity(model, revision)}
        if model_arguments and depends_on_arguments(model, revision):
            namespace_fields["arguments"] = sorted(model_arguments)
        if adapters:
            namespace_fields["adapters"] = sorted(weights_identity(path) for path in adapters)
        return namespace.digest_facts(namespace_fields)

    def on_new_request(self, req_context: ReqContext) -> Any:  # noqa: ARG002
        return RequestOffloadingContext()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> Any:
        answer = self._board.ask(bytes(key), req_context.req_id)
        if answer is None:
            return LookupResult.RETRY
        return LookupResult.HIT if answer else LookupResult.MISS

    def on_schedule_end(self, context: ScheduleEndContext) -> None:  # noqa: ARG002
        self._board.flush()
        self._pauses.after_step()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._board.forget(req_context.req_id)

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._submit(job_metadata, _STORE_TIMEOUT_S, is_load=False)

    def submit_load(self, job_metadata: TransferJob) -> None:
        size_mib = len(job_metadata.keys) * self.block_size_bytes / 2**20
        self._submit(job_metadata, self._load_timeout_s + size_mib * _SECONDS_PER_MIB, is_load=True)

    def _submit(self, job: TransferJob, timeout_s: float, *, is_load: bool) -> None:
        keys = list(job.keys)
        self._keys_of_job[job.job_id] = keys
        row = self.block_size_bytes
        items = [
            (self._block_key(key), self._rows[int(chunk) * row : (int(chunk) + 1) * row])
            for key, chunk in zip(keys, job.chunk_ids, strict=True)
        ]
        if not self._pool.submit(job.job_id, items, timeout_s, is_load=is_load):
            self._reporter.dropped(len(items))

    def get_finished_jobs(self) -> Iterable[Any]:
        return [self._result(finished) for finished in self._pool.finished()]

    def _result(self, finished: FinishedJob) -> Any:
        keys = self._keys_of_job.pop(finished.job_id)
        came = [key for key, well in zip(keys, finished.succeeded, strict=True) if well]
        complete = len(came) == len(keys)
        if finished.is_load and not complete:
            missing = set(keys).difference(came)
            self._board.mark_missing([bytes(key) for key in missing])
        if self._reports_events and not finished.is_load:
            self._unreported += came
        return JobResult(
            job_id=finished.job_id,
            success=complete,
            successful_keys=tuple(came) if finished.is_load and came and not complete else None,
            transfer_time=finished.seconds,
            transfer_bytes=finished.byte_count,
        )

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Return blocks stored since the last call: a hint, since L2 evicts without notice."""
        if not self._unreported:
            return ()
        keys, self._unreported = self._unreported, []
        event = OffloadingEvent(
            keys=keys,
            medium=self.medium,
            removed=False,
            locality=self.locality,
            ownership=self.tier_type,
        )
        return (event,)

    def drain_jobs(self) -> None:
        """End all transfers, as vLLM resets its caches: for sleep, new weights, or on request.

        What the weights are from now on is unknown here, so the worker leaves its namespace: it
        shares no block with others, and none of its own from before, until it restarts.
        """
        self._pool.drain()
        self._board.mark_all_missing()
        self._namespace = namespace.digest_facts(
            {"left": self._namespace, "reset": secrets.token_hex(16)}
        )
        log.warning(
            "The caches were reset: L2 is used under the new namespace %s, which no other worker "
            "shares. Restart the worker to share again.",
            self._namespace,
        )

    def shutdown(self) -> None:
        self._pool.stop()
        self._l2.close()
        self._board.shutdown(_JOIN_S)
        if not self._pool.join(_JOIN_S):
            # vLLM keeps L1 mapped when a tier fails to shut down, as required here.
            raise RuntimeError("L2 threads are still running")
        self._rows.release()

    def _block_key(self, key: OffloadKey) -> bytes:
        return block_key(self._namespace, get_offload_group_idx(key), get_offload_block_hash(key))

    def _lane(self, key: bytes) -> str:
        return self._l2.lane(self._block_key(OffloadKey(key)))

    def _exists(self, keys: Sequence[bytes]) -> Sequence[bool]:
        names = [self._block_key(OffloadKey(key)) for key in keys]
        return _succeeded(self._l2.exists(names, self._lookup_timeout_s))

    def _load(self, items: Sequence[Item], timeout_s: float) -> Sequence[bool]:
        return _succeeded(self._l2.load(items, timeout_s))

    def _store(self, items: Sequence[Item], timeout_s: float) -> Sequence[bool]:
        return _succeeded(self._l2.store(items, self._ttl_s, timeout_s))

    @classmethod
    def build_metric_definitions(
        cls,
        extra_config: dict[str, Any],  # noqa: ARG003
    ) -> dict[str, OffloadingMetricMetadata]:
        return stats.metric_definitions()

    def get_stats(self) -> OffloadingConnectorStats | None:
        return self._reporter.take()


def _succeeded(outcomes: Collection[KeyOutcome]) -> list[bool]:
    return [outcome is KeyOutcome.OK for outcome in outcomes]
