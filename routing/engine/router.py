"""The router: active configuration, workers, policy, keys and metrics.

A new configuration is applied atomically between requests; in-flight requests keep theirs.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import traceback
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec
import xxhash

from console.processkit import descriptors
from console.processkit.changes import ENDPOINT, ChangeSender, socket_path
from routing.engine import policies
from routing.engine.access.admission import PeerDemand, RequestAdmission
from routing.engine.access.keys import KeyRing
from routing.engine.access.paths import PathRules
from routing.engine.canary.run import Canary
from routing.engine.config import Config, SessionKey
from routing.engine.errors import Refusal
from routing.engine.fleet.adapters import AdapterLoader
from routing.engine.fleet.load import RequestCharge
from routing.engine.fleet.pace import PaceMeter
from routing.engine.fleet.responses import ResponseLocator
from routing.engine.fleet.roster import Roster
from routing.engine.fleet.workers import Worker, WorkerTable
from routing.engine.http.bodies import BufferBudget
from routing.engine.http.http1 import RequestHead
from routing.engine.kvaware.placement import KvRouting
from routing.engine.misses.diagnostics import AnswerDiagnostics
from routing.engine.misses.ledger import MissLedger
from routing.engine.observe.decisions import DecisionRing
from routing.engine.observe.logs import Log
from routing.engine.observe.metrics import Metrics, StrategyMetrics
from routing.engine.observers import Observers
from routing.engine.policies.base import RoutingPolicy
from routing.engine.policies.canary import CanaryPolicy, find_kvaware
from routing.engine.prompt.identity import Identifier, Identity, find_session
from routing.engine.recorder import Recorder
from routing.engine.token_ledger import TokenLedger
from routing.engine.tokens.usage import BytesPerToken

if TYPE_CHECKING:
    from routing.engine.protocols import ClientSide, PeerRecorder

COMPLAINT_S: Final = 60.0  # between log lines about one place of the router
RENEW_PAUSE_S: Final = 0.05  # between looks for changed files because of an unknown key
# Fields that take effect only after a restart.
NEED_RESTART: Final = ("listen", "listen_more", "reuse_port", "admin", "endpoint", "namespace")


class Router:
    def __init__(self, config: Config, log: Log) -> None:
        self.log = log
        self._changes = ChangeSender(socket_path())
        self.config = config
        self.closing = False  # stopping: answers close their connections
        self.draining = False  # not ready, but still serving
        self.clients: set[ClientSide] = set()
        self.metrics = Metrics(config.namespace, config.endpoint)
        self.table = WorkerTable(self._worker_changed)
        self.pace = PaceMeter()
        self.adapters = AdapterLoader(self.table, log)
        self.responses = ResponseLocator(self.table)
        self.listed_at: dict[str, frozenset[str]] = {}  # workers, of models not at all of them
        self.roster = Roster(self)
        self.ring = DecisionRing(config.decisions_keep)
        self.keys = KeyRing(config.keys)
        self.budget = BufferBudget(config.limits.buffer_bytes)
        self.reading = asyncio.Lock()  # one large body at a time
        self.admission = RequestAdmission(self._has_room, self.metrics.queue_duration)
        self._next_complaint: dict[str, float] = {}  # by place
        self.config_error = ""
        self.config_ignored: list[str] = []  # changed fields that need a restart
        self.config_time = 0.0
        self.reload_changed: Callable[[], object] | None = None  # set by the server
        self._keys_renewed_at = -RENEW_PAUSE_S
        self.ratios = BytesPerToken()
        self._own_secret = secrets.token_bytes(32)
        self.instance = secrets.token_hex(4)
        self._count = 0  # of IDs
        self._id_seed = secrets.randbits(64)
        self._picks = 0
        self.strategy: StrategyMetrics
        self.policy: RoutingPolicy
        self.recorder = Recorder(log, self.metrics, self.instance)
        self.meter = TokenLedger(self.recorder.use, self.metrics, self.ratios)
        self.kv: KvRouting | None = None  # set while the strategy is kvaware
        self.canary: Canary | None = None  # set while a canary runs
        self.misses = MissLedger(self.metrics.registry)
        self.diagnostics = AnswerDiagnostics(self.ring)
        self.peers: PeerRecorder | None = None  # set while a state store is configured
        self.observers = Observers()
        self._take_over(config)
        self.metrics.registry.before_render.append(self._refresh_gauges)

    def reconfigure(self, config: Config) -> None:
        before = self.config
        fixed = {name: getattr(before, name) for name in NEED_RESTART}
        ignored = [name for name, value in fixed.items() if getattr(config, name) != value]
        if ignored:
            self.log.event("warning", "config_needs_restart", fields=ignored)
            config = msgspec.structs.replace(config, **fixed)
        self.config_ignored = ignored
        hashes = all(
            getattr(before, name) == getattr(config, name)
            for name in ("prefix_block_bytes", "prefix_memory_blocks", "hash_key")
        )
        is_kept = hashes and before.strategy == config.strategy and before.canary == config.canary
        policies_before: tuple[RoutingPolicy, ...] = ()
        if hashes and (before.canary is not None or config.canary is not None):
            policy = self.policy
            policies_before = policy.arms if isinstance(policy, CanaryPolicy) else (policy,)
        self._take_over(config, keep_policy=is_kept, known=policies_before)

    def renew_keys(self, now: float) -> bool:
        """Load files that changed since the last tick; return whether there are other keys.

        Called for a key that is not known: it may have been created a moment ago.
        """
        if self.reload_changed is None or now - self._keys_renewed_at < RENEW_PAUSE_S:
            return False
        self._keys_renewed_at = now
        before = self.keys
        try:
            self.reload_changed()
        except Exception as error:  # noqa: BLE001 - the request is refused, as without it
            self.internal_error("config", error)
        return self.keys is not before

    def _take_over(
        self, config: Config, keep_policy: bool = False, known: Sequence[RoutingPolicy] = ()
    ) -> None:
        self.roster.renew_tls(config)  # first: this and the next line can fail
        self.recorder.prepare(config)
        self.config = config
        self.keys = KeyRing(config.keys)
        self.paths = PathRules(config.open_paths)
        if config.decisions_keep != self.ring.keep:
            self.ring = self.ring.resized(config.decisions_keep)
        if not keep_policy:
            self._change_policy(config, known)
        recording = config.recording.enabled
        self.hashes_prompts = self.policy.needs_chain or recording
        self.misses.configure(config.prefix_block_bytes, self.hashes_prompts, config.kv.l2_ttl_s)
        with_session = self.policy.needs_session or recording
        session_key: SessionKey | None = config.session_key if with_session else None
        if config.canary is not None and config.canary.session_key is not None:
            session_key = config.canary.session_key
        self.session_key = session_key
        self.identifier = Identifier(
            config.hash_key,
            config.prefix_block_bytes,
            session_key,
            config.hash_key or self._own_secret,
            self.ratios,
            config.limits,
        )
        self.identifier.aliases = self._find_aliases()
        self.budget.limit = config.limits.buffer_bytes
        self.diagnostics.ring = self.ring
        self.recorder.configure(config, self.identifier)
        self.meter.configure(config, self.identifier)
        self.metrics.know_model(config.model)
        self.roster.take_over(config)
        limited = config.admission
        capped = limited.worker_max_in_flight > 0 or any(w.max_in_flight for w in config.workers)
        self.capped = capped
        self.admission.configure(limited, self.keys, config.keys, capped)
        self.config_error = ""
        self.config_time = time.time()
        self.metrics.reload_time.value = self.config_time

    def _change_policy(self, config: Config, known: Sequence[RoutingPolicy]) -> None:
        policy = policies.build_policy(config, config.hash_key or self._own_secret, known)
        self.policy = policy
        self.canary = Canary.build(config)
        kvaware = find_kvaware(policy)
        if kvaware is None:
            self.kv = None
        elif self.kv is None or self.kv.policy is not kvaware:
            self.kv = KvRouting(kvaware, self.log)
            kvaware.index.observer = self.misses
        self.share_with(self.peers)
        self._publish_facts()
        self.table.by_turn = policy.by_turn
        self.strategy = StrategyMetrics(self.metrics, policy.name)

    async def read_body(
        self, head: RequestHead, body: bytes, path: bytes | None = None, scope: str = ""
    ) -> Identity:
        """Parse a body of any size; serialized, because each takes much memory."""
        async with self.reading:
            path = head.path if path is None else path
            session = find_session(head, self.session_key)
            needs_chain = self.hashes_prompts
            return await self.identifier.read_large(path, body, session, needs_chain, scope)

    def picked(self, worker: Worker) -> None:
        self._picks += 1
        worker.last_pick = self._picks

    def share_with(self, peers: PeerRecorder | None) -> None:
        self.peers = peers
        if self.kv is not None:
            self.kv.peers = peers
        self._list_observers()

    def _list_observers(self) -> None:
        """List who is told of requests, in order: the recorder writes what the others noted."""
        observers, canary, kv, peers = Observers(), self.canary, self.kv, self.peers
        observers.arrived = [self.misses.arrived, self.diagnostics.arrived]
        observers.ended = [self.misses.ended]
        if canary is not None:
            observers.arrived.append(canary.arrived)
            observers.ended.append(canary.ended)
        if peers is not None:
            observers.placed.append(peers.placed)
            observers.ended.append(peers.ended)
        if kv is not None:
            observers.answered.append(kv.answered)
            observers.ended.append(kv.ended)
        observers.ended.append(self.recorder.ended)
        self.observers = observers

    def divide_limits(self, routers: int) -> None:
        """Apply one part of all limits, as the other routers are unknown; 1: undo."""
        if routers != self.roster.routers:
            self.roster.routers = routers
            self.roster.take_over(self.config)
        self.admission.divide(routers)

    def peers_changed(self, view: PeerDemand) -> None:
        """Apply the peers' requests to in-flight limits; start queued requests that may go now."""
        admission = self.admission
        if admission.active:
            eligible = self.table.eligible
            slots = sum(worker.max_in_flight for worker in eligible) if self.capped else 0
            admission.leave_room(view, slots)
            if admission.depth:
                admission.pump()

    def is_busy(self) -> bool:
        return any(worker.own_in_flight for worker in self.table.eligible)

    @property
    def queues(self) -> bool:
        """Return True if requests pass the admission queue."""
        return self.admission.active or self.table.waits

    def _has_room(self) -> bool:
        """Return True if a worker has a free slot, or if none is up or may come back."""
        eligible = self.table.eligible
        if not eligible:
            return not self.table.waits
        if not self.capped:
            return True
        return any(worker.in_flight < worker.max_in_flight for worker in eligible)

    def note_worker_change(self, worker: Worker, what: str) -> None:
        """Notify the KV event follower and the miss ledger of a worker's state change."""
        self.misses.worker_changed(worker.id, what, worker.draining)
        if self.kv is not None and self.kv.follower is not None:
            self.kv.follower.changed(worker, "reset" if what == "engine_died" else what)

    def _worker_changed(self, worker: Worker, what: str) -> None:
        level = "info" if what in ("up", "trial", "back") else "warning"
        self.log.event(level, f"worker_{what}", worker=worker.id, error=worker.last_error)
        self._changes.send(f"{ENDPOINT}{self.config.endpoint}")
        if what in ("lost", "engine_died"):
            self.policy.forget(worker)
            worker.fingerprint = None
        elif what == "up":
            self.roster.set_capacity(worker)  # `forget` dropped the capacity
        if self.peers is not None and what in ("ejected", "engine_died", "engine_stuck", "back"):
            self.peers.circuit(worker.id, what != "back")
        self.note_worker_change(worker, what)
        if self.admission.depth:
            self.admission.pump()

    def refused(self, refusal: Refusal) -> None:
        self.metrics.error(refusal.kind.reason)
        self.metrics.count(self.metrics.other, refusal.kind.status)

    def resend_notices(self) -> None:
        """Send notices to the console for which its buffer had no room."""
        self._changes.resend()

    def timed(self, charge: RequestCharge, ttft_s: float) -> None:
        self.learn_pace(charge.worker.id, charge.work, ttft_s)
        if self.peers is not None:
            self.peers.timed(charge.worker.id, charge.work, ttft_s)

    def learn_pace(self, worker_id: str, work: int, ttft_s: float) -> None:
        """Learn from a response to this router or a peer."""
        pace = self.pace
        pace.learn(worker_id, work, ttft_s)
        if pace.due:
            pace.apply(self.table.eligible)

    def worker_failed(self, worker: Worker | None, error: str, refused: bool) -> None:
        assert worker is not None
        self.table.failed(worker, error, refused)

    def engine_died(self, worker: Worker) -> None:
        self.table.engine_died(worker, "its engine died")

    def engine_stuck(self, worker: Worker, silent_s: float) -> None:
        """Eject the worker; other workers take its requests that have no answer byte yet."""
        self.table.engine_stuck(worker, f"its engine made no progress for {silent_s:.0f} s")
        if any(other is not worker for other in self.table.eligible):
            for client in list(self.clients):
                client.worker_stuck(worker)

    def _learn_places(self) -> None:
        """Find the models that some workers list and others do not, such as adapters."""
        lists = {
            worker.id: {str(model.get("id")) for model in worker.models}
            for worker in self.table.workers.values()
        }
        reported = [names for names in lists.values() if names]
        common = set.intersection(*reported) if reported else set()
        partial = set().union(*reported) - common
        self.listed_at = {
            name: frozenset(
                worker_id for worker_id, names in lists.items() if not names or name in names
            )
            for name in partial
        }

    def _find_aliases(self) -> dict[str, str]:
        """Return the further names under which workers serve the same model."""
        first: dict[object, str] = {}
        aliases: dict[str, str] = {}
        for worker in self.table.workers.values():
            for model in worker.models:
                root, name = model.get("root"), str(model.get("id"))
                if root and not model.get("parent") and first.setdefault(root, name) != name:
                    aliases[name] = first[root]
        return aliases

    def learn_models(self) -> None:
        """Update model labels, /v1/models and block sizes from the workers."""
        self._learn_places()
        self.identifier.aliases = self._find_aliases()
        self.adapters.learn()
        for worker in self.table.workers.values():
            for model in worker.models:
                self.metrics.know_model(str(model.get("id", "")))
                self.meter.learn_context(model.get("max_model_len"))
        self._publish_facts()

    def _publish_facts(self) -> None:
        if self.kv is not None:
            models = (model for worker in self.table.workers.values() for model in worker.models)
            bases = {str(model.get("id")) for model in models if not model.get("parent")}
            self.kv.bases = frozenset(bases)
            sizes = (worker.block_size for worker in self.table.workers.values())
            self.kv.stated_sizes = frozenset(filter(None, sizes))

    def _refresh_gauges(self) -> None:
        sizes = self.policy.sizes()
        metrics = self.metrics
        metrics.open_fds.set(descriptors.in_use())
        metrics.queue_depth.set(self.admission.depth)
        metrics.queue_limit.set(self.admission.limit)
        metrics.request_buffer.set(self.budget.used)
        for worker in self.table.workers.values():
            metrics.in_flight.child(worker.id).set(worker.own_in_flight)
            metrics.worker_up.child(worker.id).set(int(worker.up))
            metrics.worker_stuck.child(worker.id).set(int(worker.stuck))
            metrics.worker_pace.child(worker.id).set(worker.pace)
            metrics.circuit.child(worker.id).set(worker.circuit.state)
            metrics.cache_tokens.child(worker.id).set(worker.cache_tokens)
            metrics.index_blocks.child(worker.id).set(sizes.get(worker.id, 0))

    @property
    def most_clients(self) -> int:
        """The configured limit, at most what file descriptors allow: each client may need one of a
        worker, too.
        """
        reserved = descriptors.RESERVE + 4 * len(self.table.workers)
        return min(self.config.limits.clients, max(1, (descriptors.limit() - reserved) // 2))

    def descriptors_exhausted(self) -> None:
        """Log that this process can open nothing more, once a minute."""
        now = perf_counter()
        if now >= self._next_complaint.get("descriptors", 0.0):
            self._next_complaint["descriptors"] = now + COMPLAINT_S
            self.log.event(
                "warning",
                "file_descriptors_exhausted",
                in_use=descriptors.in_use(),
                limit=descriptors.limit(),
            )

    def internal_error(self, where: str, error: Exception) -> None:
        """Count and log an exception of the router's own, which must not end anything else."""
        self.metrics.error("internal_error")
        now = perf_counter()
        if now < self._next_complaint.get(where, 0.0):
            return
        self._next_complaint[where] = now + COMPLAINT_S
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames[:-1] if "routing" in frame.filename]
        self.log.event(
            "error",
            "internal_error",
            where=where,
            error=type(error).__name__,  # its text may quote a caller
            trace=[
                f"{frame.filename}:{frame.lineno} {frame.name}" for frame in own[-3:] + frames[-1:]
            ],
        )

    def new_id(self) -> str:
        """Return a unique ID that does not reveal how many there are."""
        self._count += 1
        number = xxhash.xxh3_64_hexdigest(b"%d" % self._count, self._id_seed)
        return f"{self.instance}-{number}"

    def was_reset(self, worker_id: str, answer: bytes) -> None:
        """Treat a successful reset as a cache loss now; the worker's event comes with its next
        step. vLLM answers 200 with false while requests hold blocks.
        """
        worker = self.table.workers.get(worker_id)
        if worker is not None and b"false" not in answer:
            self.note_worker_change(worker, "reset")
