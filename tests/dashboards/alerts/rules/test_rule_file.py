"""Rules with settings for endpoints: each endpoint is evaluated once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from dashboards.alerts.rules.parameter import describe_duration, format_duration, parse_duration
from dashboards.alerts.rules.rule import Rule, Setting
from dashboards.alerts.rules.rule_file import (
    BY_NAME,
    RULES,
    Settings,
    UserRule,
    build_groups,
    fill_in,
    render,
)
from tests.dashboards.alerts.rules import test_cluster, test_rule
from tests.dashboards.alerts.rules.promtool_cases import Case, bare, judged

OWN = {rule.name for rule in RULES if rule.per_endpoint}
CASES = [case for case in (*test_rule.rule_tests(), *test_cluster.CASES) if case.name in OWN]


def lenient(rule: Rule) -> Setting:
    """Return a setting that never fires: extreme threshold, or disabled without one."""
    for one in rule.parameters:
        if one.name == "threshold":
            below = "<measured> < <threshold>" in rule.condition
            return Setting({"threshold": one.low if below else one.high})
    return Setting(enabled=False)


def louder(rule: Rule) -> Setting:
    return Setting(severity="page" if rule.severity == "ticket" else "ticket")


def named(case: Case, name: str) -> Case:
    """Return the case for another endpoint."""
    return replace(
        case,
        series={key.replace("demo", name): value for key, value in case.series.items()},
        fires=[{k: v.replace("demo", name) for k, v in alert.items()} for alert in case.fires],
    )


def thrice(case: Case) -> Case:
    """Repeat the case for demo (fires), calm (lenient) and third."""
    woken = louder(BY_NAME[case.name]).severity
    third, calm = named(case, "third"), named(case, "calm")
    mine = [{**alert, "severity": woken} for alert in case.fires]
    series = {**case.series, **third.series, **calm.series}
    return replace(case, series=series, fires=[*mine, *third.fires])


SETTINGS = Settings(
    of_endpoints={
        rule.name: {"demo": louder(rule), "calm": lenient(rule)}
        for rule in RULES
        if rule.per_endpoint
    }
)


def test_each_endpoint_is_evaluated_once_with_its_own_thresholds(tmp_path: Path) -> None:
    assert len(OWN) > 25
    assert {case.name for case in CASES if case.fires} == OWN
    # Cases with another endpoint name test the rule's own texts.
    cases = [thrice(case) for case in CASES if "demo" in str(case.series)]
    assert {case.name for case in cases if case.fires} == OWN
    quick = [case for case in cases if case.at != test_cluster.DAY]
    slow = [case for case in cases if case.at == test_cluster.DAY]
    for every, some in (("1m", quick), ("10m", slow)):
        done = judged(tmp_path, bare(render(SETTINGS)), some, every)
        assert done.returncode == 0, done.stdout + done.stderr


def test_global_thresholds_apply_without_endpoint_thresholds(tmp_path: Path) -> None:
    settings = Settings(
        everywhere={"IndexStale": Setting({"threshold": 100}, lasting_s=600)},
        of_endpoints={"IndexStale": {"demo": Setting({"threshold": 20})}},
    )
    lag = test_rule.router("index_event_lag_seconds", "50x60", test_rule.W)
    alert = test_rule.expected("IndexStale", lag)
    early = Case("IndexStale", lag, (), "9m")  # own threshold, platform-wide duration
    late = Case("IndexStale", lag, alert, "11m")
    other = named(Case("IndexStale", lag, (), "40m"), "other")
    done = judged(tmp_path, bare(render(settings)), [early, late, other])
    assert done.returncode == 0, done.stdout + done.stderr


def test_equal_settings_share_a_rule_and_disabled_rules_are_omitted() -> None:
    mine = Setting({"threshold": 5.0})
    settings = Settings(
        everywhere={"HighITL": Setting(enabled=False)},
        of_endpoints={
            "HighTTFT": {"a": mine, "b": mine, "c": Setting({"threshold": 2.0})},
            "HighITL": {"a": Setting(enabled=True)},
        },
    )
    split = settings.split(BY_NAME["HighTTFT"])
    assert [(only.names, only.without) for _, only in split] == [
        (("a", "b"), True),
        (("a", "b"), False),  # c has the platform-wide setting
    ]
    rules = {group["name"]: group["rules"] for group in build_groups(settings)}["emberline-engines"]
    (itl,) = [rule for rule in rules if rule["alert"] == "HighITL"]
    assert 'endpoint_name="a"' in itl["expr"]
    late = [rule for rule in rules if rule["alert"] == "HighTTFT"]
    assert [rule["annotations"]["summary"].rpartition("above ")[2] for rule in late] == [
        "2 s",
        "5 s",
    ]


def test_texts_of_a_custom_rule_are_filled_in(tmp_path: Path) -> None:
    texts = ("{{ $labels.pod }}{{ $labels.none }} is at {{$value}} of {{ quiet }}", "Say {{ x }}.")
    own = UserRule("TooQuiet", "x > 0", 60, "ticket", *texts)
    text = render(Settings(own=(own, replace(own, name="Off", enabled=False))))
    last = yaml.load(text, Loader=yaml.CSafeLoader)["groups"][-1]
    assert last["name"] == "emberline-own"
    (rule,) = last["rules"]
    assert rule["annotations"]["description"] == (
        'Say {{ "{{" }} x }}. (now {{ $value | humanize }})'
    )
    of_endpoint = ({"endpoint": "demo"}, {"endpoint_name": "demo"})
    for more, whose in (({}, ""), *((more, "demo: ") for more in of_endpoint)):
        labels = {"pod": "w-0", **more}
        series = ",".join(f'{name}="{value}"' for name, value in labels.items())
        fires = [{"severity": "ticket", "written_by": "user", **labels}]
        summary = "w-0 is at 3 of {{ quiet }}"
        notes = {"summary": f"{whose}{summary}", "description": "Say {{ x }}. (now 3)"}
        case = Case("TooQuiet", {f"x{{{series}}}": "3x60"}, fires, notes=notes)
        done = judged(tmp_path, text, [case])
        assert done.returncode == 0, done.stdout + done.stderr
        assert fill_in(own.summary, labels, 3.0) == summary


def test_rule_links_to_its_page_if_the_console_url_is_known() -> None:
    (rule, *_) = build_groups(Settings(console_url="https://console.example"))[0]["rules"]
    url = "https://console.example/alerts/rules/EndpointNoHealthyWorker/"
    assert rule["annotations"]["runbook_url"] == url
    assert "runbook_url" not in build_groups()[0]["rules"][0]["annotations"]


def test_every_default_is_within_its_bounds_and_every_text_is_rendered() -> None:
    for rule in RULES:
        assert parse_duration(rule.lasting) is not None
        assert not set("<>") & set(rule.summarize(Setting())), rule.name
        for one in rule.parameters:
            assert one.fault(one.default) == "", (rule.name, one.name)
            assert one.fault(one.high * 2 + 1), (rule.name, one.name)
            assert f"<{one.name}>" in rule.condition + rule.measured + rule.summary_template
    window = next(one for one in BY_NAME["HighTTFT"].parameters if one.unit == "window")
    assert window.fault(90.5)
    assert window.fault(True)
    assert window.fault(float("nan"))


def test_durations_are_parsed_in_both_notations() -> None:
    assert [parse_duration(text) for text in ("5m", "5 min", "90", "90s", "2h", "1h30m", "1d")] == [
        *(300, 300, 90, 90, 7200, 5400, 86_400)
    ]
    assert parse_duration("soon") is None
    assert [format_duration(one) for one in (0, 90, 300, 5400, 7200, 604_800)] == [
        *("0s", "1m30s", "5m", "1h30m", "2h", "1w")
    ]
    assert describe_duration(300) == "5 min"
