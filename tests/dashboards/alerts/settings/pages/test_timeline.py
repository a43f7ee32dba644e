"""Alert history page and REST: lanes, opened intervals, notifications, permissions."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone
from playwright.sync_api import Browser

from dashboards.alerts.notify import receivers, silences
from dashboards.alerts.notify.models import Delivery, DeliveryState, Receiver
from tests.journeys.operate.test_every_page import violations
from tests.support import query_counts
from tests.support import teams as made
from tests.support.browser import watch
from tests.support.console import browser, make_endpoint, person, program
from tests.support.http_stub import http_stub
from tests.support.people import client_of

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).parent / "query_counts.json"
PAGE, API = "/alerts/timeline/", "/api/v1/alert-history/"
LATE = {"alertname": "HighTTFT", "severity": "page", "endpoint": "demo", "namespace": "default"}
STALE = {"alertname": "IndexStale", "severity": "ticket", "endpoint": "demo", "worker": "demo-0"}
TIER = {"alertname": "L2NodeDown", "severity": "page", "pool": "shared"}
# Alert, state, begin and end in seconds before now.
PAST = (
    (LATE, "pending", 7500, 7200),
    (LATE, "firing", 7200, 3600),
    (LATE, "firing", 900, 0),
    (STALE, "firing", 40_000, 30_000),
    (STALE, "pending", 1200, 0),
    (TIER, "firing", 86_000, 80_000),
)


class FakePrometheus:
    """Answers queries on ALERTS from `past`, everything else with 2.5."""

    def __init__(self) -> None:
        self.past: Any = PAST
        self.now = time.time()

    def __call__(self, path: str, _body: bytes) -> Any:
        parts = urlsplit(path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        grid = [float(asked.get("time", self.now))]
        if parts.path.endswith("query_range"):
            start, end, step = (float(asked[key]) for key in ("start", "end", "step"))
            grid = [start + n * step for n in range(int((end - start) / step) + 1)]
        found = list(self.series(asked["query"], grid))
        if parts.path.endswith("query_range"):
            data = {"resultType": "matrix", "result": found}
        else:
            rows = [{"metric": one["metric"], "value": one["values"][-1]} for one in found]
            data = {"resultType": "vector", "result": rows}
        return 200, {"status": "success", "data": data}

    def series(self, query: str, grid: list[float]) -> Iterator[dict[str, Any]]:
        if "ALERTS" not in query:
            metric = {"namespace": "default", "endpoint": "demo"} if "up" not in query else {}
            yield {"metric": metric, "values": [[at, "2.5"] for at in grid]}
            return
        window = float(query.split("[")[1].split("s]")[0]) if "[" in query else 0.0
        for labels, state, begin, end in self.past:
            if "alertname=" in query and labels["alertname"] not in query:
                continue
            if "alertstate=" in query and f'alertstate="{state}"' not in query:
                continue
            first, last = self.now - begin, self.now - end if end else float("inf")
            times = [at for at in grid if first <= at and at - window <= last]
            value = str(first) if "FOR_STATE" in query else "1"
            metric = labels if "FOR_STATE" in query else {**labels, "alertstate": state}
            if times:
                yield {"metric": metric, "values": [[at, value] for at in times]}


@pytest.fixture
def prometheus(settings: Any) -> Iterator[FakePrometheus]:
    found = FakePrometheus()
    with http_stub({"/api/v1/query": found, "/api/v1/query_range": found}) as stub:
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=stub.url)
        yield found


def sent(alert: dict[str, str], ago_s: float, state: str = "sent", error: str = "") -> Delivery:
    one = {"status": "firing", "labels": alert, "endsAt": "0001-01-01T00:00:00Z"}
    row = Delivery.objects.create(
        receiver=Receiver.objects.get(),
        receiver_name="on-call",
        kind="webhook",
        title="[FIRING:1]",
        body={"alerts": [one], "commonLabels": alert},
        state=state,
        error=error,
    )
    Delivery.objects.filter(pk=row.pk).update(
        created_at=timezone.now() - timedelta(seconds=ago_s)
    )
    return row


def receiver(everything: bool = True) -> None:
    wish = {"name": "on-call", "kind": "email", "to": ["a@example.org"], "everything": everything}
    receivers.create(person("admin"), wish)


def opened(client: Any, alert: dict[str, str], ago_s: float, **more: str) -> str:
    at = str(int(time.time() - ago_s))
    asked = {"alert": alert["alertname"], "about": alert.get("endpoint", ""), "state": "firing"}
    return str(client.get(PAGE, {**asked, "at": at, **more}).text)


def test_look(chrome: Browser, live_server: Any, settings: Any, prometheus: FakePrometheus) -> None:
    make_endpoint("demo")
    receiver()
    sent(LATE, 850)
    sent(LATE, 7000, "failed", "hooks.example.org answered 500.")
    cookie = browser("operator").cookies[settings.SESSION_COOKIE_NAME]
    folder = Path(os.environ["SHOTS"])
    at = int(time.time() - 900)
    for width, theme in ((1280, "light"), (1280, "dark"), (390, "light"), (1920, "light")):
        it = watch(chrome, live_server.url, width=width, theme=theme)
        it.page.context.add_cookies(
            [{"name": cookie.key, "value": cookie.value, "url": live_server.url}]
        )
        for name, path in (
            ("timeline", f"{PAGE}?alert=HighTTFT&about=demo&state=firing&at={at}"),
            ("active", "/alerts/"),
            ("rules", "/alerts/rules/"),
            ("rule", "/alerts/rules/HighTTFT/"),
            ("receivers", "/alerts/receivers/"),
            ("notifications", "/alerts/history/"),
            ("silences", "/alerts/silences/"),
            ("ack", "/alerts/acknowledge/?alert=HighTTFT&endpoint=demo"),
        ):
            it.open(path)
            it.page.screenshot(path=str(folder / f"{name}-{width}-{theme}.png"), full_page=True)
            print(name, width, theme, it.overflows(), violations(it), it.complaints)
