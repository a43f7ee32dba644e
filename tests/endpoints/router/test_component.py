"""Router component with the fake provisioner and a real router."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from console.provisioners.base import (
    PORT_TAKEN,
    Observation,
    PermanentError,
    Ref,
    ReplicaObservation,
    ReplicaState,
    WorkloadSpec,
)
from console.provisioners.fake import FakeProvisioner
from console.provisioners.specs import ReplicaFacts
from endpoints.choices import PhaseReason
from endpoints.keys.terms import KeyFacts
from endpoints.lifecycle.components import EndpointFacts, WorkerFacts
from endpoints.router import component
from endpoints.router.compiler import compile_config, compile_keys
from endpoints.router.component import (
    RouterComponent,
    RouterRequirements,
    _impaired,
    judge_impairment,
    judge_router,
)
from routing.analysis import fallbacks
from routing.analysis.kv_index import Recent
from routing.client import admin_client
from routing.client.admin_client import RouterWorker, RunningConfig
from routing.engine.config import parse_keys, show_key
from tests.endpoints.router.test_compiler import ENDPOINT, with_routing, worker
from tests.support.http_stub import http_stub
from tests.support.ports import free_ports
from tests.support.waiting import until

BOTH = (worker(0), worker(1))
WANTED = RouterRequirements(compile_config(ENDPOINT, BOTH), compile_keys(ENDPOINT))
KEYS = tuple(show_key(key) for key in parse_keys(WANTED.keys))
RUNNING = RunningConfig("prefixaware", "header:x-session-id", KEYS, "")


def known(*states: str) -> tuple[RouterWorker, ...]:
    return tuple(
        RouterWorker(f"demo-worker-{i}", f"http://127.0.0.1:{20000 + i}", state, i, 0, 0, "")
        for i, state in enumerate(states)
    )


def stands(
    running: RunningConfig = RUNNING,
    workers: tuple[WorkerFacts, ...] = BOTH,
    seen: tuple[RouterWorker, ...] | None = None,
) -> Any:
    return judge_router(
        WANTED, running, workers, known("up", "up") if seen is None else seen, "u", "a"
    )


def test_component_is_ready_once_every_ready_worker_is_reported_up() -> None:
    assert stands().ready
    assert stands().facts["workers"]["demo-worker-1"] == {"state": "up", "in_flight": 1}
    waiting = stands(seen=known("up", "down"))
    assert (waiting.ready, waiting.reason) == (False, "RouterWaitingForWorkers")
    assert "1 of 2" in waiting.message
    assert "demo-worker-1" in waiting.message


def test_unready_and_leaving_workers_do_not_delay_readiness() -> None:
    starting = (worker(0), worker(1, ready=False))
    assert stands(workers=starting, seen=known("up", "down")).ready
    leaving = (worker(0), worker(1, draining=True))
    assert stands(workers=leaving, seen=known("up", "draining")).ready


@pytest.mark.parametrize(
    "running",
    [
        replace(RUNNING, strategy="roundrobin"),
        replace(RUNNING, session_key="cookie:sid"),
        replace(RUNNING, keys=()),
        replace(RUNNING, keys=None),
        replace(RUNNING, keys=({**KEYS[0], "fingerprint": "00000000"},)),
        replace(RUNNING, keys=({**KEYS[0], "limits": {"requests_per_minute": 5}},)),
    ],
)
def test_a_router_with_an_older_configuration_is_not_ready(running: RunningConfig) -> None:
    assert (stands(running).ready, stands(running).reason) == (False, "RouterTakingOver")


def test_router_with_other_workers_has_an_outdated_configuration() -> None:
    assert stands(seen=known("up")).reason == "RouterTakingOver"
    moved = replace(known("up")[0], url="http://127.0.0.1:1")
    assert stands(seen=(moved, known("up", "up")[1])).reason == "RouterTakingOver"


def test_rejected_configuration_files_are_reported() -> None:
    status = stands(replace(RUNNING, refused="workers[0].url: no"))
    assert (status.ready, status.reason) == (False, "RouterRefused")
    assert "workers[0].url" in status.message


def test_component_passes_its_states_from_start_to_end() -> None:
    paper = FakeProvisioner()
    component = RouterComponent(lambda _endpoint: paper)
    first = component.reconcile(ENDPOINT, BOTH)
    assert (first.ready, first.reason) == (False, "RouterStarting")
    second = component.reconcile(ENDPOINT, BOTH)
    assert second.ready
    assert second.url.startswith("http://127.0.0.1:")
    assert second.admin_url != second.url
    assert not component.delete(ENDPOINT)
    assert any(component.delete(ENDPOINT) for _ in range(2))
    assert component.delete(ENDPOINT), "asking again is harmless"


def test_rejected_configurations_reach_no_provisioner() -> None:
    paper = FakeProvisioner()
    with pytest.raises(PermanentError):
        RouterComponent(lambda _endpoint: paper).reconcile(with_routing(session_key="?"), BOTH)
    assert not paper.observe(Ref("fake", "demo-router")).exists


class OneProcess:
    """A provisioner of one real router: what the local one does, without a supervisor."""

    name = "local"
    rolls = False
    announces = False

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.folder = folder
        self.facts = ReplicaFacts("127.0.0.1", str(folder), 0, ports)
        self.process: subprocess.Popen[bytes] | None = None

    def apply(self, spec: WorkloadSpec) -> Ref:
        for file in spec.live_files:
            temporary = self.folder / f"{file.path}.new"
            temporary.write_text(self.facts.fill(file.content))
            temporary.replace(self.folder / file.path)
        if self.process is None:
            argv = [self.facts.fill(word) for word in spec.argv]
            self.process = subprocess.Popen([sys.executable, *argv[1:]])
        self.spec_hash = spec.spec_hash
        return Ref(self.name, spec.name)

    def observe(self, _ref: Ref) -> Observation:
        urls = {name: f"http://127.0.0.1:{port}" for name, port in self.facts.ports.items()}
        replica = ReplicaObservation("r-0", 0, ReplicaState.READY, self.spec_hash, urls)
        return Observation(True, (replica,))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def recent(bad: int, good: int, reason: str = "no_events", window_s: float = 300.0) -> Recent:
    return Recent(window_s, bad + good, {reason: bad} if bad else {})


def test_router_with_mostly_fallback_decisions_is_impaired_with_a_reason() -> None:
    found = judge_impairment("demo", recent(bad=30, good=10))
    assert found is not None
    assert found.reason == "RoutingFallback"
    assert "75% of 40 requests in the last 5 minutes" in found.message
    assert "no KV events received (no_events)" in found.message
    assert "--kv-events-config" in found.remedy
    assert "emberline endpoint doctor demo" in found.remedy


@pytest.mark.parametrize(
    "harmless",
    [
        recent(bad=0, good=1000),
        recent(bad=20, good=20),
        recent(bad=19, good=0),
        recent(bad=1000, good=0, window_s=29.0),
        recent(bad=1000, good=0, reason="starting"),
        recent(bad=1000, good=0, reason="bad_request"),
        Recent(300.0, 1000, {"bad_request": 981, "timeout": 9}),
    ],
    ids=["all known", "half", "few", "just begun", "loading", "callers' errors", "few count"],
)
def test_status_without_kvaware_impairs_nothing(harmless: Recent) -> None:
    assert judge_impairment("demo", harmless) is None


def test_real_router_is_impaired_until_it_has_an_index(
    real: RouterComponent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker sends no events: all requests are answered, none is placed by blocks."""
    monkeypatch.setattr("endpoints.router.component.WARM_UP_S", 0.0)
    answers = {**HEALTHY, "/v1/completions": (200, {"choices": [], "usage": {}})}
    kvaware, clear = with_key(with_routing(strategy="kvaware"))
    with http_stub(answers) as stub:
        both = (worker(0, url=stub.url),)
        status = until(lambda: _ready(real.reconcile(kvaware, both)))
        assert status.impairment is None
        for number in range(fallbacks.MIN_REQUESTS):
            answer = httpx.post(
                f"{status.url}/v1/completions",
                json={"model": "demo", "prompt": f"{number} words"},
                headers={"authorization": f"Bearer {clear}"},
            )
            assert answer.status_code == 200, answer.text
        status = real.reconcile(kvaware, both)
        assert status.ready
        assert status.impairment is not None
        assert "100% of 20 requests" in status.impairment.message
        assert "no_events" in status.impairment.message
        other, _ = with_key(with_routing(strategy="prefixaware"))
        status = until(lambda: _ready(real.reconcile(other, both)))
        assert status.impairment is None


