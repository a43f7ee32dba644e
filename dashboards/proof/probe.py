"""Live implementation of the proof's tools. Every call has a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from console.core.fetch import fetch
from console.processkit.metrics import MetricSample, parse_samples
from dashboards.proof.cache_proof import MAX_TOKENS
from endpoints.prompt.client import PromptAnswer, PromptRequest, ask

REQUEST_S = 90.0
SCRAPE_S = 2.0
_MAX_BYTES = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class LiveTools:
    url: str
    key: str = field(repr=False)
    model: str
    workers: Mapping[str, str]
    deadline_s: float = REQUEST_S

    def ask(self, prompt: str, pin: str) -> PromptAnswer:
        return ask(
            PromptRequest(
                self.url,
                self.key,
                self.model,
                prompt,
                max_tokens=MAX_TOKENS,
                pin=pin,
                deadline_s=self.deadline_s,
            )
        )

    def scrape(self, worker: str) -> list[MetricSample] | None:
        url = self.workers.get(worker)
        if not url:
            return None
        try:
            status, body = fetch(
                "GET", f"{url.rstrip('/')}/metrics", deadline_s=SCRAPE_S, max_bytes=_MAX_BYTES
            )
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        return parse_samples(body.decode(errors="replace"), "vllm:") if status == 200 else None

    def pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def clock(self) -> float:
        return time.monotonic()
