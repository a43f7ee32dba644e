"""A request while the router has it: what is known of it and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from routing.engine.tokens.usage import NO_ANSWER

if TYPE_CHECKING:
    from routing.engine.access.callers import Ticket
    from routing.engine.errors import Refusal
    from routing.engine.fleet.workers import Worker
    from routing.engine.http.http1 import RequestHead
    from routing.engine.kvaware.request_state import RequestPlacement
    from routing.engine.misses.diagnosis import Diagnosis
    from routing.engine.misses.history import SeenPrompt
    from routing.engine.observe.decisions import Decision
    from routing.engine.observe.metrics import ModelMetrics
    from routing.engine.observe.tracing import Trace
    from routing.engine.policies.base import RequestFacts
    from routing.engine.prompt.engine_request import EngineRequest
    from routing.engine.tokens.usage import AnswerTokens


class RoutedRequest:
    """A request as seen by what routes it, relays its answer and accounts for it.

    A concrete base instead of a Protocol: compiled code reads its fields without a look-up by name.
    """

    __slots__ = (
        "answer", "answered", "ask", "body", "decision", "delayed", "diagnosis", "facts", "head",
        "keep_alive", "model", "pinned", "placing", "requested_model", "seen", "sent_at",
        "stored_response", "ticket", "trace", "tried", "uploading",
    )  # fmt: skip

    def __init__(
        self,
        head: RequestHead,
        body: bytes | None,
        facts: RequestFacts,
        model: ModelMetrics,
        decision: Decision,
        ask: EngineRequest,
    ) -> None:
        self.head = head
        self.body = body  # None: streamed, cannot be retried
        self.uploading = body is None
        self.keep_alive = head.keep_alive
        self.facts = facts
        self.model = model
        self.decision = decision
        self.ask = ask
        self.answer: AnswerTokens = NO_ANSWER
        self.answered = False
        self.sent_at = 0.0
        self.tried: list[Worker] = []
        self.pinned = False
        self.ticket: Ticket | None = None  # its admission slot
        self.trace: Trace | None = None
        self.placing: RequestPlacement | None = None
        self.seen: SeenPrompt | None = None
        self.diagnosis: Diagnosis | None = None
        self.requested_model = ""
        self.stored_response = ""  # ID of the response that it reads, cancels or continues
        self.delayed = False  # its retry waits for a turn

    # -- towards the worker

    @property
    def over(self) -> bool:
        """Return True once it is accounted for."""
        raise NotImplementedError

    def go(self, waited_s: float) -> None:
        """Leave the admission queue."""
        raise NotImplementedError

    def send_to(self, worker: Worker, uncached_tokens: int) -> None:
        """Send to this worker; its load includes the request from now on."""
        raise NotImplementedError

    def wait_for_retry(self, timeout_s: float) -> None:
        raise NotImplementedError

    # -- towards the client

    def may_retry(self, reason: str) -> bool:
        """Return True if another worker may get the request; charges the retry budget."""
        raise NotImplementedError

    def retry(self, reason: str, message: str, refused: bool = False) -> None:
        """Send to another worker, after `may_retry`."""
        raise NotImplementedError

    def reconnect(self) -> bool:
        """Send to the same worker on a new connection, once; return False if impossible.

        A kept connection may close as it is used: that is no failure of the worker.
        """
        raise NotImplementedError

    def attempt_failed(self, code: str, message: str, refused: bool = False) -> None:
        """Retry or refuse, after an attempt without an answer byte."""
        raise NotImplementedError

    def engine_died(self) -> None:
        """Retry or refuse, after the engine's death before the first answer byte."""
        raise NotImplementedError

    def first_byte(self) -> None:
        """Commit the answer to the client: no retry from here on."""
        raise NotImplementedError

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error; only before the first answer byte."""
        raise NotImplementedError

    def finish(self, error: str) -> None:
        """Account for the request, once; `error`: its named reason, "" for none."""
        raise NotImplementedError

    def crashed(self, error: Exception) -> None:
        """End after an exception: with an error before the first byte, else as broken off."""
        raise NotImplementedError

    def answer_end(self) -> bytes:
        return self.answer.tail

    def cache_state(self) -> str:
        """Return the cache label for metrics: reported by the engine, else predicted."""
        decision = self.decision
        cached = decision.cached_tokens
        cached = decision.predicted if cached is None else cached
        if not cached:
            return "none"
        # The last block is always computed: nearly all cached counts as all.
        return "full" if cached >= 0.9 * decision.prompt_tokens else "partial"
