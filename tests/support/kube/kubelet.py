"""Simulated kubelet: ready nodes, and pods that follow their rules.

Uses the API only, so that it serves real and fake planes, in this process or another; annotations
or ConfigMaps set pod behavior (README.md). Every write has the whole state, so a lost one is
repeated.

    python -m tests.support.kube.kubelet --dir DIR    for the plane of that folder, until SIGTERM
"""

from __future__ import annotations

import argparse
import functools
import heapq
import itertools
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.kube import beside
from tests.support.kube.behaviours import PLAYER, Containers, Rule, play, rule_of, stamp, status_of
from tests.support.kube.client import Kube, Refused
from tests.support.kube.informer import Informer, Key
from tests.support.kube.names import Names
from tests.support.kube.nodes import NODES, lost, status
from tests.support.kube.podlogs import Logs, LogServer
from tests.support.kube.running import Running, can_run

ADDRESS = "127.0.0.1"  # of every node
HEARTBEAT_S = 10.0
AWAY = (Refused, httpx.HTTPError, OSError)


@dataclass
class Life:
    """State of a pod."""

    uid: str
    address: str
    rule: Rule
    since: float
    restarts: int = 0
    logged: int = -1
    stopping: float = 0.0
    last_version: str = ""
    process: Running | None = None


class Player:
    def __init__(
        self,
        api: Kube,
        folder: Path,
        certificate: tuple[Path, Path],
        nodes: tuple[dict[str, Any], ...] = NODES,
    ) -> None:
        self.api, self._nodes_wanted = api, nodes
        self.logs = Logs(folder / "logs")
        self._server = LogServer(self.logs, *certificate)
        self._folder = folder / "run"
        self._lives: dict[Key, Life] = {}
        self._addresses = itertools.count(os.getpid() % 240 * 256 + 10)
        self._wake = threading.Condition()
        self._queue: set[tuple[str, Key]] = set()
        self._later: list[tuple[float, tuple[str, Key]]] = []
        self._stop = threading.Event()
        self.pods = self._follow("Pod")
        self.nodes = self._follow("Node")
        self.rules = self._follow("ConfigMap", f"metadata.name={PLAYER}")
        self.claims = self._follow("PersistentVolumeClaim")
        self.slices = self._follow("EndpointSlice")
        self._informers = (self.nodes, self.pods, self.rules, self.claims, self.slices)
        self._names: Names | None = None
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def _follow(self, kind: str, field: str = "") -> Informer:
        return Informer(self.api, kind, lambda key: self._push((kind, key)), field)

    def start(self) -> None:
        for data in self._nodes_wanted:
            if self.api.find("Node", "", data["metadata"]["name"]) is None:
                self.api.create("Node", "", data)
        beside.storage_class(self.api)
        self._server.start()
        for informer in self._informers:
            informer.start()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        with self._wake:
            self._wake.notify()
        for informer in self._informers:
            informer.stop()
        self._thread.join(30)
        for key in list(self._lives):
            self._end(key)
        self._server.stop()
        if self._names is not None:
            self._names.close()

    # --- one thread, one key at a time

    def _push(self, item: tuple[str, Key]) -> None:
        with self._wake:
            self._queue.add(item)
            self._wake.notify()

    def _at(self, when: float, item: tuple[str, Key]) -> None:
        with self._wake:
            heapq.heappush(self._later, (when, item))
            self._wake.notify()

    def _run(self) -> None:
        beat = 0.0
        while not self._stop.is_set():
            if time.time() >= beat:
                beat = time.time() + HEARTBEAT_S
                for key in list(self.nodes.items):
                    self._push(("Node", key))
            for item in self._due(beat):
                kind, key = item
                try:
                    self._step(kind, key)
                except AWAY:
                    # Deleted or changed concurrently, or server down: retry.
                    self._at(time.time() + 0.3, item)

    def _step(self, kind: str, key: Key) -> None:
        if kind == "Pod":
            self._pod(key)
        elif kind == "Node":
            self._node(key)
        elif kind == "ConfigMap":
            self._rules(key)
        elif kind == "PersistentVolumeClaim" and key in self.claims.items:
            beside.provide(self.api, self.claims.items[key])

    def _due(self, beat: float) -> list[tuple[str, Key]]:
        with self._wake:
            soon = min(self._later[0][0] if self._later else beat, beat)
            if not self._queue and not self._stop.is_set():
                self._wake.wait(max(0.0, soon - time.time()))
            due, self._queue = self._queue, set()
            while self._later and self._later[0][0] <= time.time():
                due.add(heapq.heappop(self._later)[1])
            return sorted(due)

    def _rules(self, key: Key) -> None:
        for pod in list(self.pods.items):
            if pod[0] == key[0]:
                self._pod(pod)

    def _node(self, key: Key) -> None:
        data = self.nodes.items.get(key)
        if data is None or PLAYER not in data["metadata"].get("labels", {}):
            return
        name = key[1]
        now = status(data, ADDRESS, self._server.port, stamp(time.time()))
        if _differs(now, data.get("status", {})):
            self.api.merge("Node", "", name, {"status": now}, "status")
            for pod, found in list(self.pods.items.items()):
                if found["spec"].get("nodeName") == name:
                    self._push(("Pod", pod))
        if not lost(data):
            renewed = {"spec": {"holderIdentity": name, "renewTime": _micro(time.time())}}
            try:
                self.api.merge("Lease", "kube-node-lease", name, renewed)
            except Refused as refused:
                if refused.code != 404:
                    raise
                lease = {"metadata": {"name": name}, "spec": {"leaseDurationSeconds": 40}}
                self.api.create("Lease", "kube-node-lease", lease)

    def _pod(self, key: Key) -> None:
        pod = self.pods.items.get(key)
        life = self._lives.get(key)
        if life is not None and (pod is None or pod["metadata"]["uid"] != life.uid):
            self._end(key)
            life = None
        if pod is None or not self._ours(pod):
            return
        rules = self.rules.items.get((key[0], PLAYER), {}).get("data", {})
        rule = rule_of(pod, rules)
        if life is None:
            life = Life(pod["metadata"]["uid"], self._address(pod), rule, time.time())
            self._lives[key] = life
        elif life.rule.behaviour != rule.behaviour:
            life.since = time.time()
        life.rule = rule
        if pod["metadata"].get("deletionTimestamp"):
            self._terminate(key, pod, life)
        elif pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self._live(key, pod, life)

    def _ours(self, pod: dict[str, Any]) -> bool:
        node = self.nodes.items.get(("", pod["spec"].get("nodeName", "")))
        return node is not None and PLAYER in node["metadata"].get("labels", {}) and not lost(node)

    def _address(self, pod: dict[str, Any]) -> str:
        again: str = pod.get("status", {}).get("podIP", "")
        return again or self._free_address()

    def _free_address(self) -> str:
        number = next(self._addresses) % 65_000
        return f"10.77.{number // 256}.{number % 256}"

    def _live(self, key: Key, pod: dict[str, Any], life: Life) -> None:
        how, again = self._how(key, pod, life)
        wanted = status_of(pod, how, life.address, ADDRESS, life.since)
        if _differs(wanted, pod.get("status", {})):
            self.api.merge("Pod", *key, {"status": wanted}, "status")
        event = beside.event_of(how)
        if event is not None and life.last_version != event[0]:
            beside.record(self.api, pod, *event)
            life.last_version = event[0]
        if again:
            self._at(again, ("Pod", key))

    def _how(self, key: Key, pod: dict[str, Any], life: Life) -> tuple[Containers, float]:
        if life.rule.behaviour == "run":
            if life.process is None:
                life.process = self._run_it(key, pod, life)
            life.process.update(pod)
            return life.process.how, 0.0
        if life.process is not None:
            life.process.kill()
            life.process = None
        how, again = play(life.rule, pod, life.since, time.time())
        if how.started and life.logged != how.restarts:
            for container in pod["spec"]["containers"]:
                self.logs.rotate(*key, container["name"])
                for line in life.rule.log or (f"{container['name']} of {key[1]} started",):
                    self.logs.write(*key, container["name"], line)
            life.logged = how.restarts
        return how, again

    def _run_it(self, key: Key, pod: dict[str, Any], life: Life) -> Running:
        why = can_run()
        assert not why, why
        folder = self._folder / life.uid
        push = functools.partial(self._push, ("Pod", key))
        if self._names is None:
            self._names = Names(lambda: list(self.slices.items.values()), self._free_address())
        named = self._names.address
        return Running(self.api, pod, life.rule, life.address, folder, self.logs, push, named)

    def _terminate(self, key: Key, pod: dict[str, Any], life: Life) -> None:
        life.stopping = life.stopping or time.time()
        if life.process is not None:
            life.process.stop(float(pod["metadata"].get("deletionGracePeriodSeconds", 0)))
            if not life.process.done.is_set():
                return  # it notifies
        elif time.time() < life.stopping + life.rule.stop_s:
            self._at(life.stopping + life.rule.stop_s, ("Pod", key))
            return
        self.api.delete("Pod", *key, gracePeriodSeconds=0, preconditions={"uid": life.uid})

    def _end(self, key: Key) -> None:
        life = self._lives.pop(key)
        if life.process is not None:
            life.process.kill()
        self.logs.forget(*key)


