"""`emberline endpoint advice`: start, read and cancel."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import CommandError, call_command

from dashboards.insight.advisor.models import Advice
from dashboards.insight.whatif.models import WhatIf
from endpoints.models import Endpoint
from tests.dashboards.insight.advisor.conftest import endpoint, finished, queued

__all__ = ["endpoint", "finished", "queued"]


def cli(*words: str) -> str:
    out = io.StringIO()
    call_command("emberline", "endpoint", "advice", "demo", *words, stdout=out)
    return out.getvalue()


def test_advice_is_started_and_cancelled(endpoint: Endpoint) -> None:
    with pytest.raises(CommandError, match="No advice yet"):
        cli()
    with pytest.raises(CommandError, match="add --new"):
        cli("--set", "kv_kib=64")
    with pytest.raises(CommandError, match="Use a number"):
        cli("--new", "--set", "kv_kib=much")
    assert "queued, 0%" in cli("--new", "--set", "price_usd_hour=2.5")
    assert WhatIf.objects.get().present["price_usd_hour"] == 2.5
    assert "cancelled" in cli("--cancel")


def test_rows_have_gains_forms_and_outcomes(finished: Advice) -> None:
    finished.applied = {
        "replicas=2": {
            "key": "replicas=2",
            "change": "Replicas 3 → 2",
            "revision": 2,
            "verdict": "came",
            "text": "TTFT p90 +10 %.",
            "at": "2026-11-23T10:00:00+00:00",
        }
    }
    finished.save()
    text = cli()
    assert "trade_off" in text and "Replicas 3 → 2" in text and "+2920.00" in text
    assert "apply replicas=2: /endpoints/demo/edit/?replicas=2" in text
    assert "Gain came: Replicas 3 → 2, applied by revision 2. TTFT p90 +10 %." in text
    assert json.loads(cli("-o", "json"))["rows"]


def test_a_failed_computation_fails_the_wait(queued: Advice) -> None:
    WhatIf.objects.update(state="failed", message="Record more traffic.")
    with pytest.raises(CommandError, match=r"The computation failed\. Record more traffic"):
        cli("--wait")
