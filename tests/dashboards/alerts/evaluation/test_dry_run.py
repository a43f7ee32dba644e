"""Dry runs: evaluation, queries, reported gaps and permissions."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from console.audit.models import AuditEvent
from console.core.errors import Refused
from dashboards.alerts.evaluation import measure as evaluation_measure
from dashboards.alerts.evaluation.dry_run import (
    RANGES,
    Condition,
    ConditionValues,
    dry_run,
    excess_series,
)
from dashboards.alerts.evaluation.intervals import SampleTimes, judge_rule, summarize_firing
from dashboards.alerts.settings import trials
from dashboards.alerts.settings.models import OwnRule, RuleSetting
from dashboards.custom_boards import actions as custom_boards
from dashboards.prometheus.http.client import (
    Fault,
    FaultKind,
    Prometheus,
    QueryResult,
    Question,
    Series,
)
from dashboards.prometheus.sources import selectors as connections
from tests.dashboards.alerts.settings.api.test_views import prometheus
from tests.support import teams as made
from tests.support.console import browser, make_endpoint, program
from tests.support.http_stub import Stub, http_stub
from tests.support.people import cast, client_of
from tests.support.ports import free_port
from tests.support.prometheus import PROMTOOL, running_prometheus
from tests.support.teams import CANARY, OURS

ALL = "/api/v1/alert-rules/"
ONE = f"{ALL}HighTTFT/dry-run/"
PAGE = "/alerts/rules/HighTTFT/"


def held(text: str) -> Series:
    """Samples of a condition: "#" where it holds."""
    return Series((("endpoint", "a"),), tuple(1.0 if one == "#" else None for one in text))


def by_hand(text: str, lasting_s: int, step: int, since: int) -> tuple[int, int]:
    """Return how often and how long the alert fired since sample `since`, evaluated sample by
    sample as in Prometheus.
    """
    active, firing, times, lasted = -1, False, 0, 0
    for place, one in enumerate(text):
        if one != "#":
            active, firing = -1, False
            continue
        active = place if active < 0 else active
        before, firing = firing, (place - active) * step >= lasting_s
        if firing and place >= since:
            times += not before or place == since
            lasted += step
    return times, lasted


def test_dry_run_equals_prometheus() -> None:
    dice = random.Random(8)
    for _ in range(400):
        text = "".join(dice.choice("##.") if dice.random() < 0.3 else "#" for _ in range(40))
        text = text if dice.random() < 0.5 else text.replace("#", ".", 25)
        step, since = dice.choice((15, 60, 300)), dice.randrange(0, 20)
        lasting_s = dice.choice((0, 10, 60, 90, 600, 3600))
        found = summarize_firing(held(text), SampleTimes(0, step, since * step), lasting_s)
        assert (found.times, found.firing_s) == by_hand(text, lasting_s, step, since), text


def test_matches_shorter_than_the_duration_are_counted_separately() -> None:
    sample_times = SampleTimes(0, 60, 0)
    assert summarize_firing(held("..##.."), sample_times, 60).times == 1
    one = summarize_firing(held("..#..."), sample_times, 60)  # up to two minutes between samples
    assert (one.times, one.unsure) == (0, 1)
    assert summarize_firing(held("..#..."), sample_times, 600).unsure == 0
    still = summarize_firing(held("...###"), sample_times, 60)
    assert (still.still, still.firing_s, still.longest_s) == (True, 120, 120)
    assert not summarize_firing(held(".##.#."), sample_times, 60).still
    both = judge_rule([(held("##"), 0), (held("...."), 0), (held("####"), 0)], sample_times)
    assert ([one.firing_s for one in both.about], both.times) == ([240, 120], 2)


class StubPrometheus:
    """Answers each query by its text."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.questions: dict[str, Any] = {}

    def ask(self, questions: Any) -> dict[str, QueryResult]:
        self.questions |= questions
        return {
            key: self.found(one) if one.window else QueryResult() for key, one in questions.items()
        }


def always(question: Any) -> QueryResult:
    return QueryResult((Series((("endpoint", "a"),), (1.0,) * question.window.points),))