def with_key(endpoint: EndpointFacts) -> tuple[EndpointFacts, str]:
    digest = hashlib.sha256(b"clear").hexdigest()
    return replace(endpoint, keys=(KeyFacts("console", digest),)), "clear"


def test_impairment_follows_the_state_reported_by_the_router() -> None:
    reported: dict[str, Any] = {
        "kv": {"recent": {"window_s": 300, "requests": 40, "fallbacks": {"timeout": 40}}}
    }
    with http_stub({"/index": (200, reported)}) as stub:
        kvaware = replace(RUNNING, strategy="kvaware")
        found = _impaired("demo", kvaware, stub.url)
        assert found is not None
        assert found.reason == "RoutingFallback"
        reported["kv"]["recent"]["fallbacks"] = {"timeout": 4}
        assert _impaired("demo", kvaware, stub.url) is None
        stub.answers["/index"] = (200, {"strategy": "kvaware", "kv": {}})
        assert _impaired("demo", kvaware, stub.url) is None, "a router of an older version"
        seen = len(stub.seen)
        assert _impaired("demo", RUNNING, stub.url) is None
        assert len(stub.seen) == seen, "another strategy has nothing to say"
    assert _impaired("demo", kvaware, stub.url) is None, "silence is another reason's business"


HEALTHY: dict[str, Any] = {"/health": (200, "")}


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RouterComponent]:
    http, admin = free_ports(2)
    provisioner = OneProcess(tmp_path, {"http": http, "admin": admin})
    try:
        yield RouterComponent(lambda _endpoint: cast(Any, provisioner))
    finally:
        provisioner.stop()


