"""Pages of alerts: content, permissions, validation."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone
from django.utils.html import escape

from dashboards.alerts.alertmanager.models import AlertRecord
from dashboards.alerts.evaluation.history import query_history
from dashboards.alerts.rules.rule_file import BY_NAME, DEFAULT_SETTINGS, GROUPS, RULES, UserRule
from dashboards.alerts.rules.runbooks import STEPS
from dashboards.alerts.settings.models import OwnRule, RuleFile, RuleSetting
from dashboards.alerts.settings.pages.alerts import RULES_PER_PAGE
from dashboards.boards.page import rule_url
from dashboards.boards.panels import BOARDS
from dashboards.boards.queries import Scope
from dashboards.prometheus.http.client import Fault, FaultKind, QueryResult, Series
from tests.support import query_counts
from tests.support.console import browser, make_endpoint
from tests.support.http_stub import http_stub
from tests.support.prometheus import PROMTOOL

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).parent / "query_counts.json"
ONE = "/alerts/rules/HighTTFT/"
MINE = UserRule("Mine", "queue > 3", 60, "page", "too many wait")
LABELS = {"alertname": "HighTTFT", "severity": "page", "endpoint": "demo", "namespace": "default"}


def answers(path: str, _body: bytes) -> Any:
    """One firing and one pending alert, and their values."""
    if "ALERTS_FOR_STATE" in path:
        found = [{"metric": LABELS, "value": [1, "1700000000"]}]
    elif "ALERTS" in path:
        worker = {"endpoint": "demo", "worker": "demo-worker-0", "severity": "ticket"}
        found = [
            {"metric": {**LABELS, "alertstate": "firing"}, "value": [1, "1"]},
            {
                "metric": {**worker, "alertname": "IndexStale", "alertstate": "pending"},
                "value": [1, "1"],
            },
        ]
    else:
        found = [{"metric": {"namespace": "default"}, "value": [1, "2.5"]}]
    return 200, {"status": "success", "data": {"resultType": "vector", "result": found}}


def test_firing_alert_links_to_rule_board_and_silence(settings: Any) -> None:
    make_endpoint("demo")
    with http_stub({"/api/v1/query": answers}) as stub:
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=stub.url)
        viewer = browser("viewer")
        assert "/alerts/silences/new/" not in viewer.get("/alerts/").text
        text = browser("operator").get("/alerts/").text
        assert text.index("HighTTFT") < text.index("IndexStale")
        assert 'data-state="firing"' in text
        assert 'data-state="pending"' in text
        assert "2.5 s" in text
        assert 'href="/alerts/rules/HighTTFT/"' in text
        assert "/dashboards/endpoints/demo/?from=1699998200&amp;to=1700005400" in text
        assert "/alerts/silences/new/?alertname=HighTTFT&amp;endpoint=demo" in text
        assert "/alerts/acknowledge/?alert=HighTTFT&amp;endpoint=demo" in text
        assert "/alerts/acknowledge/?alert=IndexStale" not in text  # pending
        assert 'aria-current="page"' in text
        part = viewer.get("/alerts/", headers={"HX-Request": "true"}).text
        assert "<html" not in part
        assert "1 firing" in viewer.get("/alerts/rules/?q=ttft").text


def test_many_alerts_have_pages(settings: Any) -> None:
    def many(path: str, _body: bytes) -> Any:
        firing = {**LABELS, "alertstate": "firing"}
        found = [{"metric": {**firing, "pod": f"p{n}"}, "value": [1, "1"]} for n in range(120)]
        if "ALERTS" not in path:
            found = []
        return 200, {"status": "success", "data": {"resultType": "vector", "result": found}}

    with http_stub({"/api/v1/query": many}) as stub:
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=stub.url)
        viewer = browser("viewer")
        assert viewer.get("/alerts/").text.count("data-alert=") == 50
        last = viewer.get("/alerts/?page=3").text
        assert last.count("data-alert=") == 20
        assert "120 firing, 120 active" in last
        assert 'hx-get="/alerts/?page=3"' in last
        assert 'href="/alerts/?page=2"' in last


def test_pages_report_missing_prometheus_and_list_rules(settings: Any) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url="")
    viewer = browser("viewer")
    assert "Alert state unknown" in viewer.get("/alerts/").text
    pages = range(1, -(-len(RULES) // RULES_PER_PAGE) + 1)
    text = "".join(viewer.get(f"/alerts/rules/?page={page}").text for page in pages)
    for rule in RULES:
        assert text.count(f'data-rule="{rule.name}"') == 1
    assert "kube-state-metrics" in text
    assert "No Prometheus configured" in viewer.get(f"{ONE}past/").text
    for rule in [rules[0] for rules in GROUPS.values()]:
        page = viewer.get(f"/alerts/rules/{rule.name}/")
        assert page.status_code == 200
        assert "Runbook" in page.text
    assert viewer.get("/alerts/rules/Nothing/").status_code == 404
    assert set(STEPS) == set(BY_NAME)


def test_rules_are_filtered_by_group_and_text() -> None:
    viewer = browser("viewer")
    few = viewer.get("/alerts/rules/?group=emberline-cost").text
    assert few.count("data-rule=") == len(GROUPS["emberline-cost"])
    assert viewer.get("/alerts/rules/?q=ttft").text.count("data-rule=") == 2
    assert "No matching rules" in viewer.get("/alerts/rules/?q=nothing&group=%00").text
    assert viewer.get("/alerts/rules/").text.count("data-rule=") == 15


def test_rule_is_configured_globally_and_per_endpoint_on_its_page() -> None:
    make_endpoint("demo")
    operator = browser("operator")
    empty = {"window": "", "traffic": "", "severity": "", "enabled": ""}
    done = operator.post(ONE, {**empty, "threshold": "3", "for": "20m"}, follow=True)
    assert "HighTTFT saved" in done.text
    assert "TTFT p95 is above 3 s" in done.text
    wrong = operator.post(ONE, {**empty, "threshold": "-1", "for": "soon"})
    assert wrong.status_code == 400
    assert "Value out of range. Range:" in wrong.text
    assert "from 0s to 1w" in wrong.text
    assert operator.get(f"{ONE}?endpoint=demo").url == f"{ONE}endpoints/demo/"
    assert operator.get(f"{ONE}?endpoint=no+name").status_code == 200
    mine = f"{ONE}endpoints/demo/"
    assert 'placeholder="3"' in operator.get(mine).text  # platform-wide value
    operator.post(mine, {**empty, "threshold": "9", "for": "", "enabled": "off"})
    row = RuleSetting.objects.get(endpoint__name="demo")
    assert (row.values, row.enabled, row.lasting_s) == ({"threshold": 9.0}, False, None)
    text = operator.get("/alerts/rules/?q=ttft").text
    assert "1 endpoint override" in text
    groups = yaml.load(operator.get("/alerts/rules.yml").content, Loader=yaml.CSafeLoader)["groups"]
    late = [r for g in groups for r in g["rules"] if r["alert"] == "HighTTFT"]
    assert [rule["for"] for rule in late] == ["20m"]
    assert 'endpoint!="demo"' in late[0]["expr"]
    made = yaml.load(operator.get("/alerts/prometheusrule.yml").content, Loader=yaml.CSafeLoader)
    assert (made["kind"], made["spec"]["groups"]) == ("PrometheusRule", groups)
    operator.post(f"{mine}reset/")
    operator.post(f"{ONE}reset/")
    assert not [row for row in RuleSetting.objects.all() if row.values or row.lasting_s]
    assert operator.get("/alerts/rules/L2SlowGet/endpoints/demo/").status_code == 404


def test_viewers_cannot_edit() -> None:
    make_endpoint("demo")
    viewer = browser("viewer")
    assert 'type="submit" formaction' not in viewer.get(ONE).text
    for path in (ONE, f"{ONE}reset/", f"{ONE}endpoints/demo/", f"{ONE}endpoints/demo/reset/"):
        assert viewer.post(path, {"threshold": "3"}).status_code == 403, path
    assert viewer.get("/alerts/rules/new/").status_code == 403
    assert not RuleSetting.objects.exists()


def test_custom_rule_is_created_edited_and_deleted_on_pages(settings: Any) -> None:
    operator = browser("operator")
    good = {"name": "TooQuiet", "expr": "up == 0", "summary": "x is y", "for": "2m"}
    fields = {**good, "remedy": "", "severity": "page", "enabled": "on"}
    with http_stub({"/api/v1/query": answers}) as stub:
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=stub.url)
        wrong = operator.post("/alerts/rules/new/", {**fields, "summary": ""})
        assert (wrong.status_code, "This field is required." in wrong.text) == (400, True)
        done = operator.post("/alerts/rules/new/", fields, follow=True)
        assert "TooQuiet created" in done.text
        page = "/alerts/rules/TooQuiet/"
        operator.post(page, {**fields, "summary": "another", "enabled": ""})
        row = OwnRule.objects.get()
        assert (row.summary, row.enabled, row.generation) == ("another", False, 2)
        assert operator.get(f"{page}past/").status_code == 200
    assert operator.post(f"{page}delete/").url == "/alerts/rules/"
    assert not OwnRule.objects.exists()
    assert operator.post("/alerts/rules/HighTTFT/delete/").status_code == 404


def test_rejected_rule_file_is_reported_on_the_list() -> None:
    RuleFile.objects.create(state="refused", message="promtool: no")
    text = browser("viewer").get("/alerts/rules/").text
    assert "rejected the latest rules" in text
    assert "promtool: no" in text


class StubPrometheus:
    """Values of one rule's history."""

    def __init__(self, value: Any = (), fault: Fault | None = None) -> None:
        self.value, self.fault = value, fault
        self.questions: dict[str, str] = {}

    def ask(self, questions: Any) -> dict[str, QueryResult]:
        self.questions = {key: one.query for key, one in questions.items()}
        window = next(iter(questions.values())).window

        def series(found: Any) -> tuple[Series, ...]:
            return tuple(
                Series(labels, (*values, *([None] * (window.points - len(values)))))
                for labels, values in found
            )

        answer = QueryResult(fault=self.fault) if self.fault else QueryResult(series(self.value))
        return {"value": answer}


