"""What workers say of themselves, and so which tier their prompt tokens came from. Pure."""

from __future__ import annotations

from dashboards.queries.names import BY_SOURCE, CACHED, PROMPT, TTFT
from dashboards.queries.shape import Query, Scope, Times, busiest, named, rate_by


def _ttft(quantile: float) -> Query:
    def query(scope: Scope, times: Times) -> str:
        buckets = rate_by("le", f"{TTFT}_bucket", scope.engines(), times)
        return f"histogram_quantile({quantile}, {buckets})"

    return query


for _percent in (50, 90, 99):
    named(f"ttft_p{_percent}")(_ttft(_percent / 100))


@named("prompt_share_by_source")
def prompt_share_by_source(scope: Scope, times: Times) -> str:
    """Where prompt tokens came from, as shares of one. vLLM has no word for our L2: its tier says
    disk; p2p and unspecified ones are beyond the worker too. All prompt tokens are the
    denominator, for `prompt_tokens_total` counts the cached ones as well."""
    sources = {
        "device": (CACHED, {"source": "device"}),
        "l1": (CACHED, {"source": "host"}),
        "l2": (CACHED, {"source_re": "disk|p2p|external_unspecified"}),
        "computed": (BY_SOURCE, {"source": "local_compute"}),
    }
    parts = [
        f"label_replace(rate({metric}{scope.engines(**labels)}[{times.rate_s}s]), "
        f'"tier", "{tier}", "", "")'
        for tier, (metric, labels) in sources.items()
    ]
    every = f"sum(rate({PROMPT}{scope.engines()}[{times.rate_s}s])) > 0"
    return f"sum by (tier) ({' or '.join(parts)}) / on () group_left () ({every})"


@named("reuse_by_endpoint")
def reuse_by_endpoint(scope: Scope, times: Times) -> str:
    by, braces = "endpoint_name", scope.engines()
    computed = rate_by(by, BY_SOURCE, scope.engines(source="local_compute"), times)
    every = rate_by(by, PROMPT, braces, times)
    return f"1 - {computed} / ({every} > 0) {busiest(by, PROMPT, braces, times)}"


@named("reuse_each")
def reuse_each(scope: Scope, times: Times) -> str:
    """As `reuse_by_endpoint`, of every endpoint: for lists, at one moment."""
    by = "endpoint_name"
    computed = rate_by(by, BY_SOURCE, scope.engines(source="local_compute"), times)
    return f"1 - {computed} / ({rate_by(by, PROMPT, scope.engines(), times)} > 0)"


@named("ttft_p90_each")
def ttft_p90_each(scope: Scope, times: Times) -> str:
    buckets = rate_by("le, endpoint_name", f"{TTFT}_bucket", scope.engines(), times)
    return f"histogram_quantile(0.9, {buckets})"
