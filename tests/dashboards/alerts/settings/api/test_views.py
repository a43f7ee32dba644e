"""Rules and alerts over REST: permissions, validation, and the resulting file."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied

from console.accounts.models import Membership, Team
from console.audit.models import AuditEvent
from dashboards.alerts.rules.rule_file import RULES
from dashboards.alerts.settings import actions
from dashboards.alerts.settings.models import OwnRule
from tests.support.console import make_endpoint, person, program
from tests.support.http_stub import Stub, http_stub
from tests.support.ports import free_port

pytestmark = pytest.mark.django_db
ALL = "/api/v1/alert-rules/"
ONE = f"{ALL}HighTTFT/"
MINE = "/api/v1/endpoints/demo/alert-rules/HighTTFT/"
OWN = {"name": "LongQueue", "expr": "up == 0", "summary": "something is long", "for": "2m"}


def prometheus(settings: Any, url: str) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)


def file_of(who: Any) -> dict[str, list[dict[str, Any]]]:
    text = who.get("/api/v1/alert-rule-file/").json()["rule_file"]
    return {
        group["name"]: group["rules"]
        for group in yaml.load(text, Loader=yaml.CSafeLoader)["groups"]
    }


def test_threshold_is_set_globally_and_per_endpoint_and_reset() -> None:
    make_endpoint("demo")
    operator = program("operator")
    assert len(operator.get(f"{ALL}?page_size=100").json()["results"]) == len(RULES)
    read = operator.get(ONE)
    assert read.json()["generation"] == 0
    done = operator.patch(
        ONE, {"threshold": 3, "for": "20m"}, headers={"If-Match": read.headers["ETag"]}
    )
    assert done.status_code == 200, done.json()
    assert (done.json()["for_s"], done.json()["changed_by"]) == (1200, "one-operator")
    assert "above 3 s" in done.json()["summary"]
    stale = operator.patch(ONE, {"threshold": 4}, headers={"If-Match": read.headers["ETag"]})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    mine = operator.patch(MINE, {"threshold": 9, "severity": "page"})
    assert mine.json()["own"] == {"threshold": 9.0, "severity": "page"}
    assert mine.json()["for_s"] == 1200
    late = [one for one in file_of(operator)["emberline-engines"] if one["alert"] == "HighTTFT"]
    assert [(one["for"], one["labels"]["severity"]) for one in late] == [
        *(("20m", "ticket"), ("20m", "page"))
    ]
    assert operator.delete(MINE).json()["own"] == {}
    back = operator.delete(ONE).json()
    assert (back["changed"], back["for_s"], back["generation"]) == (False, 600, 2)
    trail = AuditEvent.objects.filter(verb="alert-rule.update").values_list("target", flat=True)
    assert list(trail.order_by("pk")) == [
        *("alert-rule/HighTTFT", "endpoint/demo", "endpoint/demo", "alert-rule/HighTTFT")
    ]


@pytest.mark.parametrize(
    ("path", "fields", "status", "field"),
    [
        (ONE, {"threshold": 0}, 400, "threshold"),
        (ONE, {"threshold": "soon"}, 400, "threshold"),
        (ONE, {"threshold": True}, 400, "threshold"),
        (ONE, {"window": 90.5}, 400, "window"),
        (ONE, {"for": "8d"}, 400, "for"),
        (ONE, {"for": -1}, 400, "for"),
        (ONE, {"severity": "loud"}, 400, "severity"),
        (ONE, {"enabled": "perhaps"}, 400, "enabled"),
        (ONE, {"treshold": 1}, 400, "treshold"),
        (f"{ALL}TTFTBudgetBurnFast/", {"target": 1.6}, 400, "target"),
        (f"{ALL}Nothing/", {"threshold": 1}, 404, "rule"),
        ("/api/v1/endpoints/demo/alert-rules/L2SlowGet/", {"threshold": 1}, 400, "endpoint"),
        ("/api/v1/endpoints/nope/alert-rules/HighTTFT/", {"threshold": 1}, 404, None),
    ],
)
def test_invalid_setting_is_rejected_by_field(
    path: str, fields: Any, status: int, field: str | None
) -> None:
    make_endpoint("demo")
    answer = program("operator").patch(path, fields)
    assert (answer.status_code, answer.json()["field"]) == (status, field), answer.json()
    assert program("viewer").get(ONE).json()["generation"] == 0


def test_only_operators_edit_and_team_operators_only_their_endpoints() -> None:
    endpoint = make_endpoint("demo")
    make_endpoint("secret")
    team = Team.objects.create(slug="chat", name="Chat")
    type(endpoint).objects.filter(pk=endpoint.pk).update(team=team)
    member = program("member")
    Membership.objects.create(user=person("member"), team=team, role="operator")
    assert program("viewer").patch(ONE, {"threshold": 3}).status_code == 403
    assert program("viewer").patch(MINE, {"threshold": 3}).status_code == 403
    assert member.patch(ONE, {"threshold": 3}).status_code == 403
    assert member.patch(MINE, {"threshold": 3}).status_code == 200
    theirs = MINE.replace("demo", "secret")
    assert member.patch(theirs, {"threshold": 3}).status_code == 404
    program("operator").patch(theirs, {"threshold": 7})
    OwnRule.objects.create(name="LongQueue", expr='up{endpoint_name="secret"}', summary="secret")
    for path in (ALL, ONE, MINE, "/api/v1/alert-rule-file/", f"{ALL}LongQueue/"):
        assert "secret" not in member.get(path, {"page_size": 100}).content.decode(), path
    assert get_user_model().objects.count() == 3  # all users above


def test_actions_check_the_permission() -> None:
    """Pages and commands call them without REST's permission check."""
    make_endpoint("demo")
    OwnRule.objects.create(name="LongQueue", expr="up", summary="x")
    viewer, fields = person("viewer"), {"threshold": 3}
    for refused in (
        lambda: actions.set_rule(viewer, "HighTTFT", "", fields),
        lambda: actions.set_rule(viewer, "HighTTFT", "demo", fields),
        lambda: actions.reset_rule(viewer, "HighTTFT", ""),
        lambda: actions.create_user_rule(viewer, {"name": "Mine", **OWN}),
        lambda: actions.change_user_rule(viewer, "LongQueue", {"enabled": False}),
        lambda: actions.delete_user_rule(viewer, "LongQueue"),
    ):
        with pytest.raises(PermissionDenied):
            refused()