def test_real_router_applies_each_change_without_a_restart(real: RouterComponent) -> None:
    with http_stub(HEALTHY) as first_worker, http_stub(HEALTHY) as second_worker:
        one, two = first_worker.url, second_worker.url
        first = (worker(0, url=one),)
        status = until(lambda: _ready(real.reconcile(ENDPOINT, first)))
        assert status.facts["workers"]["demo-worker-0"]["state"] == "up"

        both = (*first, worker(1, url=two))
        other = with_routing(strategy="roundrobin")
        status = until(lambda: _ready(real.reconcile(other, both)))
        assert status.facts["strategy"] == "roundrobin"
        assert set(status.facts["workers"]) == {"demo-worker-0", "demo-worker-1"}
        running = admin_client.config(status.admin_url).keys or ()
        assert [key["id"] for key in running] == ["console"]
    gone = until(lambda: _waiting(real.reconcile(other, both)))
    assert "of 2" in gone.message


def _ready(status: Any) -> Any:
    return status if status.ready else None


def _waiting(status: Any) -> Any:
    return status if status.reason == "RouterWaitingForWorkers" else None


def test_new_keys_degrade_an_endpoint_only_if_the_router_never_loads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(component.time, "monotonic", lambda: now)
    judging = RouterComponent(lambda _endpoint: FakeProvisioner())
    older = replace(RUNNING, keys=())
    assert judging._bears_with(WANTED, older, "a")
    now += component.KEYS_GRACE_S - 0.1
    assert judging._bears_with(WANTED, older, "a")
    assert judging._bears_with(WANTED, older, "b"), "another router has its own time"
    now += 0.2
    assert not judging._bears_with(WANTED, older, "a")
    assert not judging._bears_with(WANTED, RUNNING, "a"), "nothing to bear with"
    assert judging._bears_with(WANTED, older, "a"), "a later change begins anew"
    assert not judging._bears_with(WANTED, replace(RUNNING, keys=None), "a"), "it is open to all"
    now += component.KEYS_GRACE_S
    another = replace(WANTED, keys={"keys": []})
    assert judging._bears_with(another, RUNNING, "a"), "another process saw the earlier one loaded"


def test_router_with_a_port_in_use_names_the_holder() -> None:
    class Held(FakeProvisioner):
        def observe(self, ref: Ref) -> Observation:
            found = super().observe(ref)
            why = {"reason": PORT_TAKEN, "message": "Port 20001 is held by pid 7 (nc)."}
            held = tuple(
                replace(one, state=ReplicaState.BACKOFF, **why)  # type: ignore[arg-type]
                for one in found.replicas
            )
            return replace(found, replicas=held)

    status = RouterComponent(lambda _endpoint: Held()).reconcile(ENDPOINT, BOTH)
    assert (status.ready, status.reason) == (False, PhaseReason.ROUTER_PORT_TAKEN)
    assert "held by pid 7 (nc)" in status.message
