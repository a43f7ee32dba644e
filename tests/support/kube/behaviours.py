"""Pod behavior: status computed from a rule, the pod and the elapsed time.

A rule comes from the pod's annotation `kubelet-player` or the namespace's ConfigMap of that name
(see README.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import yaml

PLAYER = "kubelet-player"  # node label, pod annotation, ConfigMap with rules
CRASHES = {"crash-loop": (1, "Error"), "oom-killed": (137, "OOMKilled")}
WAITS = {
    "pull-error": ("ImagePullBackOff", 'Back-off pulling image "{image}": not found'),
    "config-error": ("CreateContainerConfigError", 'secret "missing" not found'),
    "stuck-creating": ("ContainerCreating", ""),
}
BEHAVIOURS = ("ready", "never-ready", "init-failed", "run", *CRASHES, *WAITS)


@dataclass(frozen=True)
class Rule:
    """`labels`: pod selector ({}: all). Times count from scheduling; `stop_s` is the time to
    terminate after deletion (a huge one never ends). `argv` and `env` apply to `run`:
    replacement command and additional environment.
    """

    behaviour: str = "ready"
    labels: Mapping[str, str] = field(default_factory=dict)
    start_s: float = 0.05
    ready_s: float = 0.1
    crash_s: float = 0.5
    stop_s: float = 0.2
    log: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.behaviour in BEHAVIOURS, f"no behaviour {self.behaviour!r}: {BEHAVIOURS}"


def parse(data: Mapping[str, Any]) -> Rule:
    known = {item.name for item in fields(Rule)}
    assert set(data) <= known, f"a rule has {sorted(known)}, not {sorted(set(data) - known)}"
    whole = {key: tuple(value) if key in ("log", "argv") else value for key, value in data.items()}
    return Rule(**whole)


def rule_of(pod: Mapping[str, Any], rules: Mapping[str, str]) -> Rule:
    """Return the rule of the annotation, else the first by name whose labels match."""
    metadata = pod["metadata"]
    player = metadata.get("annotations", {}).get(PLAYER, "")
    if player:
        return parse(json.loads(player) if player.startswith("{") else {"behaviour": player})
    labels = metadata.get("labels", {})
    for name in sorted(rules):
        rule = parse(yaml.safe_load(rules[name]) or {})
        if all(labels.get(key) == value for key, value in rule.labels.items()):
            return rule
    return Rule()


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Containers:
    """State of all containers of a pod."""

    phase: str = "Running"
    ready: bool = False
    started: bool = True
    initialized: bool = True
    restarts: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    last: Mapping[str, Any] = field(default_factory=dict)
    init: Mapping[str, Any] = field(default_factory=dict)


def _ended(code: int, reason: str, at: float) -> dict[str, Any]:
    times = {"startedAt": stamp(at), "finishedAt": stamp(at)}
    return {"terminated": {"exitCode": code, "reason": reason, **times}}


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def play(rule: Rule, pod: Mapping[str, Any], born: float, now: float) -> tuple[Containers, float]:
    """Return the current state and the next time to check (0: none)."""
    age = now - born
    done = _ended(0, "Completed", born + rule.start_s)
    if rule.behaviour in WAITS:
        reason, message = WAITS[rule.behaviour]
        image = pod["spec"]["containers"][0]["image"]
        state = _waiting(reason, message.format(image=image))
        return Containers("Pending", started=False, state=state, init=done), 0.0
    if age < rule.start_s:
        state = _waiting("ContainerCreating")
        return Containers("Pending", started=False, initialized=False, state=state, init=state), (
            born + rule.start_s
        )
    if rule.behaviour == "init-failed":
        init = _waiting("CrashLoopBackOff", "back-off restarting failed container")
        state = _waiting("PodInitializing")
        return Containers("Pending", started=False, initialized=False, state=state, init=init), 0.0
    if rule.behaviour in CRASHES:
        return _crashing(rule, born, now, done)
    running = {"running": {"startedAt": stamp(born + rule.start_s)}}
    if rule.behaviour == "never-ready":
        return Containers(started=True, state=running, init=done), 0.0
    if age < rule.start_s + rule.ready_s:
        then = born + rule.start_s + rule.ready_s
        return Containers(started=False, state=running, init=done), then
    if pod["spec"].get("restartPolicy", "Always") != "Always":
        return Containers("Succeeded", state=done, init=done), 0.0
    return Containers(ready=True, state=running, init=done), 0.0


def _crashing(
    rule: Rule, born: float, now: float, done: Mapping[str, Any]
) -> tuple[Containers, float]:
    """Run for `crash_s`, crash, wait as long, restart. A Job's backoff is a tenth of the real
    one."""
    code, reason = CRASHES[rule.behaviour]
    round_s = 2 * rule.crash_s
    deaths, into = divmod(now - born - rule.start_s, round_s)
    start = born + rule.start_s + deaths * round_s
    if into < rule.crash_s:
        state: Mapping[str, Any] = {"running": {"startedAt": stamp(start)}}
        last = _ended(code, reason, start) if deaths else {}
        restarts, then = int(deaths), start + rule.crash_s
    else:
        state = _waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container")
        last, restarts, then = _ended(code, reason, start + rule.crash_s), int(deaths), 0.0
        then = start + round_s
    return Containers(restarts=restarts, state=state, last=last, init=done), then


def status_of(
    pod: Mapping[str, Any], how: Containers, address: str, node_address: str, born: float
) -> dict[str, Any]:
    """Return the status; equal to the current one if nothing has changed."""
    before = pod.get("status", {})
    conditions = {item["type"]: item for item in before.get("conditions", ())}
    wanted = {
        "PodReadyToStartContainers": how.phase != "Pending" or how.initialized,
        "Initialized": how.initialized,
        "ContainersReady": how.ready,
        "Ready": how.ready,
        "PodScheduled": True,
    }
    done = how.phase == "Succeeded"
    counted = (item.get("restartCount", 0) for item in before.get("containerStatuses", ()))
    restarts = max(how.restarts, *counted, 0)  # restarts stay counted when the rule changes
    for kind, value in wanted.items():
        text = "True" if value else "False"
        item = conditions.get(kind)
        if item is None or item["status"] != text:
            changed = {"type": kind, "status": text, "lastTransitionTime": _now()}
            if not value:
                names = ", ".join(c["name"] for c in pod["spec"]["containers"])
                reason = "PodCompleted" if done else "ContainersNotReady"
                changed |= {"reason": reason, "message": f"containers with unready: [{names}]"}
            conditions[kind] = changed
    return {
        "phase": how.phase,
        "conditions": list(conditions.values()),
        "hostIP": node_address,
        "hostIPs": [{"ip": node_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": before.get("startTime") or stamp(born),
        "initContainerStatuses": [
            _container(item, how.init, {}, "terminated" in how.init, 0)
            for item in pod["spec"].get("initContainers", ())
        ],
        "containerStatuses": [
            {**_container(item, how.state, how.last, how.ready, restarts), "started": how.started}
            for item in pod["spec"]["containers"]
        ],
    }


def _container(
    item: Mapping[str, Any],
    state: Mapping[str, Any],
    last: Mapping[str, Any],
    ready: bool,
    restarts: int,
) -> dict[str, Any]:
    return {
        "name": item["name"],
        "image": item["image"],
        "imageID": f"{item['image']}@sha256:{'0' * 64}",
        "containerID": f"player://{item['name']}",
        "ready": ready,
        "restartCount": restarts,
        "state": state,
        "lastState": last,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