def answering(status: int, body: Any) -> Any:
    return http_stub({"/api/v1/query": (status, body)})


def found(*series: dict[str, str]) -> dict[str, Any]:
    result = [{"metric": one, "value": [1, "1"]} for one in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_custom_rule_is_validated_by_prometheus_first(settings: Any) -> None:
    operator = program("operator")
    prometheus(settings, f"http://127.0.0.1:{free_port()}")
    away = operator.post(ALL, OWN)
    assert (away.status_code, away.json()["code"]) == (503, "not_checked")
    stub: Stub
    with answering(
        400, {"status": "error", "errorType": "bad_data", "error": "parse error: no"}
    ) as stub:
        prometheus(settings, stub.url)
        refused = operator.post(ALL, OWN)
        assert (refused.status_code, refused.json()["field"]) == (400, "expr")
        assert "parse error: no" in refused.json()["detail"]
    assert not OwnRule.objects.exists()
    with answering(200, found()) as stub:
        prometheus(settings, stub.url)
        made = operator.post(ALL, OWN)
        assert (made.status_code, made.json()["origin"]) == (201, "own")
        assert operator.post(ALL, OWN).json()["code"] == "taken"
        assert operator.post(ALL, {**OWN, "name": "HighTTFT"}).json()["code"] == "taken"
        assert operator.post(ALL, {**OWN, "name": "no good"}).json()["field"] == "name"
        assert operator.post(ALL, {**OWN, "name": "Else", "expr": ""}).json()["field"] == "expr"
        one = f"{ALL}LongQueue/"
        assert operator.patch(one, {"expr": "up == 1"}).json()["expr"] == "up == 1"
        assert operator.patch(one, {"summary": ""}).json()["field"] == "summary"
    (rule,) = file_of(operator)["emberline-own"]
    assert (rule["alert"], rule["for"], rule["expr"]) == ("LongQueue", "2m", "up == 1")
    assert program("viewer").post(ALL, OWN).status_code == 403
    assert program("viewer").delete(one).status_code == 403
    assert operator.delete(one).status_code == 204
    assert operator.get(one).status_code == 404
    assert "emberline-own" not in file_of(operator)


def test_alerts_have_their_value_and_threshold_text(settings: Any) -> None:
    make_endpoint("demo")
    program("operator").patch(MINE, {"threshold": 9})
    labels = {"alertname": "HighTTFT", "severity": "ticket", "namespace": "default"}
    mine = {"endpoint": "demo", "endpoint_name": "demo"}
    alert = {**labels, **mine, "alertstate": "pending"}

    def answer(path: str, _body: bytes) -> Any:
        if "ALERTS_FOR_STATE" in path:
            series = {"metric": {**labels, **mine}, "value": [1, "1700000000"]}
        elif "ALERTS" in path:
            series = {"metric": alert, "value": [1, "1"]}
        else:
            whose = {"namespace": "default", "endpoint_name": "demo"}
            series = {"metric": whose, "value": [1, "12.5"]}
        return 200, {"status": "success", "data": {"resultType": "vector", "result": [series]}}

    with http_stub({"/api/v1/query": answer}) as stub:
        prometheus(settings, stub.url)
        (one,) = program("viewer").get("/api/v1/alerts/").json()["results"]
        assert (one["state"], one["value"], one["endpoint"]) == ("pending", 12.5, "demo")
        assert "above 9 s" in one["summary"]
        assert one["since"].startswith("2023-11-14")
        assert program("viewer").get("/api/v1/alerts/?state=firing").json()["results"] == []
        assert "endpoint%3D%22demo%22" in str(stub.seen)  # query with its own setting
    prometheus(settings, "")
    away = program("viewer").get("/api/v1/alerts/")
    assert (away.status_code, away.json()["code"]) == (409, "not_known")
