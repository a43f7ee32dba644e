"""An endpoint whose recording is traffic of workers with known constants."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dashboards.insight.traces.storage import RecordedHour
from dashboards.insight.whatif import actions, inputs, lifecycle
from dashboards.insight.whatif.actions import WhatIfRequest
from dashboards.insight.whatif.models import WhatIf
from endpoints.models import Endpoint
from tests.dashboards.insight.whatif.recorded_traffic import TRUTH, WORKERS, recorded_traffic
from tests.support.console import make_endpoint, person, pretend_ready

HOUR = datetime(2026, 11, 23, 10, tzinfo=UTC)
GIVEN = {"device_tokens": TRUTH.cache_tokens, "kv_kib": 45, "l1_gib": 0}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the recording, which its own tests cover."""
    hour = RecordedHour(HOUR, 1, 300, 1, 1, 1, 0, 1)
    monkeypatch.setattr(inputs, "recorded_hours", lambda _endpoint: [hour])
    monkeypatch.setattr(lifecycle, "load_trace", lambda *_period: recorded_traffic(300))


@pytest.fixture
def endpoint(db: Any, recorded: None) -> Endpoint:
    cache = {"l1": {"enabled": False}}
    return pretend_ready(make_endpoint("demo", replicas=WORKERS, cache=cache))


@pytest.fixture
def queued(endpoint: Endpoint) -> WhatIf:
    return actions.start(person("operator"), endpoint.name, WhatIfRequest({**GIVEN, "replicas": 2}))


@pytest.fixture
def finished(queued: WhatIf) -> WhatIf:
    assert WhatIf.claim(queued.pk)
    lifecycle.execute(queued.pk)
    queued.refresh_from_db()
    return queued
