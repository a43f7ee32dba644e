"""Recording rules: series which Prometheus makes of others, so that their names mean something.

Promises that the names of the reference's documentation live on where LMCache runs as a server of
its own: that server has none of them. A rule renames and never adds up, so that every label stays
and a counter that begins anew is seen by `rate`, as on the series it was made of. Pure.

What cannot be made is not: a histogram of hit rates per request is not in a server's counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from dashboards.boards.queries import recording_rules

# Of endpoints whose LMCache is a server of its own: no other worker is to look as if it had one.
_SERVER = "lmcache_mp_lookup_requested_tokens_total"
_BESIDE_IT = f"and on (namespace, endpoint_name) {_SERVER}"


@dataclass(frozen=True, slots=True)
class Record:
    """`sources`: expressions for the same thing, any of which may be there; the first one wins
    where two have the same labels. `meaning`: what it counts in truth."""

    name: str
    sources: tuple[str, ...]
    meaning: str

    @property
    def expr(self) -> str:
        return " or ".join(self.sources)

    def data(self) -> dict[str, Any]:
        return {"record": self.name, "expr": self.expr}


def _lmcache(name: str, server: str, meaning: str) -> Record:
    """Also from the name that OpenMetrics leaves of it: LMCache's own port has no colons."""
    return Record(f"lmcache:{name}", (server, f"lmcache_{name}"), meaning)


# Server: LMCache's multi-process mode, which vLLM 0.32 chooses for kv_offloading_backend=lmcache.
# What such a server cannot know, the vLLM beside it says.
LMCACHE: Final = (
    _lmcache(
        "num_lookup_hits_total",
        "lmcache_mp_lookup_hit_tokens_total",
        "Prompt tokens which LMCache found when the scheduler asked.",
    ),
    _lmcache(
        "num_lookup_tokens_total",
        _SERVER,
        "Prompt tokens it was asked for: what the above is a share of.",
    ),
    _lmcache(
        "num_lookup_requests_total",
        "lmcache_mp_lookups_requests_total",
        "How often it was asked.",
    ),
    _lmcache(
        "num_hit_tokens_total",
        f"(vllm:external_prefix_cache_hits_total {_BESIDE_IT})",
        "Prompt tokens which LMCache really gave to vLLM.",
    ),
    _lmcache(
        "num_vllm_hit_tokens_total",
        f"(vllm:prefix_cache_hits_total {_BESIDE_IT})",
        "Prompt tokens vLLM had on the device already: not LMCache's, whatever the name says.",
    ),
    _lmcache(
        "num_prompt_tokens_total",
        f"(vllm:prompt_tokens_total {_BESIDE_IT})",
        "All prompt tokens: what the above is a share of.",
    ),
)
# For fleets so large that adding up every worker's buckets takes long: 15 times less for all
# endpoints together, half for each (docs/grafana.md). Not worth its own cost for a few workers.
TTFT_RAW: Final = "vllm:time_to_first_token_seconds_bucket"
TTFT_RECORDED: Final = "endpoint:vllm_time_to_first_token_seconds_bucket:rate5m"
LARGE_FLEET: Final = (
    Record(
        TTFT_RECORDED,
        (f"sum by (le, namespace, endpoint_name) (rate({TTFT_RAW}[5m]))",),
        "Requests a second by time to first token, of all workers of an endpoint.",
    ),
)
GROUPS: Final[dict[str, tuple[Record, ...]]] = {"emberline-lmcache-names": LMCACHE}
# By how often they are evaluated; read by the console's own boards where they look back over
# hours or days (dashboards.boards.queries.recording_rules).
LONG_RANGES: Final = {300: "emberline-long-ranges", 60: "emberline-middle-ranges"}
FLEET_GROUPS: Final[dict[str, tuple[Record, ...]]] = {"emberline-large-fleet": LARGE_FLEET}


def groups(wanted: Mapping[str, tuple[Record, ...]] = GROUPS) -> list[dict[str, Any]]:
    return [
        {"name": name, "rules": [record.data() for record in records]}
        for name, records in wanted.items()
    ]


def long_ranges() -> list[dict[str, Any]]:
    """The groups of rules which keep what boards of hours, days and weeks ask for."""
    return [
        {
            "name": LONG_RANGES[family.every_s],
            "interval": f"{family.every_s}s",
            "rules": recording_rules.rules(family),
        }
        for family in recording_rules.FAMILIES
    ]


def every_group() -> list[dict[str, Any]]:
    """What each Prometheus should load."""
    return [*groups(), *long_ranges()]


def render(found: list[dict[str, Any]] | None = None) -> str:
    """A rule file; of every group, if none is named."""
    head = "# Written by Emberline at every start; changes here are lost.\n"
    every = every_group() if found is None else found
    return head + yaml.safe_dump({"groups": every}, sort_keys=False, width=1000)