def test_rule_history_has_a_series_with_its_threshold() -> None:
    whose = (("endpoint", "demo"), ("endpoint_name", "demo"), ("namespace", "default"))
    prometheus = StubPrometheus([(whose, (1.0, 3.0, 2.5))])
    found = query_history(prometheus, BY_NAME["HighTTFT"], Scope("demo"), DEFAULT_SETTINGS, "1h")
    assert found.drawing.chart is not None
    assert [line.label for line in found.drawing.chart.lines] == ["demo", "Threshold"]
    assert "2.5 s" in found.drawing.chart.spoken
    assert "2 s" in found.drawing.chart.spoken
    assert 'endpoint="demo"' in prometheus.questions["value"]


def test_rule_history_lists_recorded_intervals_without_prometheus(settings: Any) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url="")
    now = timezone.now()
    begun = {"rule": "HighTTFT", "severity": "page", "seen_at": now}
    for name, ago_s, length_s in (("demo", 3000, 40), ("well", 10_800, None), ("gone", 900, 75)):
        started = now - timedelta(seconds=ago_s)
        ended = started + timedelta(seconds=length_s) if length_s else None
        fields = {"fingerprint": f"{name}{ago_s}", "started_at": started, "ended_at": ended}
        AlertRecord.objects.create(**begun, **fields, endpoint=name, labels={"endpoint": name})
    AlertRecord.objects.create(
        **{**begun, "rule": "GPUHot"}, fingerprint="o", started_at=now, labels={}
    )
    make_endpoint("demo")
    viewer = browser("viewer")
    text = viewer.get(f"{ONE}past/?range=1h").text
    assert "No Prometheus configured" in text
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text)
    shown = [re.sub("<[^>]+>", "", cell) for cell in cells]
    assert list(zip(shown[::3], shown[2::3], strict=True)) == [
        ("gone", "1 min 15 s"),
        ("demo", "40 s"),
        ("well", "3 h ongoing"),
    ]
    assert "gone" not in viewer.get(f"{ONE}past/?range=1h&endpoint=demo").text