def _differs(wanted: Any, found: Any) -> bool:
    """Return whether our fields differ; others' fields and heartbeat times are ignored."""
    if isinstance(wanted, dict):
        return any(
            _differs(value, found.get(name) if isinstance(found, dict) else None)
            for name, value in wanted.items()
            if value not in ({}, [], "") and name not in ("lastHeartbeatTime", "lastTransitionTime")
        )
    if isinstance(wanted, list):
        if wanted and isinstance(wanted[0], dict) and "type" in wanted[0]:
            by_type = {item["type"]: item for item in found or ()}
            return any(_differs(item, by_type.get(item["type"])) for item in wanted)
        return len(wanted) != len(found or ()) or any(map(_differs, wanted, found))
    return bool(wanted != found)


def _micro(at: float) -> str:
    return stamp(at)[:-1] + ".000000Z"


def main() -> None:
    from tests.support.kube.plane import Reached

    parser = argparse.ArgumentParser(description="Play the kubelet, until SIGTERM.")
    parser.add_argument("--dir", type=Path, required=True)
    folder: Path = parser.parse_args().dir
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    api = Reached(folder).client("kubelet-player")
    player = Player(api, folder / "kubelet", (folder / "kubelet.crt", folder / "kubelet.key"))
    player.start()
    stop.wait()
    player.stop()


if __name__ == "__main__":
    main()
