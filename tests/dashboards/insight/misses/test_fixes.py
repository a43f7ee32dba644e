"""Changes of a spec that carry out remedies."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards.insight.misses.fixes import propose_fix
from endpoints.spec.endpoint_spec import nest, read
from routing.engine.misses.attribution import CAUSES

BASE: dict[str, Any] = {
    "name": "demo",
    "model": "m",
    "replicas": 2,
    "cache.l1.size_gib": 4,
    "cache.l2.enabled": False,
    "routing.strategy": "session",
    "routing.cache_isolation": "key",
}


def fix(cause: str, **changes: Any) -> tuple[str, dict[str, Any]] | None:
    flat = {**BASE, **{path.replace("__", "."): value for path, value in changes.items()}}
    found = propose_fix(cause, read(nest(flat))[0])
    return None if found is None else (found.button, dict(found.changes))


L2_ON = ("Enable L2", {"cache.l1.enabled": True, "cache.l2.enabled": True})
PREFIXAWARE = ("Use prefixaware", {"routing.enabled": True, "routing.strategy": "prefixaware"})


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("placed_strategy", PREFIXAWARE),
        ("not_hashed", PREFIXAWARE),
        ("placed_load", ("2 → 3 replicas", {"replicas": 3})),
        (
            "evicted_unknown",
            ("Use kvaware", {"routing.enabled": True, "routing.strategy": "kvaware"}),
        ),
        ("evicted_l1", ("L1 4 → 8 GiB", {"cache.l1.size_gib": 8})),
        *((cause, L2_ON) for cause in ("evicted_device", "lost_restart", "lost_rollout")),
        ("other_salt", ("Share by key group", {"routing.cache_isolation": "group"})),
        ("first_seen", None),
    ],
)
def test_each_remedy_that_the_console_can_carry_out_is_a_change(
    cause: str, expected: tuple[str, dict[str, Any]] | None
) -> None:
    assert fix(cause) == expected


def test_nothing_is_proposed_that_is_already_so() -> None:
    assert fix("not_hashed", routing__strategy="prefixaware") is None
    assert fix("evicted_unknown", routing__strategy="kvaware") is None
    assert fix("lost_restart", cache__l2__enabled=True) is None
    assert fix("placed_load", replicas=64) is None
    assert fix("placed_load", scaling__enabled=True) is None
    assert fix("evicted_l1", cache__l1__size_gib=4096) is None
    assert fix("other_salt", routing__cache_isolation="group") is None
    turned_off = fix("not_hashed", routing__strategy="prefixaware", routing__enabled=False)
    assert turned_off == PREFIXAWARE
    assert fix("evicted_device", cache__l1__enabled=False) == (
        "Enable L1",
        {"cache.l1.enabled": True},
    )


@pytest.mark.parametrize("cause", CAUSES)
def test_a_proposed_change_is_valid(cause: str) -> None:
    found = propose_fix(cause, read(nest(BASE))[0])
    if found is not None:
        _, problems = read(nest({**BASE, **found.changes}))
        assert not problems