def test_history_of_a_custom_rule_has_a_series() -> None:
    prometheus = StubPrometheus(value=[((("endpoint", "demo"),), (1.0, 5.0))])
    chart = query_history(prometheus, MINE, Scope(), DEFAULT_SETTINGS, "1h").drawing.chart
    assert chart is not None
    assert [(one.label, one.latest) for one in chart.lines] == [("demo", "5"), ("Threshold", "3")]
    assert prometheus.questions["value"] == "topk(12, queue)"


def test_history_queries_only_visible_endpoints() -> None:
    prometheus = StubPrometheus()
    mine = Scope(among=("a", "b"))
    query_history(prometheus, BY_NAME["HighTTFT"], mine, DEFAULT_SETTINGS, "")
    assert 'endpoint=~"a|b"' in prometheus.questions["value"]
    query_history(prometheus, BY_NAME["HighTTFT"], Scope(among=()), DEFAULT_SETTINGS, "")
    assert 'endpoint="-"' in prometheus.questions["value"]
    query_history(prometheus, BY_NAME["GPUHot"], mine, DEFAULT_SETTINGS, "")
    assert '"endpoint", "a"' in prometheus.questions["value"]
    prometheus.questions = {}
    query_history(prometheus, BY_NAME["L2SlowGet"], mine, DEFAULT_SETTINGS, "")
    assert prometheus.questions == {}
    away = StubPrometheus(fault=Fault(FaultKind.UNREACHABLE, "It is away."))
    assert "It is away." in query_history(away, MINE, Scope(), DEFAULT_SETTINGS, "6h").why


