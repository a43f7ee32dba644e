"""Router component of an endpoint: applied, observed and queried on every pass.

The router is ready when every router responds with the intended strategy and exactly the given
workers, and reports each ready worker as up. A kvaware router that places most requests by fallback
is ready but impaired. Every request has a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from console.core.state_store import StateStore
from console.provisioners.base import (
    PORT_TAKEN,
    Observation,
    Provisioner,
    Ref,
    ReplicaObservation,
    ReplicaState,
)
from endpoints.choices import PhaseReason
from endpoints.lifecycle.components import ComponentStatus, EndpointFacts, WorkerFacts
from endpoints.lifecycle.facts import Impairment
from endpoints.router.compiler import ADMIN_PORT, HTTP_PORT, compile_config, compile_keys
from endpoints.router.workload import (
    SERVICE_PORT,
    router_spec,
    to_pods,
    to_processes,
    workload_name,
)
from routing.analysis import fallbacks
from routing.analysis.kv_index import Recent
from routing.analysis.label_names import get_name_in_sentence
from routing.client import admin_client
from routing.client.admin_client import STATES, RouterSilentError, RouterWorker, RunningConfig
from routing.engine.config import parse_keys, show_key

ASK_DEADLINE_S = 1.5
WARM_UP_S = 30.0  # KV index warm-up after a start or a change to kvaware
KEYS_GRACE_S = 15.0  # time a serving router may take to load changed keys
_DAY_S = 86_400.0
KVAWARE = "kvaware"
ROUTING_FALLBACK = "RoutingFallback"


class RouterComponent:
    """Router component of endpoints. `provisioner` returns that of the endpoint's cluster; `image`
    is the router image there; `secrets_folder` holds the files that endpoints may name; `canary`
    returns the settings of the running canary, `state_store` the installation's store.
    """

    name = "router"

    def __init__(
        self,
        provisioner: Callable[[EndpointFacts], Provisioner],
        image: Callable[[], str] = lambda: "",
        secrets_folder: Callable[[], str] = lambda: "",
        canary: Callable[[EndpointFacts], Mapping[str, Any] | None] = lambda _endpoint: None,
        state_store: Callable[[], StateStore | None] = lambda: None,
        engine_path: Callable[[], str] = lambda: "",
    ) -> None:
        self._provisioner = provisioner
        self._image = image
        self._secrets_folder = secrets_folder
        self._canary = canary
        self._state_store = state_store
        self._router_path = engine_path
        self._keys_differ: dict[str, tuple[str, float]] = {}
        """Router -> the keys that it should have, since when it differs (s)."""

    def reconcile(
        self, endpoint: EndpointFacts, workers: tuple[WorkerFacts, ...]
    ) -> ComponentStatus:
        store = self._state_store()
        config = compile_config(endpoint, workers, self._canary(endpoint), store)
        requirements = RouterRequirements(config, compile_keys(endpoint, store))
        spec = router_spec(endpoint.name, requirements.config, requirements.keys)
        folder = self._secrets_folder()
        if endpoint.spec.on_cluster:
            spec = to_pods(spec, endpoint, self._image(), folder, store)
        else:
            spec = to_processes(spec, endpoint, folder, store, self._router_path())
        provisioner = self._provisioner(endpoint)
        observation = provisioner.observe(provisioner.apply(spec))
        name = workload_name(endpoint.name)
        # Pods being replaced still serve and read the same files.
        serving = observation.ready() if provisioner.rolls else observation.ready(spec.spec_hash)
        count = observation.wanted or spec.replicas
        if len(serving) < count:
            text = (
                _why_not(observation) if count == 1 else _too_few(observation, len(serving), count)
            )
            taken = any(replica.reason == PORT_TAKEN for replica in observation.replicas)
            reason = PhaseReason.ROUTER_PORT_TAKEN if taken else "RouterStarting"
            return ComponentStatus(False, reason, text, workload=name, seen=observation)
        if provisioner.name == "fake":
            return _simulated_status(serving[0], workers)
        judged = [self._judge(requirements, replica, endpoint, workers) for replica in serving]
        status = replace(_merge_statuses(judged), workload=name, seen=observation)
        if not endpoint.spec.on_cluster:
            return status
        url = observation.url or _service_url(endpoint)
        return replace(status, url=url, ask_url=judged[0].url)

    def _judge(
        self,
        wanted: RouterRequirements,
        replica: ReplicaObservation,
        endpoint: EndpointFacts,
        workers: tuple[WorkerFacts, ...],
    ) -> ComponentStatus:
        process = {"started_at": replica.started_at, "restarts": replica.restarts}
        url, admin_url = replica.urls.get(HTTP_PORT, ""), replica.urls.get(ADMIN_PORT, "")
        try:
            reported = admin_client.workers(admin_url, ASK_DEADLINE_S)
            running = admin_client.config(admin_url, ASK_DEADLINE_S)
        except RouterSilentError as silence:
            return ComponentStatus(False, "RouterSilent", silence.message, url, admin_url, process)
        if self._bears_with(wanted, running, admin_url):
            running = replace(running, keys=wanted.shown_keys())
        judged = judge_router(wanted, running, workers, reported, url, admin_url)
        if judged.ready:
            judged = replace(judged, impairment=_impaired(endpoint.name, running, admin_url))
        # A restart between two passes is detected by the process id.
        return replace(judged, facts={**judged.facts, **process})

    def _bears_with(self, wanted: RouterRequirements, running: RunningConfig, router: str) -> bool:
        """Return whether to ignore that the router has not loaded changed keys yet.

        Keys change while an endpoint serves; only a lasting difference affects its status. Another
        process may have observed that an earlier change was loaded, so each change begins anew.
        """
        now = time.monotonic()
        if wanted.same_keys(running) or running.keys is None:
            self._keys_differ.pop(router, None)
            return False
        keys = repr(wanted.shown_keys())
        known_keys, since = self._keys_differ.get(router, ("", now))
        if known_keys != keys:
            differs_since = self._keys_differ.items()  # without removed routers
            self._keys_differ = {url: item for url, item in differs_since if now - item[1] < _DAY_S}
            self._keys_differ[router], since = (keys, now), now
        return now - since < KEYS_GRACE_S

    def delete(self, endpoint: EndpointFacts) -> bool:
        provisioner = self._provisioner(endpoint)
        ref = Ref(provisioner.name, workload_name(endpoint.name))
        if not provisioner.observe(ref).exists:
            return True
        provisioner.delete(ref)
        return False


def _merge_statuses(judged: list[ComponentStatus]) -> ComponentStatus:
    """Combine the routers' statuses: the worst one, with in-flight totals per worker."""
    if len(judged) == 1:
        return judged[0]
    worst = next((status for status in judged if not status.ready), None)
    worst_status = worst or next((status for status in judged if status.impairment), judged[0])
    workers: dict[str, Any] = {}
    for status in judged:
        for name, merged in status.facts.get("workers", {}).items():
            before = workers.setdefault(name, {**merged, "in_flight": 0})
            before["in_flight"] += merged["in_flight"]
            before["state"] = max(before["state"], merged["state"], key=STATES.index)
    merged = {
        **worst_status.facts,
        "workers": workers,
        "restarts": sum(status.facts.get("restarts", 0) for status in judged),
        "started_at": max(status.facts.get("started_at", 0.0) for status in judged),
        "admin_urls": [status.admin_url for status in judged],
    }
    if worst is not None:
        return replace(worst_status, facts=merged)
    message = f"{len(judged)} routers serve. {worst_status.message}"
    return replace(worst_status, message=message, facts=merged, admin_url=judged[0].admin_url)


