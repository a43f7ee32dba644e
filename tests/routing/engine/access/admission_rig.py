"""Admission with its requests and a manual clock."""

from __future__ import annotations

from typing import Any

import pytest

from console.processkit.metrics import Histogram
from routing.engine.access import admission as module
from routing.engine.access.admission import RequestAdmission
from routing.engine.access.callers import Ticket
from routing.engine.access.keys import OPEN_ACCESS_KEY, KeyRing
from routing.engine.config import AdmissionConfig, Key, KeyLimits
from routing.engine.errors import Refusal
from routing.engine.policies.base import RequestFacts


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Admission's time from here on."""
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


def key(name: str, **limits: Any) -> Key:
    return Key(name, f"sha of {name}", limits=KeyLimits(**limits))


class Door:
    """An Admission, and what became of each request."""

    def __init__(self, *keys: Key, workers: int = 0, **config: Any) -> None:
        self.keys: tuple[Key, ...] | None = keys or None
        self.workers = workers  # slots of all workers; 0: no limit
        self.histogram = Histogram((0.0, 1.0))
        self.admission = RequestAdmission(self._room, self.histogram)
        self.configure(**config)
        self.running: list[Request] = []

    def _room(self) -> bool:
        return not self.workers or len(self.running) < self.workers

    def configure(self, **config: Any) -> None:
        self.config = AdmissionConfig(**config)
        ring = KeyRing(self.keys)
        self.admission.configure(self.config, ring, self.keys, capped=self.workers > 0)

    def ask(self, who: Key = OPEN_ACCESS_KEY, tokens: int = 100, held: int = 0) -> Request:
        request = Request(self, who.id)
        facts = RequestFacts([], tokens, 64, b"")
        try:
            if self.admission.enter(request, who, facts, held, may_wait=True):
                request.go(0.0)
        except Refusal as refusal:
            request.refuse(refusal)
        return request


class Request:
    def __init__(self, door: Door, who: str) -> None:
        self.door = door
        self.who = who
        self.ticket: Ticket | None = None
        self.refusal: Refusal | None = None
        self.waited_s: float | None = None
        self.ended = False

    @property
    def state(self) -> str:
        if self.refusal is not None:
            return self.refusal.code
        if self.ended:
            return "ended"
        return "waiting" if self.waited_s is None else "running"

    def go(self, waited_s: float) -> None:
        assert self.state == "waiting"
        self.waited_s = waited_s
        self.door.running.append(self)

    def refuse(self, refusal: Refusal) -> None:
        assert self.state == "waiting"
        self.refusal = refusal
        if self.ticket is not None:
            self.end(0.0, 0.0)

    def end(
        self, tokens: float | None = None, work: float | None = None, completion: int = 0
    ) -> None:
        assert not self.ended
        assert self.ticket is not None
        self.ended = True
        if self in self.door.running:
            self.door.running.remove(self)
        self.door.admission.done(self.ticket, tokens, work, completion)
        assert self.ticket is None


def states(requests: list[Request]) -> list[str]:
    return [request.state for request in requests]
