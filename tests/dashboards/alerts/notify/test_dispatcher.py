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
    Route,
    SeenAlert,
    Silence,
    SilenceKind,
)
from dashboards.prometheus.sources import selectors as connections
from endpoints.models import Endpoint
from tests.support import teams as made
from tests.support.console import make_endpoint, person
from tests.support.teams import OURS

pytestmark = pytest.mark.django_db
T0 = datetime(2026, 11, 21, 12, tzinfo=UTC)


class SimulatedAlerts:
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

    def dispatch(self, after_s: float = 0) -> list[Delivery]:
        """Return the deliveries created since the last pass."""
        known = set(Delivery.objects.values_list("pk", flat=True))
        self.now += timedelta(seconds=after_s)
        assert dispatcher.dispatch()
        return list(Delivery.objects.exclude(pk__in=known).order_by("created_at"))


@pytest.fixture
def simulated_alerts(monkeypatch: Any) -> Iterator[SimulatedAlerts]:
    simulated = SimulatedAlerts()

    def query_firing(*_: Any) -> FiringAlerts:
        return (
            FiringAlerts(why=simulated.why)
            if simulated.why
            else FiringAlerts(tuple(simulated.alerts))
        )

    monkeypatch.setattr("dashboards.alerts.evaluation.firing_alerts.query_firing", query_firing)
    monkeypatch.setattr(connections, "any_known", lambda: True)
    monkeypatch.setattr(timezone, "now", lambda: simulated.now)
    make_endpoint("demo")
    to(name="on-call")
    return simulated


def to(name: str, *matchers: str, **facts: Any) -> None:
    admin = person("admin")
    receivers.create(admin, {"name": name, "kind": "email", "to": [f"{name}@example.org"]})
    routes.create(admin, {"receiver": name, "matchers": list(matchers), **facts})


def marks(delivery: Delivery) -> list[tuple[str, str]]:
    return [(one["labels"]["alertname"], one["status"]) for one in delivery.body["alerts"]]


def test_alert_is_sent_once_repeated_and_resolved(simulated_alerts: SimulatedAlerts) -> None:
    assert simulated_alerts.dispatch() == []
    simulated_alerts.fires("Slow")
    assert simulated_alerts.dispatch() == []  # others of its group may follow
    (first,) = simulated_alerts.dispatch(30)
    assert marks(first) == [("Slow", "firing")]
    assert first.title == "[FIRING:1] Slow demo"
    assert first.endpoint is not None
    assert first.body["alerts"][0]["annotations"]["summary"] == "demo: it is slow"
    assert simulated_alerts.dispatch(10) == simulated_alerts.dispatch(600) == []
    (again,) = simulated_alerts.dispatch(4 * 3600)
    assert marks(again) == [("Slow", "firing")]
    simulated_alerts.alerts = []
    assert (
        simulated_alerts.dispatch(30) == []
    )  # a restarted Prometheus has no alerts for some seconds
    assert SeenAlert.objects.get().ended_at is None
    (end,) = simulated_alerts.dispatch(400)
    assert marks(end) == [("Slow", "resolved")]
    assert not Group.objects.exists()
    assert simulated_alerts.dispatch(4 * 3600) == []


def test_alerts_of_one_group_are_sent_together(simulated_alerts: SimulatedAlerts) -> None:
    routes.change(person("admin"), _route().pk, {"group_by": "endpoint"})
    simulated_alerts.fires("Slow", "Broken")
    simulated_alerts.dispatch()
    (one,) = simulated_alerts.dispatch(30)
    assert marks(one) == [("Broken", "firing"), ("Slow", "firing")]
    simulated_alerts.fires("Slow", "Broken", "Third")
    assert simulated_alerts.dispatch(60) == []
    (more,) = simulated_alerts.dispatch(300)
    assert len(more.body["alerts"]) == 3
    first = Delivery.objects.get(pk=one.pk)
    assert (first.state, first.ended_at is not None) == (DeliveryState.DROPPED, True)  # replaced


def _route() -> Any:
    return dispatcher.Route.objects.get()


def test_routes_match_labels_and_do_not_hide_each_other(simulated_alerts: SimulatedAlerts) -> None:
    to("pages", "severity=page")
    to("tickets", "severity=ticket")
    to("ours", "team=ours")
    simulated_alerts.fires("Slow")
    simulated_alerts.dispatch()
    assert {one.receiver_name for one in simulated_alerts.dispatch(30)} == {"on-call", "pages"}


def test_routes_can_match_the_team_of_an_endpoint(simulated_alerts: SimulatedAlerts) -> None:
    teams = made.teams()
    make_endpoint(OURS)
    Endpoint.objects.filter(name=OURS).update(team=teams.ours)
    to("ours", "team=ours")
    to("others", "team!=ours")
    simulated_alerts.fires("Slow", endpoint=OURS)
    simulated_alerts.dispatch()
    found = simulated_alerts.dispatch(30)
    assert {one.receiver_name for one in found} == {"on-call", "ours"}
    assert found[0].body["commonLabels"]["team"] == "ours"


def test_silence_stops_messages_until_it_ends(simulated_alerts: SimulatedAlerts) -> None:
    fields = {"matchers": "alertname=Slow", "duration": "1h", "comment": "known"}
    silences.create(person("operator"), fields)
    simulated_alerts.fires("Slow", "Broken")
    simulated_alerts.dispatch()
    (one,) = simulated_alerts.dispatch(30)
    assert marks(one) == [("Broken", "firing")]
    silence = Silence.objects.get()
    silences.expire(person("operator"), silence)
    assert [marks(one) for one in simulated_alerts.dispatch(1)] == [[("Slow", "firing")]]  # delayed
    silences.create(person("operator"), fields)
    simulated_alerts.alerts = []
    simulated_alerts.dispatch(30)
    reported = [mark for one in simulated_alerts.dispatch(400) for mark in marks(one)]
    # receivers got the firing alert
    assert sorted(reported) == [("Broken", "resolved"), ("Slow", "resolved")]


