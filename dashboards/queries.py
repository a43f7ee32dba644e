"""PromQL by name. The only place where metric names are written.

Promises that every value which comes from outside is checked against what a name may be before it
enters a query, so that no caller can widen one. Pure; must not know Django or HTTP.

Facts behind the expressions (verified on vLLM 0.32 unless said otherwise):
- `vllm:prompt_tokens_total` counts cached tokens too: it is the denominator of every hit rate.
- `prompt_tokens_cached_by_source_total` splits them: device is the engine's own cache, host is L1,
  disk is our L2 (the label follows the tier's medium); p2p and external_unspecified are other L2s.
- The router's metrics carry `endpoint`, the engines' get `endpoint_name` from the target.
- A label child may be absent until its first event: `or 0 * <what is always there>` makes it zero
  without hiding that nothing is scraped at all.
- A rate needs two samples: the window is never under a minute, which any scrape interval up to
  20 s fills.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MIN_RATE_WINDOW_S = 60
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
L2_SOURCES = "disk|p2p|external_unspecified"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a page looks at: one endpoint, or with "" the whole fleet; and over which window."""

    endpoint: str = ""
    namespace: str = "default"
    window_s: int = MIN_RATE_WINDOW_S

    def __post_init__(self) -> None:
        for value in (self.endpoint, self.namespace):
            if value and not _LABEL_VALUE.fullmatch(value):
                raise ValueError(f"{value!r} cannot be a label's value")

    @property
    def window(self) -> str:
        return f"{max(MIN_RATE_WINDOW_S, int(self.window_s))}s"

    def engine(self, more: str = "") -> str:
        """Selector of what workers expose; `more` is ours, never a caller's."""
        return self._selector("endpoint_name", more)

    def router(self, more: str = "") -> str:
        return self._selector("endpoint", more)

    def _selector(self, label: str, more: str) -> str:
        parts = []
        if self.endpoint:
            parts = [f'namespace="{self.namespace}"', f'{label}="{self.endpoint}"']
        return "{" + ",".join([*parts, *([more] if more else [])]) + "}"


def _rate(metric: str, selector: str, scope: Scope) -> str:
    return f"rate({metric}{selector}[{scope.window}])"


def requests_by_class(scope: Scope) -> str:
    """Requests a second the router answered, by 2xx, 4xx, 5xx."""
    rate = _rate("emberline_router_requests_total", scope.router(), scope)
    return f'sum by (class)(label_replace({rate}, "class", "${{1}}xx", "code", "(.).*"))'


def requests_by_endpoint(scope: Scope) -> str:
    rate = _rate("emberline_router_requests_total", scope.router(), scope)
    return f"sum by (endpoint)({rate})"


def ttft_quantile(scope: Scope, quantile: float) -> str:
    """Seconds to the first token, as the engines measured it."""
    if not 0 < quantile < 1:
        raise ValueError(f"{quantile} is not a quantile")
    rate = _rate("vllm:time_to_first_token_seconds_bucket", scope.engine(), scope)
    return f"histogram_quantile({quantile}, sum by (le)({rate}))"


def ttft_by_cache(scope: Scope) -> str:
    """Median seconds to the first byte, as the router measured it, by how much was cached."""
    metric = "emberline_router_time_to_first_token_seconds_bucket"
    return f"histogram_quantile(0.5, sum by (le,cache)({_rate(metric, scope.router(), scope)}))"


def tokens_computed(scope: Scope) -> str:
    """Prompt tokens a second which were in no cache."""
    selector = scope.engine('source="local_compute"')
    return f"sum({_rate('vllm:prompt_tokens_by_source_total', selector, scope)})"


def _tokens_from(scope: Scope, match: str) -> str:
    cached = _rate("vllm:prompt_tokens_cached_by_source_total", scope.engine(match), scope)
    every = _rate("vllm:prompt_tokens_total", scope.engine(), scope)
    return f"sum({cached}) or 0 * sum({every})"


def tokens_device(scope: Scope) -> str:
    return _tokens_from(scope, 'source="device"')


def tokens_l1(scope: Scope) -> str:
    return _tokens_from(scope, 'source="host"')


def tokens_l2(scope: Scope) -> str:
    return _tokens_from(scope, f'source=~"{L2_SOURCES}"')


def tokens_all(scope: Scope) -> str:
    return f"sum({_rate('vllm:prompt_tokens_total', scope.engine(), scope)})"


def share_by_worker(scope: Scope) -> str:
    """Which part of the requests each worker got, 0 to 1; nothing while there are none."""
    rate = _rate("emberline_router_routing_decisions_total", scope.router(), scope)
    return f"sum by (worker)({rate}) / on () group_left () (sum({rate}) > 0)"


def decisions_by_reason(scope: Scope) -> str:
    rate = _rate("emberline_router_routing_decisions_total", scope.router(), scope)
    return f"sum by (reason)({rate})"


def targets_up(scope: Scope) -> str:
    """How many of each kind of target answer; a kind that nobody scrapes is absent."""
    selector = scope.engine('job=~"vllm|router"')
    return f"sum by (job)(up{selector})"


def l2_fill() -> str:
    """Bytes used of bytes there are, by pool."""
    return "sum by (pool)(emberline_l2_used_bytes) / sum by (pool)(emberline_l2_capacity_bytes)"
