"""Prometheus metrics of memory sharing: policy, quotas, usage and shut namespaces.

Only namespaces configured with --quota have series; those from clients are in GET /namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cachetier.engine.memory.admission import NamespaceAdmission
from cachetier.engine.memory.census import Census
from cachetier.engine.store import StoreUsage
from console.processkit.metrics import escape

_OTHER_NAMESPACES = "other"


def render(
    pool: str,
    usage: StoreUsage,
    census: Census,
    admission: NamespaceAdmission | None,
    policy: tuple[str, int],
    quotas: Mapping[str, int],
) -> Iterable[str]:
    """Yield the metric lines; `policy` is (name, number of ghost keys)."""
    name, ghosts = policy
    spaces = dict(census.spaces())
    used = {space: spaces[space].bytes if space in spaces else 0 for space in quotas}
    rest = sum(space.bytes for space in spaces.values()) - sum(used.values())
    gauges: dict[str, tuple[str, Mapping[str, int]]] = {
        "held_bytes": (
            "Of the used bytes, values which have left and are still being read.",
            {"": usage.held_bytes},
        ),
        "receiving_bytes": (
            "Of the used bytes, values which are on their way in.",
            {"": usage.receiving_bytes},
        ),
        "policy_info": ("Always 1: who goes first.", {f'policy="{name}"': 1}),
        "policy_ghosts": ("Keys the policy remembers which have gone.", {"": ghosts}),
        "namespace_used_bytes": (
            "Bytes in memory of namespaces with a quota, and of all others together.",
            {_label(space): count for space, count in {**used, _OTHER_NAMESPACES: rest}.items()},
        ),
        "namespace_quota_bytes": (
            "What a namespace may have in memory.",
            {_label(space): limit for space, limit in quotas.items()},
        ),
        "refused_namespaces": (
            "Namespaces whose values are refused since they only thrash (--admission).",
            {"": 0 if admission is None else len(admission.shut())},
        ),
    }
    for title, (text, values) in gauges.items():
        yield f"# HELP emberline_l2_{title} {text}"
        yield f"# TYPE emberline_l2_{title} gauge"
        for labels, value in values.items():
            more = f",{labels}" if labels else ""
            yield f'emberline_l2_{title}{{pool="{escape(pool)}"{more}}} {value}'


def _label(namespace: str) -> str:
    return f'namespace="{escape(namespace)}"'