def test_lists_need_a_constant_number_of_queries() -> None:
    client = browser("admin")
    for number in range(5):
        endpoint = make_endpoint(f"e{number}")
        values = {"threshold": number + 3.0}
        RuleSetting.objects.create(rule="HighTTFT", endpoint=endpoint, values=values)
        if number in (1, 4):  # equal counts for two and five endpoints
            for path in ("/alerts/", "/alerts/rules/", ONE):
                query_counts.check(client, path, KEPT)


def test_rule_form_takes_its_condition_from_any_panel(tmp_path: Path) -> None:
    """Prometheus accepts the condition of each panel of each board."""
    make_endpoint("demo")
    operator, rules = browser("operator"), []
    for board in BOARDS.values():
        for endpoint in ("", "demo"):
            for panel in board.panels(one=bool(endpoint)):
                url = rule_url(board.key, panel.id, endpoint)
                page = operator.get(url)
                assert page.status_code == 200, url
                expr = page.context["form"].initial["expr"]
                assert expr.endswith("> 0")
                assert ('"demo"' in expr) is bool(endpoint), url
                assert escape(expr) in page.text
                rules.append({"alert": f"A{len(rules)}", "expr": expr})
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    checked = subprocess.run(
        [PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert len(rules) > 100
    assert operator.get(rule_url("overview", "missing")).status_code == 404
    assert operator.get(rule_url("overview", panel.id, "missing")).status_code == 404
    first = BOARDS["overview"].panels(one=False)[0]
    link = escape(rule_url("overview", first.id))
    assert link in operator.get("/dashboards/").text
    assert link not in browser("viewer").get("/dashboards/").text