def test_future_silence_starts_later(simulated_alerts: SimulatedAlerts) -> None:
    later = (T0 + timedelta(hours=1)).isoformat()
    fields = {"matchers": "alertname=Slow", "starts_at": later, "comment": "works"}
    silences.create(person("operator"), fields)
    simulated_alerts.fires("Slow")
    simulated_alerts.dispatch()
    assert len(simulated_alerts.dispatch(30)) == 1


def test_unknown_state_is_no_resolution_and_is_reported_after_a_while(
    simulated_alerts: SimulatedAlerts,
) -> None:
    simulated_alerts.fires("Slow")
    simulated_alerts.dispatch()
    simulated_alerts.dispatch(30)
    simulated_alerts.why = "Prometheus at http://p:9090 is unreachable."
    assert simulated_alerts.dispatch(10) == []
    assert Dispatch.objects.get().reason == "PrometheusAway"
    simulated_alerts.dispatch(115)
    (one,) = [*simulated_alerts.dispatch(10), *simulated_alerts.dispatch(35)]
    assert marks(one) == [("NoMetrics", "firing")]
    assert "is unreachable" in one.body["alerts"][0]["annotations"]["description"]
    assert simulated_alerts.dispatch(3600) == []
    assert SeenAlert.objects.get(labels__alertname="Slow").ended_at is None
    simulated_alerts.why = ""
    simulated_alerts.dispatch(10)
    (back,) = [*simulated_alerts.dispatch(70), *simulated_alerts.dispatch(300)]
    assert marks(back) == [("NoMetrics", "resolved")]
    assert Dispatch.objects.get().unknown_since is None


def test_without_prometheus_no_alert_is_sent(
    simulated_alerts: SimulatedAlerts, monkeypatch: Any
) -> None:
    monkeypatch.setattr(connections, "any_known", lambda: False)
    simulated_alerts.fires("Slow")
    assert simulated_alerts.dispatch() == simulated_alerts.dispatch(600) == []
    assert Dispatch.objects.get().reason == "NoPrometheus"


def test_one_process_evaluates_at_a_time(simulated_alerts: SimulatedAlerts) -> None:
    simulated_alerts.dispatch()
    taken = take_claim(Dispatch, 1, ttl_s=60)
    assert taken is not None
    assert dispatcher.dispatch() is False
    taken.release(0)
    assert dispatcher.dispatch() is True


def test_evaluation_that_lost_its_claim_sends_nothing(
    simulated_alerts: SimulatedAlerts, monkeypatch: Any
) -> None:
    simulated_alerts.fires("Slow")
    simulated_alerts.dispatch()
    simulated_alerts.now += timedelta(seconds=30)
    read = dispatcher.read_firing

    def slow() -> Any:
        found = read()
        Dispatch.objects.update(claim_token="another's")
        return found

    monkeypatch.setattr("dashboards.alerts.notify.dispatcher.read_firing", slow)
    dispatcher.dispatch()
    assert not Delivery.objects.exists()


def test_interrupted_evaluation_is_repeated(
    simulated_alerts: SimulatedAlerts, monkeypatch: Any
) -> None:
    simulated_alerts.fires("Slow", "Broken")
    simulated_alerts.dispatch()
    simulated_alerts.now += timedelta(seconds=30)
    with monkeypatch.context() as broken:
        broken.setattr(dispatcher, "_settle", _dies)
        with pytest.raises(RuntimeError):
            dispatcher.dispatch()
    assert not Delivery.objects.exists()
    assert not dispatcher.dispatch()  # until its claim expires
    assert len(simulated_alerts.dispatch(61)) == 2


def _dies(*_: Any) -> None:
    raise RuntimeError("killed")


def test_nothing_is_written_while_nothing_fires(simulated_alerts: SimulatedAlerts) -> None:
    simulated_alerts.dispatch()
    begun = Dispatch.objects.get().looked_at
    assert simulated_alerts.dispatch(after_s=10) == []
    assert Dispatch.objects.get().looked_at == begun
    simulated_alerts.dispatch(after_s=50)
    assert Dispatch.objects.get().looked_at == simulated_alerts.now, "once a minute"


@pytest.mark.parametrize("event", ["fires", "unknown", "standing", "group", "acknowledged"])
def test_a_change_after_quiet_passes_is_evaluated(
    simulated_alerts: SimulatedAlerts, event: str
) -> None:
    simulated_alerts.dispatch()
    simulated_alerts.dispatch(after_s=10)
    if event == "fires":
        simulated_alerts.fires("A")
    elif event == "unknown":
        simulated_alerts.why = "no answer"
    elif event == "standing":
        SeenAlert.objects.create(fingerprint="f", labels={}, started_at=T0, seen_at=T0)
    elif event == "group":
        Group.objects.create(route=Route.objects.get(), key="k", labels={}, due_at=T0)
    else:
        until = simulated_alerts.now + timedelta(hours=1)
        kind = SilenceKind.ACKNOWLEDGEMENT
        Silence.objects.create(kind=kind, matchers=[], ends_at=until, comment="-", author="-")
    simulated_alerts.dispatch(after_s=10)
    assert Dispatch.objects.get().looked_at == simulated_alerts.now


def test_evaluation_needs_a_constant_number_of_queries(
    simulated_alerts: SimulatedAlerts, django_assert_max_num_queries: Any
) -> None:
    simulated_alerts.fires(*(f"A{n}" for n in range(40)))
    simulated_alerts.dispatch()
    with django_assert_max_num_queries(19):
        dispatcher.dispatch()
