"""A canary over two router processes that share a state store."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from endpoints.models import EndpointStatus
from endpoints.router.canary import selectors
from endpoints.router.canary.collection import collect_canaries
from endpoints.router.models import Canary
from tests.support.cachenode import ROOT, Valkey
from tests.support.console import make_endpoint, pretend_ready, program
from tests.support.ports import free_port
from tests.support.simulated import SimulatedWorker
from tests.support.waiting import until

SESSIONS = 40
CLIENTS = 6
TURNS = 3


class RouterProcess:
    def __init__(self, folder: Path, worker: SimulatedWorker, store: Valkey, canary: Any) -> None:
        self.port, self.admin = free_port(), free_port()
        config = {
            "listen": f"127.0.0.1:{self.port}",
            "admin": f"127.0.0.1:{self.admin}",
            "workers": [{"id": "w0", "url": f"http://127.0.0.1:{worker.port}"}],
            "state_store": {"url": store.url, "routers": 2},
            "hash_key_file": str(folder / "hash.key"),
            "endpoint": "demo",
            "canary": canary,
        }
        path = folder / f"router-{self.port}.json"
        path.write_text(json.dumps(config))
        argv = [sys.executable, "-m", "routing.engine", "--config", str(path)]
        self.log = folder / f"router-{self.port}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            up = all(one["state"] == "up" for one in self.ask("/workers")["workers"])
            return up and bool(self.ask("/peers")["exchange"]["peers"])
        except OSError:
            return False

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=120) as answer:
            return json.load(answer)

    def send(self, session: str) -> str:
        """Return the decision's ID."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {"model": "demo", "prompt": f"Hello {session}", "max_tokens": 1, "stream": True}
        headers = {"content-type": "application/json", "x-session": session}
        client.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = client.getresponse()
        answer.read()
        client.close()
        assert answer.status == 200
        return answer.headers["x-emberline-decision"]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def canary() -> Canary:
    pretend_ready(make_endpoint())
    fields = {"strategy": "session", "share": 0.5, "session_key": "header:x-session", "settle_s": 0}
    assert program("operator").post("/api/v1/endpoints/demo/canary/", fields).status_code == 201
    return Canary.objects.get()


@pytest.fixture
def routers(tmp_path: Path, canary: Canary) -> Iterator[list[RouterProcess]]:
    (tmp_path / "hash.key").write_text("h" * 32)
    settings = selectors.build_settings(canary)
    with ExitStack() as stack:
        worker = SimulatedWorker(tmp_path)
        stack.callback(worker.close)
        store = Valkey(tmp_path)
        stack.callback(store.stop)
        found = [RouterProcess(tmp_path, worker, store, settings) for _ in range(2)]
        for one in found:
            stack.callback(one.stop)
        for one in found:
            until(one.is_ready, 120, "routers that know each other")
        yield found


def register(canary: Canary, routers: list[RouterProcess]) -> None:
    admin = {"admin_urls": [f"http://127.0.0.1:{one.admin}" for one in routers]}
    EndpointStatus.objects.filter(pk=canary.endpoint_id).update(parts={"router": admin})


@pytest.mark.django_db
def test_a_session_has_one_arm_and_the_sums_add_up(
    canary: Canary, routers: list[RouterProcess]
) -> None:
    arms: dict[str, set[str]] = {}
    for turn in range(2):
        for number in range(SESSIONS):
            session = f"s{number}"
            router = routers[(number + turn) % 2]  # the next turn goes to the other router
            decision = router.ask(f"/decisions/{router.send(session)}")
            arms.setdefault(session, set()).add(decision["arm"])
    assert all(len(found) == 1 for found in arms.values()), arms
    assert set.union(*arms.values()) == {"control", "candidate"}

    register(canary, routers)
    for _ in range(2):  # cumulative: a second reading adds nothing
        assert collect_canaries() == 1
    canary.refresh_from_db()
    assert (canary.error, canary.routers, len(canary.reports)) == ("", 2, 2)
    found = selectors.result(canary).arms
    for arm in ("control", "candidate"):
        sessions = sum(one == {arm} for one in arms.values())
        assert found[arm].requests == 2 * sessions
    shown = program("viewer").get("/api/v1/endpoints/demo/canary/").json()["canary"]
    assert sum(one["requests"] for one in shown["arms"].values()) == 2 * SESSIONS


class Collector(threading.Thread):
    """A Celery worker that collects, again and again, over a database connection of its own."""

    def __init__(self, begin: threading.Barrier, end: threading.Event) -> None:
        super().__init__()
        self.begin, self.end = begin, end
        self.rounds = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.begin.wait(60)
            while not self.end.is_set():
                self.rounds += collect_canaries()
            self.begin.wait(60)  # the last one at the same time, too
            self.rounds += collect_canaries()
        except Exception as error:
            self.error = error
        finally:
            connection.close()


@pytest.mark.django_db(transaction=True)
def test_collections_at_once_lose_and_double_no_session_under_load(
    canary: Canary, routers: list[RouterProcess]
) -> None:
    """Half of the sessions stay at a router, the others change it with each turn."""
    served: set[tuple[int, str, str]] = set()  # router, session, arm

    def converse(number: int) -> None:
        for turn in range(TURNS):
            at = turn % 2 if number % 2 else number // 2 % 2
            router = routers[at]
            decision = router.ask(f"/decisions/{router.send(f's{number}')}")
            served.add((at, f"s{number}", decision["arm"]))

    register(canary, routers)
    begin, end = threading.Barrier(2), threading.Event()
    collectors = [Collector(begin, end) for _ in range(2)]
    for one in collectors:
        one.start()
    try:
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(converse, range(SESSIONS)))
    finally:
        end.set()
        for one in collectors:
            one.join(120)
    assert [one.error for one in collectors] == [None, None]
    assert all(one.rounds > 1 for one in collectors)

    arms = {
        session: {arm for _, other, arm in served if other == session} for _, session, _ in served
    }
    assert len(arms) == SESSIONS
    assert all(len(found) == 1 for found in arms.values()), arms
    canary.refresh_from_db()
    assert (canary.state, canary.error, canary.routers) == ("running", "", 2)
    found = selectors.result(canary).arms
    for arm in ("control", "candidate"):
        assert found[arm].requests == TURNS * sum(one == {arm} for one in arms.values())
        # Once in each router that served it.
        assert found[arm].sessions == sum(one == arm for _, _, one in served)
    shown = [sum(arm["sessions"] for arm in report.values()) for report in canary.reports.values()]
    assert sorted(shown) == sorted(sum(at == one for at, _, _ in served) for one in range(2))
    points = [one["requests"] for one in canary.history]
    assert points == sorted(set(points)), "an older report replaced a newer one"
    assert points[-1] == TURNS * SESSIONS
