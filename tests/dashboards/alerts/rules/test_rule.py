"""Every alert fires and stays quiet where it should, evaluated by Prometheus."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import yaml

from dashboards.alerts.rules.rule import Setting
from dashboards.alerts.rules.rule_file import BY_NAME, GROUPS, RULES, render
from dashboards.boards.queries import metric_names as q
from routing.engine.kvaware.metrics import KvMetrics
from routing.engine.observe.metrics import Metrics
from routing.engine.peers.metrics import PeerMetrics
from tests.dashboards.alerts.rules.promtool_cases import Case, Series, bare, judged
from tests.support.prometheus import PROMTOOL

E = 'namespace="default",endpoint="demo"'
W = f'{E},worker="demo-worker-0"'
OTHER = f'{E},worker="demo-worker-1"'
AT = "40m"

NAMES = {rule.name for rule in GROUPS["emberline-routing"]}


def router(name: str, values: str, labels: str = E) -> Series:
    return {f"emberline_router_{name}{{{labels}}}": values}


def decisions(per_minute: float, worker: str = W, strategy: str = "kvaware") -> Series:
    labels = f'{worker},strategy="{strategy}",reason="fallback_no_match"'
    return router("routing_decisions_total", f"0+{per_minute}x60", labels)


def waiting(requests: int) -> Series:
    labels = 'namespace="default",endpoint_name="demo",pod="demo-worker-0"'
    return {f"vllm:num_requests_waiting{{{labels}}}": f"{requests}x60"}


def fallbacks(per_minute: float, reason: str) -> Series:
    return router("kv_fallbacks_total", f"0+{per_minute}x60", f'{E},reason="{reason}"')


def up(job: str, values: str) -> Series:
    labels = f'job="{job}",namespace="default",endpoint_name="demo",pod="demo-{job}-0"'
    return {f"up{{{labels}}}": values}


def transition(kind: str, values: str = "1x60", name: str = "demo") -> Series:
    return {f'emberline_endpoint_transition{{endpoint_name="{name}",kind="{kind}"}}': values}


def worker_starting(worker: str) -> Series:
    return {f'emberline_worker_starting{{endpoint_name="demo",worker="{worker}"}}': "1x60"}


def predicted(expected: float, reported: float) -> Series:
    model = f'{E},model="demo"'
    return router("predicted_cached_tokens_total", f"0+{expected}x60", model) | router(
        "cached_prompt_tokens_total", f"0+{reported}x60", model
    )


def requests(good: float, bad: float) -> Series:
    return router("requests_total", f"0+{good}x60", f'{E},model="m",code="200"') | router(
        "requests_total", f"0+{bad}x60", f'{E},model="m",code="503"'
    )


def phase(name: str, reason: str) -> Series:
    labels = f'{E},phase="{name}",reason="{reason}"'
    return {f"emberline_endpoint_phase{{{labels}}}": "1x60"}


def failures(reason: str, values: str) -> Series:
    return router("request_errors_total", values, f'{E},reason="{reason}"')


def queue(depth: int, limit: int) -> Series:
    return router("queue_depth", f"{depth}x60") | router("queue_limit", f"{limit}x60")


def recoveries(reason: str) -> Series:
    return router("kv_recoveries_total", "0x30 1x30", f'{E},reason="{reason}"')


# Rule, series, and whether it fires.
UNEVEN = decisions(90) | decisions(5, OTHER) | decisions(5, f'{E},worker="2"')
CASES: list[tuple[str, Series, bool]] = [
    ("EndpointNoHealthyWorker", router("worker_up", "0x60", W), True),
    (
        "EndpointNoHealthyWorker",
        router("worker_up", "0x60", W) | router("worker_up", "1x60", OTHER),
        False,
    ),
    # First start, update without a spare worker, deletion: expected while in progress.
    *(
        ("EndpointNoHealthyWorker", router("worker_up", "0x60", W) | transition(kind), False)
        for kind in ("start", "update", "stop")
    ),
    (
        "EndpointNoHealthyWorker",
        router("worker_up", "0x60", W) | transition("start", "1x10 _x50"),
        True,
    ),
    (
        "EndpointNoHealthyWorker",
        router("worker_up", "0x60", W) | transition("start", name="other"),
        True,
    ),
    ("RouterDown", up("router", "0x60") | transition("start"), False),
    ("RouterDown", up("router", "0x60") | transition("update"), True),
    ("EngineTargetDown", up("vllm", "0x60") | worker_starting("demo-vllm-0"), False),
    ("EngineTargetDown", up("vllm", "0x60") | worker_starting("demo-vllm-1"), True),
    ("EngineTargetDown", up("vllm", "0x60") | transition("stop"), False),
    ("RouterDown", up("router", "0x60"), True),
    ("RouterDown", up("router", "1x60") | up("vllm", "0x60"), False),
    ("EngineTargetDown", up("vllm", "0x60"), True),
    ("EngineTargetDown", up("vllm", "0x39 1x20"), False),
    ("WorkersCrashLooping", phase("Degraded", "WorkersCrashLooping"), True),
    ("WorkersCrashLooping", phase("Degraded", "WorkersNotReady"), False),
    ("EndpointFailed", phase("Failed", "WorkersCrashLooping"), True),
    ("EndpointFailed", phase("Degraded", "WorkersCrashLooping"), False),
    ("WorkerEngineStuck", router("worker_stuck", "1x60", W), True),
    ("WorkerEngineStuck", router("worker_stuck", "0x60", W), False),
    ("RouterInternalErrors", failures("internal_error", "0x30 1x30"), True),
    ("RouterInternalErrors", failures("queue_full", "0x30 1x30"), False),
    ("RouterErrorRatio", requests(97, 3), True),
    ("RouterErrorRatio", requests(99, 1), False),
    ("RouterErrorRatio", requests(0, 0), False),
    ("RouterQueueNearLimit", queue(90, 100), True),
    ("RouterQueueNearLimit", queue(70, 100), False),
    ("RouterQueueNearLimit", queue(9, 0), False),
    ("RoutingFallback", decisions(10) | fallbacks(8, "no_events"), True),
    ("RoutingFallback", decisions(10) | fallbacks(3, "timeout") | fallbacks(3, "mismatch"), True),
    ("RoutingFallback", decisions(10) | fallbacks(4, "no_events"), False),
    # Unseen prompts, a start and requests rejected by the engine are no faults.
    ("RoutingFallback", decisions(10) | fallbacks(0, "no_events"), False),
    ("RoutingFallback", decisions(10) | fallbacks(9, "starting"), False),
    ("RoutingFallback", decisions(10) | fallbacks(9, "bad_request"), False),
    ("RoutingFallback", decisions(1) | fallbacks(1, "no_events"), False),
    ("RoutingFallback", decisions(10, strategy="prefixaware") | fallbacks(0, "timeout"), False),
    ("RoutingImbalance", UNEVEN | waiting(3), True),
    ("RoutingImbalance", UNEVEN | waiting(0), False),  # few prefixes, idle workers
    ("RoutingImbalance", decisions(60) | decisions(40, OTHER), False),
    (
        "RoutingImbalance",
        decisions(3) | decisions(0, OTHER) | decisions(0, f'{E},worker="2"'),
        False,
    ),
    ("IndexStale", router("index_event_lag_seconds", "31x60", W), True),
    ("IndexStale", router("index_event_lag_seconds", "29x60", W), False),
    (
        "KvEventsNotFollowed",
        router("kv_events_up", "0x60", W) | router("worker_up", "1x60", W),
        True,
    ),
    (
        "KvEventsNotFollowed",
        router("kv_events_up", "0x60", W)
        | router("worker_up", "0x60", W)
        | router("kv_events_up", "1x60", OTHER)
        | router("worker_up", "1x60", OTHER),
        False,
    ),
    ("KvEventsLost", recoveries("gap_lost"), True),
    ("KvEventsLost", recoveries("gap_filled"), False),
    ("KvIndexNotBelieved", router("kv_index_believed", "0x60", W), True),
    ("KvIndexNotBelieved", router("kv_index_believed", "1x60", W), False),
    ("KvPredictionsMissed", predicted(1000, 400), True),
    ("KvPredictionsMissed", predicted(1000, 990), False),
    ("KvPredictionsMissed", predicted(30, 0), False),
    ("KvProbeFailing", router("kv_probe_success", "0x60", W), True),
    ("KvProbeFailing", router("kv_probe_success", "1x60", W), False),
    (
        "RouterConfigRefused",
        router("config_reloads_total", "0x35 1x30", f'{E},result="refused"'),
        True,
    ),
    ("RouterConfigRefused", router("config_reloads_total", "0+1x60", f'{E},result="ok"'), False),
    ("RouterStateStoreAway", router("state_store_up", "0x60"), True),
    ("RouterStateStoreAway", router("state_store_up", "1x60"), False),
]


def expected(name: str, series: Series) -> tuple[dict[str, str], ...]:
    """Return one alert with the labels of the series."""
    rule = BY_NAME[name]
    labels = {"severity": rule.severity, "endpoint": "demo", "namespace": "default"}
    if name in ("RouterDown", "EngineTargetDown"):
        labels |= dict(re.findall(r'(\w+)="([^"]*)"', next(iter(series))))
        labels["endpoint"] = labels["endpoint_name"]
    elif "worker" in rule.expression(Setting()).partition(")")[0]:
        labels["worker"] = "demo-worker-0"
    return (labels,)


def rule_tests() -> list[Case]:
    return [
        Case(name, series, expected(name, series) if fires else (), AT)
        for name, series, fires in CASES
    ]


def test_each_rule_fires_and_stays_quiet_as_expected(tmp_path: Path) -> None:
    assert {name for name, _, fires in CASES if fires} == NAMES
    assert {name for name, _, fires in CASES if not fires} == NAMES
    done = judged(tmp_path, bare(), rule_tests())
    assert done.returncode == 0, done.stdout + done.stderr


def test_checker_detects_rules_that_do_nothing(tmp_path: Path) -> None:
    broken = bare().replace("alert: ", "alert: Gone")
    done = judged(tmp_path, broken, rule_tests())
    assert done.returncode != 0
    for name in NAMES:
        assert f"alertname: {name}" in done.stderr + done.stdout


def test_promtool_accepts_the_rule_file(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yml"
    file.write_text(render())
    done = subprocess.run([PROMTOOL, "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_router_rules_use_metrics_exported_by_routers() -> None:
    metrics = Metrics("default", "demo")
    KvMetrics(metrics.registry, SimpleNamespace(listening=None, totals=dict))  # type: ignore[arg-type]
    PeerMetrics(metrics.registry)  # of a router with a state store
    shown = set(re.findall(rb"# TYPE (\S+)", metrics.registry.render()))
    exported = {name.decode() for name in shown}
    rules = GROUPS["emberline-routing"]
    expressions = " ".join(rule.expression(Setting()) for rule in rules)
    watched = set(re.findall(r"\bemberline_\w+", expressions))
    assert len(watched) > 10
    own = {q.ENDPOINT_PHASE, q.ENDPOINT_TRANSITION, q.WORKER_STARTING}
    assert watched - exported == own, "the console's own"


def test_no_rule_fires_during_a_first_start(tmp_path: Path) -> None:
    """Twenty minutes of a first start: all known targets are down."""
    deployment = 'namespace="models",deployment="demo-worker"'
    series = (
        router("worker_up", "0x60", W)
        | router("kv_events_up", "0x60", W)
        | up("router", "0x60")
        | up("vllm", "0x60")
        | {f"kube_deployment_spec_replicas{{{deployment}}}": "1x60"}
        | {f"kube_deployment_status_replicas_available{{{deployment}}}": "0x60"}
    )
    expected_ = transition("start") | worker_starting("demo-vllm-0")
    cases = [Case(rule.name, series | expected_, (), "20m") for rule in RULES]
    done = judged(tmp_path, bare(), cases)
    assert done.returncode == 0, done.stdout + done.stderr
    loud = judged(tmp_path, bare(), [Case(rule.name, series, (), "20m") for rule in RULES])
    silenced = set(re.findall(r"alertname: (\w+)", loud.stdout + loud.stderr))
    wanted = {"EndpointNoHealthyWorker", "RouterDown", "EngineTargetDown", "EngineTargetsMissing"}
    assert silenced == wanted, "without the console's word these four fire"


def test_every_rule_has_a_remedy() -> None:
    groups = yaml.load(render(), Loader=yaml.CSafeLoader)["groups"]
    for rule in [rule for group in groups for rule in group["rules"]]:
        assert rule["labels"]["severity"] in ("page", "ticket")
        text = "$labels" in rule["annotations"]["summary"]
        assert text or rule["alert"] == "MetricsAbsent"
        assert len(rule["annotations"]["description"]) > 30
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", rule["alert"])
