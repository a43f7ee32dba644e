"""From Prometheus' alerts to due deliveries: groups, silences, resolution, unknown state."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.claims import take_claim
from dashboards.alerts.evaluation import firing_alerts as firing_module
from dashboards.alerts.evaluation.firing_alerts import FiringAlerts
from dashboards.alerts.notify import dispatcher, receivers, routes, silences
from dashboards.alerts.notify.models import (
    Delivery,
    DeliveryState,
    Dispatch,
    Group,
    SeenAlert,
    Silence,
)
from dashboards.prometheus.sources import selectors as connections
from endpoints.models import Endpoint
from tests.support import teams as made
from tests.support.console import make_endpoint, person
from tests.support.teams import OURS

pytestmark = pytest.mark.django_db
T0 = datetime(2026, 11, 21, 12, tzinfo=UTC)


class World:
    """Alerts in Prometheus and the current time."""

    def __init__(self) -> None:
        self.alerts: list[firing_module.FiringAlert] = []
        self.why = ""
        self.now = T0

    def fires(self, *names: str, endpoint: str = "demo", severity: str = "page") -> None:
        self.alerts = [
            firing_module.FiringAlert(
                name=name,
                endpoint=endpoint,
                worker="",
                severity=severity,
                since=T0,
                summary="it is slow",
                remedy="Look.",
                labels={"alertname": name, "endpoint": endpoint, "severity": severity},
            )
            for name in names
        ]

    def look(self, after_s: float = 0) -> list[Delivery]:
        """Return the deliveries created since the last pass."""
        known = set(Delivery.objects.values_list("pk", flat=True))
        self.now += timedelta(seconds=after_s)
        assert dispatcher.dispatch()
        return list(Delivery.objects.exclude(pk__in=known).order_by("created_at"))


@pytest.fixture
def alerting_world(monkeypatch: Any) -> Iterator[World]:
    found = World()

    def said(*_: Any) -> FiringAlerts:
        return FiringAlerts(why=found.why) if found.why else FiringAlerts(tuple(found.alerts))

    monkeypatch.setattr("dashboards.alerts.evaluation.firing_alerts.query_firing", said)
    monkeypatch.setattr(connections, "any_known", lambda: True)
    monkeypatch.setattr(timezone, "now", lambda: found.now)
    make_endpoint("demo")
    to(name="on-call")
    return found


def to(name: str, *matchers: str, **facts: Any) -> None:
    admin = person("admin")
    receivers.create(admin, {"name": name, "kind": "email", "to": [f"{name}@example.org"]})
    routes.create(admin, {"receiver": name, "matchers": list(matchers), **facts})


def marks(delivery: Delivery) -> list[tuple[str, str]]:
    return [(one["labels"]["alertname"], one["status"]) for one in delivery.body["alerts"]]


def test_alert_is_sent_once_repeated_and_resolved(alerting_world: World) -> None:
    assert alerting_world.look() == []
    alerting_world.fires("Slow")
    assert alerting_world.look() == []  # others of its group may follow
    (first,) = alerting_world.look(30)
    assert marks(first) == [("Slow", "firing")]
    assert first.title == "[FIRING:1] Slow demo"
    assert first.endpoint is not None
    assert first.body["alerts"][0]["annotations"]["summary"] == "demo: it is slow"
    assert alerting_world.look(10) == alerting_world.look(600) == []
    (again,) = alerting_world.look(4 * 3600)
    assert marks(again) == [("Slow", "firing")]
    alerting_world.alerts = []
    assert alerting_world.look(30) == []  # a restarted Prometheus has no alerts for some seconds
    assert SeenAlert.objects.get().ended_at is None
    (end,) = alerting_world.look(400)
    assert marks(end) == [("Slow", "resolved")]
    assert not Group.objects.exists()
    assert alerting_world.look(4 * 3600) == []


def test_alerts_of_one_group_are_sent_together(alerting_world: World) -> None:
    routes.change(person("admin"), _route().pk, {"group_by": "endpoint"})
    alerting_world.fires("Slow", "Broken")
    alerting_world.look()
    (one,) = alerting_world.look(30)
    assert marks(one) == [("Broken", "firing"), ("Slow", "firing")]
    alerting_world.fires("Slow", "Broken", "Third")
    assert alerting_world.look(60) == []
    (more,) = alerting_world.look(300)
    assert len(more.body["alerts"]) == 3
    first = Delivery.objects.get(pk=one.pk)
    assert (first.state, first.ended_at is not None) == (DeliveryState.DROPPED, True)  # replaced


def _route() -> Any:
    return dispatcher.Route.objects.get()


def test_routes_match_labels_and_do_not_hide_each_other(alerting_world: World) -> None:
    to("pages", "severity=page")
    to("tickets", "severity=ticket")
    to("ours", "team=ours")
    alerting_world.fires("Slow")
    alerting_world.look()
    assert {one.receiver_name for one in alerting_world.look(30)} == {"on-call", "pages"}


def test_routes_can_match_the_team_of_an_endpoint(alerting_world: World) -> None:
    teams = made.teams()
    make_endpoint(OURS)
    Endpoint.objects.filter(name=OURS).update(team=teams.ours)
    to("ours", "team=ours")
    to("others", "team!=ours")
    alerting_world.fires("Slow", endpoint=OURS)
    alerting_world.look()
    found = alerting_world.look(30)
    assert {one.receiver_name for one in found} == {"on-call", "ours"}
    assert found[0].body["commonLabels"]["team"] == "ours"


def test_silence_stops_messages_until_it_ends(alerting_world: World) -> None:
    wish = {"matchers": "alertname=Slow", "duration": "1h", "comment": "known"}
    silences.create(person("operator"), wish)
    alerting_world.fires("Slow", "Broken")
    alerting_world.look()
    (one,) = alerting_world.look(30)
    assert marks(one) == [("Broken", "firing")]
    silence = Silence.objects.get()
    silences.expire(person("operator"), silence)
    assert [marks(one) for one in alerting_world.look(1)] == [[("Slow", "firing")]]  # delayed
    silences.create(person("operator"), wish)
    alerting_world.alerts = []
    alerting_world.look(30)
    reported = [mark for one in alerting_world.look(400) for mark in marks(one)]
    # receivers got the firing alert
    assert sorted(reported) == [("Broken", "resolved"), ("Slow", "resolved")]


def test_future_silence_starts_later(alerting_world: World) -> None:
    later = (T0 + timedelta(hours=1)).isoformat()
    wish = {"matchers": "alertname=Slow", "starts_at": later, "comment": "works"}
    silences.create(person("operator"), wish)
    alerting_world.fires("Slow")
    alerting_world.look()
    assert len(alerting_world.look(30)) == 1


def test_unknown_state_is_no_resolution_and_is_reported_after_a_while(
    alerting_world: World,
) -> None:
    alerting_world.fires("Slow")
    alerting_world.look()
    alerting_world.look(30)
    alerting_world.why = "Prometheus at http://p:9090 is unreachable."
    assert alerting_world.look(10) == []
    assert Dispatch.objects.get().reason == "PrometheusAway"
    alerting_world.look(115)
    (one,) = [*alerting_world.look(10), *alerting_world.look(35)]
    assert marks(one) == [("NoMetrics", "firing")]
    assert "is unreachable" in one.body["alerts"][0]["annotations"]["description"]
    assert alerting_world.look(3600) == []
    assert SeenAlert.objects.get(labels__alertname="Slow").ended_at is None
    alerting_world.why = ""
    alerting_world.look(10)
    (back,) = [*alerting_world.look(70), *alerting_world.look(300)]
    assert marks(back) == [("NoMetrics", "resolved")]
    assert Dispatch.objects.get().unknown_since is None


def test_without_prometheus_no_alert_is_sent(alerting_world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(connections, "any_known", lambda: False)
    alerting_world.fires("Slow")
    assert alerting_world.look() == alerting_world.look(600) == []
    assert Dispatch.objects.get().reason == "NoPrometheus"


def test_one_process_evaluates_at_a_time(alerting_world: World) -> None:
    alerting_world.look()
    taken = take_claim(Dispatch, 1, ttl_s=60)
    assert taken is not None
    assert dispatcher.dispatch() is False
    taken.release(0)
    assert dispatcher.dispatch() is True


def test_evaluation_that_lost_its_claim_sends_nothing(
    alerting_world: World, monkeypatch: Any
) -> None:
    alerting_world.fires("Slow")
    alerting_world.look()
    alerting_world.now += timedelta(seconds=30)
    read = dispatcher.read_firing

    def slow() -> Any:
        found = read()
        Dispatch.objects.update(claim_token="another's")
        return found

    monkeypatch.setattr("dashboards.alerts.notify.dispatcher.read_firing", slow)
    dispatcher.dispatch()
    assert not Delivery.objects.exists()


def test_interrupted_evaluation_is_repeated(alerting_world: World, monkeypatch: Any) -> None:
    alerting_world.fires("Slow", "Broken")
    alerting_world.look()
    alerting_world.now += timedelta(seconds=30)
    with monkeypatch.context() as broken:
        broken.setattr(dispatcher, "_settle", _dies)
        with pytest.raises(RuntimeError):
            dispatcher.dispatch()
    assert not Delivery.objects.exists()
    assert not dispatcher.dispatch()  # until its claim expires
    assert len(alerting_world.look(61)) == 2


def _dies(*_: Any) -> None:
    raise RuntimeError("killed")


def test_evaluation_needs_a_constant_number_of_queries(
    alerting_world: World, django_assert_max_num_queries: Any
) -> None:
    alerting_world.fires(*(f"A{n}" for n in range(40)))
    alerting_world.look()
    with django_assert_max_num_queries(17):
        dispatcher.dispatch()
