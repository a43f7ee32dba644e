"""Applied sizes of an L2 tier, whose form is another than the endpoint's, and their outcome."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from cachetier import actions as cache_tiers
from cachetier import selectors as tiers
from cachetier.models import CacheTier
from console.audit.models import AuditEvent
from dashboards.insight.advisor import checks
from dashboards.insight.advisor.formulas.outcome import CAME, UNTOLD, WAITING
from dashboards.insight.advisor.models import Advice
from dashboards.insight.whatif.models import WhatIf
from endpoints import actions
from endpoints.models import Revision
from tests.dashboards.insight.advisor.test_checks import APPLIED, Recording, recording
from tests.support.console import browser, person

__all__ = ["recording"]
MIB = 1024**2
SMALL, ADVISED = 128, 256  # MiB


@pytest.fixture
def with_l2(finished: Advice) -> Advice:
    """Advice to double the tier that the endpoint's L2 uses."""
    cache_tiers.create(person("operator"), "default", {"memory_bytes": SMALL * MIB})
    l2 = {"enabled": True, "backend": "tieredstorage", "tier": "default"}
    made = actions.patch(person("operator"), "demo", {"cache": {"l1": {"enabled": True}, "l2": l2}})
    run = finished.run
    result = deepcopy(run.result)
    gain = {"value": -0.3, "low": -0.4, "high": -0.2}
    change = result["candidates"][0]["change"] | {"ttft_p50_s": gain, "ttft_p90_s": gain}
    result["candidates"] = [{**result["candidates"][0], "change": change}]
    present = {**run.present, "l2_gib": SMALL / 1024}
    candidates = [{**present, "l2_gib": ADVISED / 1024}]
    WhatIf.objects.filter(pk=run.pk).update(present=present, candidates=candidates, result=result)
    CacheTier.objects.update(created_at=APPLIED - timedelta(hours=2))
    l2_facts = {"tier": "default", "nodes": 1, "copies": 1, "users": 1, "usd_gib_hour": 0.0}
    l2_facts |= {"why": "", "exists": True, "memory_gib": SMALL / 1024}
    Advice.objects.update(
        facts={**finished.facts, "l2": l2_facts},
        generation=made.generation,
        checked_generation=made.generation,
        checked_tier_generation=1,
        created_at=APPLIED - timedelta(hours=1),
    )
    return Advice.objects.get()


def resize(mib: int, at: datetime = APPLIED, **more: Any) -> None:
    """Change the tier, three hours ago."""
    cache_tiers.change(person("operator"), "default", {"memory_bytes": mib * MIB, **more})
    event = AuditEvent.objects.filter(verb="cache-tier.update", target="cache-tier/default").latest(
        "pk"
    )
    AuditEvent.objects.filter(pk=event.pk).update(at=at)


def check() -> dict[str, Any]:
    checks.check_all(timezone.now())
    (one,) = Advice.objects.get().applied.values()
    return dict(one)


def test_the_size_of_the_tier_applies_a_row(with_l2: Advice, recording: Recording) -> None:
    assert not checks.has_work()
    recording.change(most=20)
    resize(ADVISED - SMALL // 2, APPLIED - timedelta(minutes=1))
    assert checks.has_work()
    checks.check_all(timezone.now())
    assert Advice.objects.get().applied == {}, "less than advised"
    assert not checks.has_work()
    resize(ADVISED)
    one = check()
    assert (one["key"], one["tier"], one["verdict"]) == ("l2_gib=0.25", "default", WAITING)
    page = browser("viewer").get("/advisor/endpoints/demo/").content.decode()
    assert '<a href="/cache/default/">cache tier default</a>' in page


def test_the_size_of_a_tier_that_l2_left_applies_no_row(
    with_l2: Advice, recording: Recording
) -> None:
    recording.change(most=20)
    l2 = {"backend": "redis", "url": "redis://cache.example:6379"}
    left = actions.patch(person("operator"), "demo", {"cache": {"l2": l2}})
    Revision.objects.filter(number=left.generation).update(
        created_at=APPLIED - timedelta(minutes=30)
    )
    resize(ADVISED)
    checks.check_all(timezone.now())
    assert Advice.objects.get().applied == {}


@pytest.mark.parametrize(
    ("slower", "mib", "verdict", "text"),
    [
        (0.5, ADVISED, CAME, "TTFT p50 -50 %"),
        (0.5, 2 * ADVISED, CAME, "L2 has 0.5 GiB instead of 0.25. TTFT p50"),
        (1.0, ADVISED, "did_not_come", "Worse than promised: TTFT p50, TTFT p90."),
    ],
)
def test_its_gain_is_checked_like_that_of_a_revision(
    with_l2: Advice, recording: Recording, slower: float, mib: int, verdict: str, text: str
) -> None:
    recording.change(slower=slower)
    resize(mib)
    one = check()
    assert (one["verdict"], text in one["text"]) == (verdict, True), one["text"]
    assert "Taken off as the effect of other requests" in one["text"]


def test_another_change_of_the_tier_makes_it_unknown(with_l2: Advice, recording: Recording) -> None:
    resize(ADVISED, policy="lru")
    one = check()
    assert (one["verdict"], one["text"]) == (
        UNTOLD,
        "Since the advice, cache tier policy changed too.",
    )


def test_a_later_change_of_the_tier_ends_the_comparison(
    with_l2: Advice, recording: Recording
) -> None:
    recording.change(most=20)
    resize(ADVISED)
    assert check()["verdict"] == WAITING
    cache_tiers.change(person("operator"), "default", {"memory_bytes": SMALL * MIB})
    assert "before the next change of the configuration" in check()["text"]


def test_earlier_specs_of_a_tier_are_read_from_the_audit_log(db: Any) -> None:
    operator = person("operator")
    before = timezone.now()
    made = cache_tiers.create(operator, "large", {"memory_bytes": SMALL * MIB})
    middle = timezone.now()
    cache_tiers.change(operator, "large", {"memory_bytes": ADVISED * MIB})
    cache_tiers.change(operator, "large", {"policy": "lru"})
    found = [
        (spec.memory_bytes // MIB, spec.policy) for _, spec in tiers.list_specs("large", middle)
    ]
    assert found == [(SMALL, made.policy), (ADVISED, made.policy), (ADVISED, "lru")]
    assert tiers.list_specs("large", before)[0][0] == made.created_at
    assert [spec.policy for _, spec in tiers.list_specs("large", timezone.now())] == ["lru"]
    assert tiers.list_specs("larger", before) == []
