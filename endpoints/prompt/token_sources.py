"""Cached prompt tokens of one request by tier, from its worker's counters before and after it.

An engine reports per request how many prompt tokens were cached, and per tier only in counters. The
counters' growth belongs to the request if nothing else ran on the worker meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx

from console.core.fetch import fetch
from console.processkit.metrics import MetricSample, parse_samples, total

CACHED = "vllm:prompt_tokens_cached_by_source_total"
SCRAPE_S = 2.0
_MAX_BYTES = 8 * 1024**2
_TIERS = {"device": "device", "host": "L1", "disk": "L2", "p2p": "L2", "external_unspecified": "L2"}


def scrape(url: str, deadline_s: float = SCRAPE_S) -> list[MetricSample] | None:
    """Return the engine's samples, None if the worker at `url` does not answer."""
    try:
        status, body = fetch(
            "GET", f"{url.rstrip('/')}/metrics", deadline_s=deadline_s, max_bytes=_MAX_BYTES
        )
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return parse_samples(body.decode(errors="replace"), "vllm:") if status == 200 else None


def scrape_all(urls: Mapping[str, str], deadline_s: float) -> dict[str, list[MetricSample]]:
    """Return the samples of the workers that answer, by name; they are read at once."""
    if not urls:
        return {}
    with ThreadPoolExecutor(len(urls)) as threads:
        answers = threads.map(lambda url: scrape(url, deadline_s), urls.values())
        samples = dict(zip(urls, answers, strict=True))
    return {name: worker for name, worker in samples.items() if worker is not None}


def growth_by_tier(before: list[MetricSample], after: list[MetricSample]) -> dict[str, int] | None:
    """Return tokens by tier ("device", "L1", "L2"); None without the counter."""
    if total(after, CACHED) is None:
        return None
    growth: dict[str, int] = {}
    for source, tier in _TIERS.items():
        old, new = (total(samples, CACHED, source=source) or 0 for samples in (before, after))
        if new > old:
            growth[tier] = growth.get(tier, 0) + int(new - old)
    return growth