def test_queries_are_few_and_cover_the_duration() -> None:
    requested = StubPrometheus(always)
    measure = evaluation_measure.user_rule_measure("up == 0")
    for (key, (length, *steps)), lasting_s in itertools.product(RANGES.items(), (300, 1800)):
        step = steps[lasting_s == 1800]
        draft = ConditionValues((Condition("up == 0", lasting_s),))
        requested.questions.clear()
        found = dry_run(requested, draft, None, measure, key)
        windows = [q.window for name, q in requested.questions.items() if "up == 0" in name]
        assert len(windows) <= 26
        for one, after in itertools.pairwise(windows):
            assert after.start == one.end + step
        assert windows[-1].end - windows[0].start == length + -(-lasting_s // step) * step
        assert (found.new.times, found.new.firing_s, found.new.fired[0].still) == (
            *(1, length + step),
            True,
        )
        assert (found.known_s, found.gap, found.now) == (length, False, None)
    assert "(\nup == 0\n) ^ 0" in {one.query for one in requested.questions.values()}
    assert all(one.heavy for one in requested.questions.values())


def test_unanswerable_queries_are_rejected_and_gaps_reported() -> None:
    draft, measure = (
        ConditionValues((Condition("x > 1", 0),)),
        evaluation_measure.user_rule_measure("x > 1"),
    )
    for kind, status, code in (
        (FaultKind.BAD_QUERY, 400, "promql"),
        (FaultKind.TOO_SLOW, 503, "too_slow"),
        (FaultKind.TOO_EXPENSIVE, 400, "too_expensive"),
        (FaultKind.UNREACHABLE, 503, "not_known"),
    ):
        away = StubPrometheus(
            lambda _question, kind=kind: QueryResult(fault=Fault(kind, "It says so."))
        )
        with pytest.raises(Refused) as refused:
            dry_run(away, draft, None, measure, "24h")
        assert (refused.value.status_code, refused.value.errors[0].code) == (status, code)
        with pytest.raises(Refused):
            excess_series(away, "x > 1", "24h")

    def half(question: Any) -> QueryResult:
        there = question.window.points // 2
        gone = question.window.points - there
        values = (None,) * gone + (1.0,) * there
        return QueryResult(
            (Series((), values),), missing=(Fault(FaultKind.UNREACHABLE, "b is away."),)
        )

    found = dry_run(
        StubPrometheus(half), draft, ConditionValues((Condition("x > 2", 0),)), measure, "24h"
    )
    assert found.gap
    assert abs(found.known_s - 43_200) < 400
    assert found.missing == ("b is away.",)
    assert found.now is not None


# A day in minutes: x of endpoint a is 5 for 30 minutes from minute 300, and for 3 from 600 on;
# y divides by zero for 20 minutes; no scrapes in minutes 900 to 1080.
@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("day")
    now = int(time.time()) // 60 * 60
    up, x, zero = ["# TYPE up gauge"], ["# TYPE x gauge"], ["# TYPE zero gauge"]
    for minute in itertools.chain(range(900), range(1080, 1440)):
        at = now - 86_400 + minute * 60
        high = 300 <= minute < 330 or 600 <= minute < 603
        up.append(f'up{{job="vllm"}} 1 {at}')
        x.append(f'x{{endpoint="a"}} {5 if high else 1} {at}')
        zero.append(f'zero{{endpoint="a"}} {0 if 700 <= minute < 720 else 1} {at}')
    crowd = ["# TYPE crowd gauge", *(f'crowd{{n="{n}"}} 1 {now - 3600}' for n in range(400))]
    text = [*up, *x, *zero, *crowd, "# EOF", ""]
    file = folder / "day.om"
    file.write_text("\n".join(text))
    made_of = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(file)]
    subprocess.run([*made_of, str(folder / "data")], check=True, capture_output=True)
    with running_prometheus(folder, "scrape_configs: []\n") as url:
        yield url


@pytest.mark.django_db
def test_prometheus_reports_past_firing_of_a_custom_rule(server: str, settings: Any) -> None:
    prometheus(settings, server)
    operator = program("operator")

    def tried(expr: str, **more: Any) -> Any:
        answer = operator.post(f"{ALL}dry-run/", {"expr": expr, **more})
        assert answer.status_code == 200, answer.json()
        return answer.json()

    at_once = tried("x > 3", **{"for": "0s"})
    assert (at_once["times"], at_once["firing_s"]) == (2, 33 * 60)
    assert at_once["about"][0]["about"] == "a"
    later = tried("x > 3", **{"for": "10m"})
    assert (later["times"], later["firing_s"], later["unsure"]) == (1, 20 * 60, 0)
    assert tried("1 / zero > 3", **{"for": "5m"})["times"] == 1  # infinity is more than 3
    # Three hours are missing, less the five minutes of Prometheus' lookback.
    assert 86_400 - 180 * 60 <= later["known_s"] <= 86_400 - 165 * 60
    assert later["measured_s"] == later["known_s"]
    crowd = operator.post(f"{ALL}dry-run/", {"expr": "crowd > 0"})
    assert (crowd.status_code, crowd.json()["code"]) == (400, "too_many_series")
    wrong = operator.post(f"{ALL}dry-run/", {"expr": "x >"})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "expr")
    assert "1:4: parse error" in wrong.json()["detail"]  # position in the submitted text
    week = tried("x > 3", **{"for": "10m", "range": "7d"})
    assert week["times"] == 1
    assert week["known_s"] < 86_400
    requested = Prometheus(server)
    try:
        drawn = evaluation_measure.user_rule_measure("x > 1 + 2 and on () vector(1)")
        draft = ConditionValues((Condition("x > 3", 0),))
        found = dry_run(requested, draft, None, drawn, "24h").drawing
    finally:
        requested.close()
    assert found.chart is not None
    assert [(one.label, one.latest) for one in found.chart.lines] == [
        ("a", "1"),
        ("Threshold", "3"),
    ]