def _service_url(endpoint: EndpointFacts) -> str:
    return f"http://{workload_name(endpoint.name)}.{endpoint.cluster_namespace}.svc:{SERVICE_PORT}"


@dataclass(frozen=True, slots=True)
class RouterRequirements:
    config: dict[str, Any]
    keys: dict[str, Any]

    def taken_over(self, running: RunningConfig, known: tuple[RouterWorker, ...]) -> bool:
        """Return whether the router uses these workers (unless discovered), strategy and keys."""
        held = self.config.get("workers")
        workers = {(w["id"], w["url"]) for w in held or ()}
        return (
            (held is None or workers == {(w.id, w.url) for w in known})
            and running.strategy == self.config["strategy"]
            and running.session_key.lower() == self.config["session_key"].lower()
            and self.same_keys(running)
        )

    def same_keys(self, running: RunningConfig) -> bool:
        """Compare ids, secrets, rights and limits: a limit not yet loaded is not enforced."""
        if running.keys is None:
            return False
        held_keys = map(dict, running.keys)
        return sorted(self.shown_keys(), key=_by_id) == sorted(held_keys, key=_by_id)

    def shown_keys(self) -> tuple[dict[str, Any], ...]:
        """Return the keys in the router's output format."""
        return tuple(show_key(key) for key in parse_keys(self.keys))


