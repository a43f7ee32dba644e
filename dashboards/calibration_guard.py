"""Limits of an automatic calibration: idle workers, time, tokens, and the switch.

Load is read from the endpoint's routers, which see every request of every caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dashboards.calibration_switches import read_switches
from dashboards.costs.formulas import calibration
from dashboards.models import CalibrationEnd
from endpoints.choices import Phase
from endpoints.models import Endpoint, EndpointStatus
from endpoints.prompt.client import PromptAnswer
from endpoints.router import selectors as routing

DEADLINE_S = 180.0
REQUEST_S = 30.0
MAX_TOKENS = 8000
"""Prompt and generated tokens. A calibration takes about 2,500."""


@dataclass(frozen=True, slots=True)
class EndpointLoad:
    """Load of an endpoint. `in_flight`: requests now; `served`: since the routers started."""

    in_flight: int
    served: int


ReadLoad = Callable[[Endpoint], EndpointLoad | None]


def read_load(endpoint: Endpoint) -> EndpointLoad | None:
    """Return None unless all routers answer."""
    workers = routing.workers(Endpoint.objects.select_related("status").get(pk=endpoint.pk))
    if workers.error or workers.note:
        return None
    return EndpointLoad(
        sum(worker.in_flight for worker in workers.found),
        sum(worker.served for worker in workers.found),
    )


class CalibrationAbandonedError(Exception):
    """The calibration ends here; the message states why."""

    def __init__(self, reason: CalibrationEnd, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass
class CalibrationGuard:
    """Wraps the requests of one run; raises CalibrationAbandonedError before the next one."""

    endpoint: Endpoint
    ask: calibration.Ask
    load: ReadLoad = read_load
    clock: Callable[[], float] = time.monotonic
    sent: int = 0
    tokens: int = 0
    _began: float = field(init=False)
    _first: EndpointLoad | None = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._first = self.load(self.endpoint)

    def send(self, prompt: str, worker: str) -> PromptAnswer:
        self.check()
        answer = self.ask(prompt, worker)
        self.sent += 1
        self.tokens += (answer.prompt_tokens or 0) + (answer.completion_tokens or 0)
        return answer

    def check(self) -> None:
        ends = CalibrationEnd
        status = EndpointStatus.objects.filter(endpoint=self.endpoint, endpoint__deleted_at=None)
        if not status.filter(phase=Phase.READY).exists():
            raise CalibrationAbandonedError(ends.NOT_READY, "The endpoint is no longer Ready.")
        if not read_switches().enabled(self.endpoint.pk):
            raise CalibrationAbandonedError(
                ends.SWITCHED_OFF, "Automatic calibration was switched off."
            )
        if self.clock() - self._began > DEADLINE_S:
            raise CalibrationAbandonedError(
                ends.TIME, f"The time limit of {DEADLINE_S:.0f} s was reached."
            )
        if self.tokens > MAX_TOKENS:
            raise CalibrationAbandonedError(
                ends.TOKENS, f"The limit of {MAX_TOKENS:,} tokens was reached."
            )
        now = self.load(self.endpoint)
        if now is None or self._first is None:
            raise CalibrationAbandonedError(ends.NOT_READY, "The router did not report its load.")
        if now.in_flight or now.served - self._first.served != self.sent:
            raise CalibrationAbandonedError(
                ends.TRAFFIC, "Other requests arrived: the workers are no longer idle."
            )