@pytest.fixture(scope="module")
def strict(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Server with the limit of `make up`, but lower."""
    assert server
    folder = tmp_path_factory.mktemp("strict")
    lines = ["# TYPE crowd gauge"]
    now = int(time.time()) // 60 * 60
    for n in range(1500):
        lines += [f'crowd{{n="{n}"}} 1 {now - 240}', f'crowd{{n="{n}"}} 1 {now}']
    (folder / "x.om").write_text("\n".join([*lines, "# EOF", ""]))
    made_of = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(folder / "x.om")]
    subprocess.run([*made_of, str(folder / "data")], check=True, capture_output=True)
    with running_prometheus(folder, "scrape_configs: []\n", "--query.max-samples=8000") as url:
        yield url


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("expr", "code", "words"),
    [
        ('{__name__=~".+"} > 0', "unselective", "has no metric name"),
        ('count({job=~".*"}) > 5', "unselective", "metric name before the braces"),
        ("sum(rate(crowd[10m:1s])) > 0", "too_expensive", "too many samples"),
        ("crowd > 0", "too_many_series", "sum by (endpoint)"),
        ("crowd) or (crowd", "promql", "parse error"),
    ],
)
def test_expensive_expressions_are_neither_run_nor_saved(
    strict: str, settings: Any, expr: str, code: str, words: str
) -> None:
    """Rules and boards, form and REST reject alike and state how to narrow; boards keep working."""
    prometheus(settings, strict)
    operator = program("operator")
    whole = {"name": "Costly", "expr": expr, "for": "5m", "severity": "ticket", "summary": "x"}
    for path, fields in ((f"{ALL}dry-run/", {"expr": expr}), (ALL, whole)):
        answer = operator.post(path, fields)
        assert (answer.status_code, answer.json()["code"]) == (400, code), answer.json()
        assert answer.json()["field"] == "expr"
        assert words in json.dumps(answer.json())
    assert not OwnRule.objects.exists()
    panel = {"type": "promql", "title": "Costly", "query": expr}
    alice = cast().alice
    mine = custom_boards.create(alice, {"version": 1, "title": "Mine", "panels": []})
    for panels in ([panel], [panel, {**panel, "id": "other"}]):
        with pytest.raises(Refused) as caught:
            custom_boards.create(alice, {"version": 1, "title": "Mine", "panels": panels})
        assert caught.value.errors[0].code == code
    with pytest.raises(Refused):
        custom_boards.add_panel(alice, mine.pk, panel)
    board = connections.fleet().ask({"it": Question("vector(1)", int(time.time()))})["it"]
    assert board.fault is None


def vector(_path: str, _body: bytes) -> Any:
    """A valid condition."""
    return 200, {"status": "success", "data": {"resultType": "vector", "result": []}}


def matrix(_path: str, _body: bytes) -> Any:
    """Every query returns 1."""
    series = {"metric": {"endpoint": "demo"}, "values": [[int(time.time()) // 60 * 60, "1"]]}
    return 200, {"status": "success", "data": {"resultType": "matrix", "result": [series]}}


ANSWERS: dict[str, Any] = {"/api/v1/query": vector, "/api/v1/query_range": matrix}


@pytest.mark.django_db
def test_dry_run_stores_nothing(settings: Any) -> None:
    make_endpoint("demo")
    operator = program("operator")
    stub: Stub
    with http_stub(ANSWERS) as stub:
        prometheus(settings, stub.url)
        answer = operator.post(ONE, {"threshold": 9, "for": "0s", "range": "7d"})
        assert answer.status_code == 200, answer.json()
        body = answer.json()
        assert (body["range"], body["for_s"], body["step_s"], body["enabled"]) == (
            *("7d", 0, 120),
            True,
        )
        assert body["now"] is not None
        text = "".join(f"{path}{sent.decode()}" for _, path, sent in stub.seen)
        assert "%20%3E%209%20" in text
        assert "%20%3E%202%20" in text  # current value
        same = operator.post(ONE, {"severity": "page"}).json()
        assert same["now"] is None
        off = operator.post(ONE, {"enabled": False}).json()
        assert (off["enabled"], off["now"]["enabled"]) == (False, True)
        stub.seen.clear()
        mine = "/api/v1/endpoints/demo/alert-rules/HighTTFT/dry-run/"
        assert operator.post(mine, {"threshold": 8}).status_code == 200
        text = "".join(f"{path}{sent.decode()}" for _, path, sent in stub.seen)
        assert "endpoint%3D%22demo%22" in text
        assert "%20%3E%208%20" in text
        for fields, field in (
            ({"threshold": -1}, "threshold"),
            ({"range": "1y"}, "range"),
            ({"treshold": 1}, "treshold"),
        ):
            refused = operator.post(ONE, fields)
            assert (refused.status_code, refused.json()["field"]) == (400, field)
        for path, form in ((ONE, [1]), (f"{ALL}Nothing/dry-run/", {}), (f"{ALL}dry-run/", {})):
            assert operator.post(path, form).status_code in (400, 404), path
    prometheus(settings, f"http://127.0.0.1:{free_port()}")
    away = operator.post(ONE, {"threshold": 9})
    assert (away.status_code, away.json()["code"]) == (503, "not_known")
    assert not RuleSetting.objects.exists()
    assert not AuditEvent.objects.filter(target__contains="alert").exists()


@pytest.mark.django_db
def test_dry_run_needs_the_permission_to_edit(settings: Any) -> None:
    members = made.teams()
    made.their_endpoints(members)
    OwnRule.objects.create(name="Secret", expr=f'up{{endpoint="{CANARY}"}}', summary="x")
    erin, frank = client_of(members.erin), client_of(members.frank)
    json: Any = {"content_type": "application/json"}
    with http_stub(ANSWERS) as stub:
        prometheus(settings, stub.url)
        mine = f"/api/v1/endpoints/{OURS}/alert-rules/HighTTFT/dry-run/"
        answer = erin.post(mine, {"threshold": 8}, **json)
        assert answer.status_code == 200, answer.text
        assert CANARY not in answer.text
        assert all(OURS in path or "count" in path for _, path, _ in stub.seen)
        stub.seen.clear()
        assert frank.post(mine, {"threshold": 8}, **json).status_code == 403
        assert erin.post(mine.replace(OURS, CANARY), {}, **json).status_code == 404
        for path in (ONE, f"{ALL}dry-run/", f"{ALL}Secret/dry-run/"):
            assert erin.post(path, {"expr": "up"}, **json).status_code in (403, 404), path
        assert program("viewer").post(ONE, {"threshold": 3}).status_code == 403
        for path in (f"{PAGE}dry-run/", "/alerts/rules/dry-run/"):
            assert erin.post(path, {"expr": "up"}).status_code == 403, path
        with pytest.raises(PermissionDenied):  # the action itself, without REST's permission check
            trials.run_trial(members.erin, "HighTTFT", "", {})
        with pytest.raises(PermissionDenied):
            trials.run_trial(members.frank, "HighTTFT", OURS, {})
        assert not stub.seen


@pytest.mark.django_db
def test_pages_dry_run_typed_values_with_and_without_scripts(settings: Any) -> None:
    make_endpoint("demo")
    operator = browser("operator")
    OwnRule.objects.create(name="LongQueue", expr="up == 0", summary="x")
    typed = {"threshold": "9", "for": "0s", "window": "", "severity": "", "enabled": "off"}
    own = {"expr": "up == 1", "for": "1m", "summary": "", "severity": "page", "enabled": "on"}
    with http_stub(ANSWERS) as stub:
        prometheus(settings, stub.url)
        assert "Dry run 7d" in operator.get(PAGE).text
        part = operator.post(f"{PAGE}dry-run/?range=7d", typed, headers={"HX-Request": "true"})
        assert "<html" not in part.text
        assert 'data-dry-run="7d"' in part.text
        assert "(the rule is disabled in the form)" in part.text
        assert "With the current settings" in part.text
        assert "Threshold" in part.text
        whole = operator.post(f"{PAGE}dry-run/", typed)
        assert whole.status_code == 200
        assert 'value="9"' in whole.text  # submitted value
        assert 'data-dry-run="24h"' in whole.text
        for path, fields in (
            (f"{PAGE}endpoints/demo/dry-run/", typed),
            ("/alerts/rules/LongQueue/dry-run/", own),
            ("/alerts/rules/dry-run/", own),
        ):
            assert 'data-dry-run="24h"' in operator.post(path, fields).text, path
        wrong = operator.post(f"{PAGE}dry-run/", {**typed, "threshold": "-1"})
        assert wrong.status_code == 400
        assert "TTFT p95 threshold:" in wrong.text
        refused = {"headers": {"HX-Request": "true"}}
        response = operator.post("/alerts/rules/dry-run/", {**own, "expr": ""}, **refused)
        assert (response.status_code, "This field is required" in response.text) == (200, True)
    prometheus(settings, f"http://127.0.0.1:{free_port()}")
    away = operator.post(f"{PAGE}dry-run/", typed, headers={"HX-Request": "true"})
    assert "Prometheus is unavailable" in away.text
    assert not RuleSetting.objects.exists()