def _by_id(key: Mapping[str, Any]) -> tuple[str, str]:
    return str(key.get("id")), str(key.get("fingerprint"))


def judge_router(
    wanted: RouterRequirements,
    running: RunningConfig,
    workers: tuple[WorkerFacts, ...],
    known: tuple[RouterWorker, ...],
    url: str,
    admin_url: str,
) -> ComponentStatus:
    """Return the router's status from its files and its replies. Pure."""
    details = {
        "workers": {w.id: {"state": w.state, "in_flight": w.in_flight} for w in known},
        "strategy": running.strategy,
    }

    def status(ready: bool, reason: str, message: str) -> ComponentStatus:
        return ComponentStatus(ready, reason, message, url, admin_url, details)

    if running.refused:
        return status(
            False,
            "RouterRefused",
            f"The router keeps its previous configuration: {running.refused}",
        )
    if not wanted.taken_over(running, known):
        return status(False, "RouterTakingOver", "The router is applying its configuration.")
    states = {w.id: w for w in known}
    ready = [w for w in workers if w.ready and w.url and not w.draining]
    up = [w for w in ready if w.name in states and states[w.name].state == "up"]
    if len(up) < len(ready):
        down = next(w for w in ready if w not in up)
        why = "not discovered yet"
        if down.name in states:
            why = states[down.name].last_error or "first health check pending"
        text = f"The router reaches {len(up)} of {len(ready)} ready workers. {down.name}: {why}."
        return status(False, "RouterWaitingForWorkers", text)
    return status(True, "RouterServing", f"{len(up)} workers up.")


def _impaired(name: str, running: RunningConfig, admin_url: str) -> Impairment | None:
    """Return the impairment; None without a reply, since the next pass retries."""
    if running.strategy != KVAWARE:
        return None
    try:
        index = admin_client.index(admin_url, ASK_DEADLINE_S)
    except RouterSilentError:
        return None
    return judge_impairment(name, index.recent) if index is not None and index.recent else None


def judge_impairment(name: str, recent: Recent) -> Impairment | None:
    """Judge recent requests; None once most are placed by blocks again, or too few remain."""
    verdict = fallbacks.judge_fallbacks(recent.requests, recent.fallbacks)
    if recent.window_s < WARM_UP_S or not verdict.too_often:
        return None
    words = get_name_in_sentence("reason", verdict.main)
    return Impairment(
        ROUTING_FALLBACK,
        f"kvaware does not work: {verdict.share:.0%} of {verdict.requests} requests in the last "
        f"{recent.window_s / 60:.0f} minutes were routed without KV cache contents. Main "
        f"reason: {words} ({verdict.main}). All were served, routed by prefix instead.",
        f"{fallbacks.find_remedy(verdict.main)} "
        f"Here: emberline endpoint doctor {name}, or the Doctor "
        "of its routing page.",
    )


def _why_not(seen: Observation) -> str:
    if not seen.replicas:
        return "The router is being started."
    replica = seen.replicas[0]
    return f"The router is {replica.state.value}. {replica.message}".rstrip()


def _too_few(seen: Observation, serving: int, wanted: int) -> str:
    late = next(
        (replica for replica in seen.replicas if replica.state is not ReplicaState.READY), None
    )
    why = (
        f" {late.name} is {late.state.value}: {(late.message or late.reason).rstrip('.')}."
        if late
        else ""
    )
    return f"{serving} of {wanted} routers serve.{why}"


def _simulated_status(
    replica: ReplicaObservation, workers: tuple[WorkerFacts, ...]
) -> ComponentStatus:
    details = {
        "workers": {
            w.name: {"state": "draining" if w.draining else "up", "in_flight": 0} for w in workers
        }
    }
    urls = replica.urls
    text = "Simulated router."
    return ComponentStatus(True, "OnPaper", text, urls[HTTP_PORT], urls[ADMIN_PORT], details)
