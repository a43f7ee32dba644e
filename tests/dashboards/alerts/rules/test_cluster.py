"""Alerts on workers, cache tiers, pods and GPUs: firing and quiet cases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from cachetier.engine.config import parse
from cachetier.engine.metrics import render_metrics
from cachetier.engine.node import Node
from dashboards.alerts.rules.rule import Setting
from dashboards.alerts.rules.rule_file import BY_NAME, GROUPS
from tests.dashboards.alerts.rules.promtool_cases import Case, Series, bare, judged

E = 'namespace="default",endpoint_name="demo"'
POD = f'{E},pod="demo-worker-0"'
POOL = 'pool="default",node="n0"'
OF_DEMO = 'namespace="default",endpoint="demo"'
DAY = "25h"
OF_ROUTER = {"severity": "ticket", "namespace": "default", "endpoint": "demo"}

GROUPS_HERE = (
    "emberline-engines",
    "emberline-cache",
    "emberline-cluster",
    "emberline-cost",
    "emberline-console",
)
NAMES = {rule.name for group in GROUPS_HERE for rule in GROUPS[group]}


def endpoint(severity: str = "ticket", **more: str) -> dict[str, str]:
    mine = {"namespace": "default", "endpoint_name": "demo", "endpoint": "demo"}
    return {"severity": severity, **mine, **more}


def pool(**more: str) -> dict[str, str]:
    return {"severity": "ticket", "pool": "default", **more}


def vllm(name: str, values: str, labels: str = POD) -> Series:
    return {f"vllm:{name}{{{labels}}}": values}


def l2(name: str, values: str, labels: str = "") -> Series:
    return {f"emberline_l2_{name}{{{POOL}{labels}}}": values}


def times(name: str, quick: int, slow: int, bounds: tuple[str, str], length: int = 60) -> Series:
    """Requests/min within the lower bound, and between it and the upper."""
    every = quick + slow
    found: Series = {}
    for bound, count in ((bounds[0], quick), (bounds[1], every), ("+Inf", every)):
        labels = f'{POD},le="{bound}"'
        found |= vllm(f"{name}_bucket", f"0+{count}x{length}", labels)
    return found | vllm(f"{name}_count", f"0+{every}x{length}")


def ttft(quick: int, slow: int, bounds: tuple[str, str] = ("2.0", "3.0")) -> Series:
    """Callers' streamed responses at the router, beside a slow benchmark."""
    series: Series = {}
    for traffic, counts in (("", (quick, quick + slow)), ("console", (0, 600))):
        labels = f'namespace="default",endpoint="demo",traffic="{traffic}"'
        name = "emberline_router_time_to_first_token_seconds"
        for bound, count in zip((*bounds, "+Inf"), (*counts, counts[1]), strict=True):
            series[f'{name}_bucket{{{labels},le="{bound}"}}'] = f"0+{count}x90"
        series[f"{name}_count{{{labels}}}"] = f"0+{counts[1]}x90"
    return series


ROUTED = {"namespace": "default", "endpoint": "demo"}


def reuse(yesterday: int, today: int, prompt: int = 6000) -> Series:
    """Computed tokens of `prompt` tokens/min."""
    early, late = prompt - yesterday, prompt - today
    name, labels = "emberline_router_{}_prompt_tokens_total", 'namespace="default",endpoint="demo"'
    return {
        f"{name.format('computed')}{{{labels}}}": f"0+{early}x1400 {early * 1400}+{late}x200",
        f"{name.format('cached')}{{{labels}}}": (
            f"0+{yesterday}x1400 {yesterday * 1400}+{today}x200"
        ),
        # A benchmark, today.
        f'{name.format("cached")}{{{labels},traffic="console"}}': "0x1400 0+90000x200",
    }


def operations(good: int, bad: int) -> Series:
    return l2("operations_total", f"0+{good}x60", ',op="get",result="hit"') | l2(
        "operations_total", f"0+{bad}x60", ',op="get",result="timeout"'
    )


def gets(quick: int, slow: int) -> Series:
    found: Series = {}
    for bound, count in (("0.25", quick), ("1", quick + slow), ("+Inf", quick + slow)):
        labels = f',op="get",le="{bound}"'
        found |= l2("operation_duration_seconds_bucket", f"0+{count}x60", labels)
    return found


def fill(used: int, evicted: int) -> Series:
    medium = ',medium="memory"'
    return (
        l2("used_bytes", f"{used}x60", medium)
        | l2("capacity_bytes", "100x60", medium)
        | l2("evicted_blocks_total", f"0+{evicted}x60", ',reason="space"')
    )


def scraped(job: str, value: int, labels: str) -> Series:
    return {f'up{{job="{job}",{labels}}}': f"{value}x60"}


def kube(name: str, values: str, labels: str) -> Series:
    return {f'{name}{{namespace="models",{labels}}}': values}


def budget(name: str, values: str) -> Series:
    labels = 'budget="November",team="chat",endpoint="",instance="console-0"'
    return {f"emberline_budget_{name}_ratio{{{labels}}}": values}


def disk(
    free: str = "50e9x60", size: str = "100e9x60", inodes: str = "0.9x60", read_only: str = "0x60"
) -> Series:
    values = {
        "free_bytes": free,
        "size_bytes": size,
        "inodes_free_ratio": inodes,
        "read_only": read_only,
    }
    labels = 'path="/var/e",instance="console"'
    return {f"emberline_console_disk_{name}{{{labels}}}": text for name, text in values.items()}


def dcgm(name: str, values: str, length: str = "") -> Series:
    return {f'DCGM_FI_DEV_{name}{{gpu="0",pod="demo-worker-0"}}': values + length}


GPU = {"gpu": "0", "pod": "demo-worker-0", "endpoint": "demo"}
PODS = {"severity": "ticket", "namespace": "models", "pod": "demo-router-7c-x", "endpoint": "demo"}
RELAYED = (
    'DCGM_FI_DEV_GPU_TEMP{gpu="0",pod="dcgm-x",endpoint="metrics",'
    'exported_pod="my-worker-worker-0"}'
)
RELAYED_GPU = {
    "gpu": "0",
    "pod": "my-worker-worker-0",
    "exported_pod": "my-worker-worker-0",
    "endpoint": "my-worker",
}
TICKET_OF_NOBODY = {
    "severity": "ticket",
    "namespace": "models",
    "pod": "cache-default-0",
    "phase": "Pending",
}
JOB = 'emberline_console_background_job_ok{background_job="alerts",instance="console"}'
WEBHOOK = {"integration": "webhook"}
FAILED = 'alertmanager_notifications_failed_total{integration="webhook",job="alertmanager"}'
DISK = {"severity": "ticket", "path": "/var/e"}
CONSOLE = {"severity": "page", "job": "console"}
CONSOLE_TIME = 'emberline_console_time_seconds{job="console",program="web",instance="console"}'
BUDGET = {"severity": "ticket", "budget": "November", "team": "chat"}
DROPPED = "kv_offload_tiering_backpressure_blocks_dropped_total"
TIER = f'{E},tier="1:emberline"'
THEIRS = 'pod="somebodys-job-x",phase="Pending"'
ALIVE = scraped("vllm", 1, POD)

CASES = (
    Case("HighTTFT", ttft(80, 20), [{"severity": "ticket", **ROUTED}]),
    Case("HighTTFT", ttft(99, 1), []),
    Case("HighTTFT", ttft(1, 4), []),  # too few requests
    Case(
        "TTFTBudgetBurnFast", ttft(10, 90, ("1.0", "5.0")), [{"severity": "page", **ROUTED}], "80m"
    ),
    Case("TTFTBudgetBurnFast", ttft(60, 40, ("1.0", "5.0")), [], "80m"),
    Case("HighITL", times("inter_token_latency_seconds", 80, 20, ("0.2", "0.4")), [endpoint()]),
    Case("HighITL", times("inter_token_latency_seconds", 99, 1, ("0.2", "0.4")), []),
    Case("EngineQueueBacklog", vllm("num_requests_waiting", "6x60"), [endpoint()]),
    Case("EngineQueueBacklog", vllm("num_requests_waiting", "5x60"), []),
    Case("AdmissionRejections", vllm("admission_rejections_total", "0+1x60"), [endpoint()]),
    Case("AdmissionRejections", vllm("admission_rejections_total", "7x60"), []),
    Case(
        "KVCacheSaturated", vllm("kv_cache_usage_perc", "0.97x60"), [endpoint(pod="demo-worker-0")]
    ),
    Case(
        "KVCacheSaturated", vllm("gpu_cache_usage_perc", "0.97x60"), [endpoint(pod="demo-worker-0")]
    ),
    Case("KVCacheSaturated", vllm("kv_cache_usage_perc", "0.9x60"), []),
    Case("Preemptions", vllm("num_preemptions_total", "0+9x60"), [endpoint(pod="demo-worker-0")]),
    Case("Preemptions", vllm("num_preemptions_total", "0+5x60"), []),
    Case("CacheHitCollapse", reuse(4000, 1000), [OF_ROUTER], DAY),
    Case("CacheHitCollapse", reuse(4000, 3000), [], DAY),
    Case("CacheHitCollapse", reuse(1000, 0, 2000), [], DAY),  # a few requests
    Case("MetricsAbsent", ALIVE, [{"severity": "ticket"}]),
    Case("MetricsAbsent", ALIVE | vllm("num_requests_running", "0x60"), []),
    Case("MetricsAbsent", scraped("vllm", 0, POD), []),  # covered by EngineTargetDown
    Case("MetricsAbsent", {}, []),  # no workers: no alert
    Case("L2Unavailable", scraped("l2", 0, POOL), [pool(job="l2", node="n0")]),
    Case("L2Unavailable", scraped("l2", 1, POOL) | ALIVE, []),
    Case("L2ErrorRatio", operations(95, 5), [pool()]),
    Case("L2ErrorRatio", operations(999, 1), []),
    Case("L2ErrorRatio", operations(0, 0), []),
    Case("L2SlowGet", gets(90, 10), [pool()]),
    Case("L2SlowGet", gets(999, 1), []),
    Case("L2NearFull", fill(97, 900), [pool(medium="memory")]),
    Case("L2NearFull", fill(97, 60), []),  # full without evictions
    Case("L2NearFull", fill(80, 900), []),
    Case("L2Integrity", l2("integrity_failures_total", "0x35 1x30"), [pool(node="n0")]),
    Case("L2Integrity", l2("integrity_failures_total", "1x60"), []),
    Case(
        "OffloadFailures",
        vllm("kv_offload_tiering_promotion_job_failures_total", "0+1x60", TIER),
        [endpoint(tier="1:emberline")],
    ),
    Case(
        "OffloadFailures",
        vllm("kv_offload_tiering_cascade_job_failures_total", "0+1x60", TIER),
        [endpoint(tier="1:emberline")],
    ),
    Case("OffloadFailures", vllm("kv_offload_tiering_cascade_job_failures_total", "3x60"), []),
    Case("OffloadBackpressure", vllm(DROPPED, "0+1x60", TIER), [endpoint(tier="1:emberline")]),
    Case("OffloadBackpressure", vllm(DROPPED, "1x60"), []),
    Case(
        "EngineTargetsMissing",
        kube("kube_deployment_spec_replicas", "3x60", 'deployment="demo-worker"')
        | kube("kube_deployment_status_replicas_available", "2x60", 'deployment="demo-worker"'),
        [
            {
                "severity": "ticket",
                "namespace": "models",
                "deployment": "demo-worker",
                "endpoint": "demo",
            }
        ],
    ),
    Case(
        "EngineTargetsMissing",
        kube("kube_deployment_spec_replicas", "3x60", 'deployment="demo-worker"')
        | kube("kube_deployment_status_replicas_available", "3x60", 'deployment="demo-worker"'),
        [],
    ),
    Case(
        "PodCrashLoop",
        kube("kube_pod_container_status_restarts_total", "0+1x60", 'pod="demo-router-7c-x"'),
        [PODS],
    ),
    Case(
        "PodCrashLoop",
        kube("kube_pod_container_status_restarts_total", "5x60", 'pod="demo-router-7c-x"'),
        [],
    ),
    Case(
        "PodUnschedulable",
        kube("kube_pod_status_phase", "1x60", 'pod="demo-router-7c-x",phase="Pending"'),
        [PODS | {"phase": "Pending"}],
    ),
    Case(
        "PodUnschedulable",
        kube("kube_pod_status_phase", "1x60", 'pod="cache-default-0",phase="Pending",endpoint="m"'),
        [TICKET_OF_NOBODY],
    ),
    Case(
        "PodUnschedulable",
        kube("kube_pod_status_phase", "1x60", 'pod="demo-router-7c-x",phase="Running"'),
        [],
    ),
    Case("PodUnschedulable", kube("kube_pod_status_phase", "1x60", THEIRS), []),
    Case("GPUXid", dcgm("XID_ERRORS", "0x35 79x30"), [GPU | {"severity": "page"}]),
    Case("GPUXid", dcgm("XID_ERRORS", "79x60"), []),  # the last error stays exported
    Case("GPURowRemapFailure", dcgm("ROW_REMAP_FAILURE", "1x60"), [GPU | {"severity": "page"}]),
    Case("GPURowRemapFailure", dcgm("ROW_REMAP_FAILURE", "0x60"), []),
    Case("GPUHot", dcgm("GPU_TEMP", "90x60"), [GPU | {"severity": "ticket"}]),
    Case("GPUHot", dcgm("GPU_TEMP", "80x60"), []),
    # Without honor_labels, DCGM's own pod is `pod`; `endpoint` may be a port name.
    Case("GPUHot", {RELAYED: "90x60"}, [RELAYED_GPU | {"severity": "ticket"}]),
    Case("GPUAllocatedIdle", dcgm("GPU_UTIL", "1x200"), [GPU | {"severity": "ticket"}], "180m"),
    Case("GPUAllocatedIdle", dcgm("GPU_UTIL", "1x100 50x100"), [], "180m"),
    Case("BudgetExceeded", budget("used", "1.02x200"), [BUDGET]),
    Case("BudgetExceeded", budget("used", "0.98x200"), []),
    Case("BudgetForecast", budget("forecast", "1.3x200"), [BUDGET], "90m"),
    Case("BudgetForecast", budget("forecast", "0.9x200"), [], "90m"),
    Case("ConsoleMetricsStale", {CONSOLE_TIME: "0+60x56 _x4"}, []),
    Case("ConsoleMetricsStale", {CONSOLE_TIME: "0+60x20 _x40"}, [CONSOLE]),
    # A scrape that fails leaves a stale marker.
    Case("ConsoleMetricsStale", {CONSOLE_TIME: "0+60x20 stale _x39"}, [CONSOLE]),
    Case("ConsoleMetricsStale", {}, []),  # a Prometheus that does not scrape the console
    Case(
        "BackgroundJobFailing",
        {JOB: "1x30 0x30"},
        [{"severity": "ticket", "background_job": "alerts"}],
    ),
    Case("BackgroundJobFailing", {JOB: "1x37 0x2"}, []),  # for two minutes only
    Case("AlertDeliveryFailing", {FAILED: "0x30 1x30"}, [{"severity": "ticket"} | WEBHOOK]),
    Case("AlertDeliveryFailing", {FAILED: "0x10 3x50"}, []),  # half an hour ago
    Case("DiskAlmostFull", disk(free="4e9x60", size="100e9x60"), [DISK]),
    Case("DiskAlmostFull", disk(free="90e9x60", size="1000e9x60"), []),  # enough, although 9 %
    Case("DiskAlmostFull", disk(free="4e9x60", size="8e9x60"), []),  # half of a small disk
    Case("DiskAlmostFull", disk(free="9e9x60", size="10e9x60", inodes="0.04x60"), [DISK]),
    Case("DiskFullSoon", disk(free="30e9-100e6x60", size="100e9x60"), [DISK]),
    Case("DiskFullSoon", disk(free="30e9-1e6x60", size="100e9x60"), []),
    Case("DiskFullSoon", disk(free="90e9-400e6x60", size="100e9x60"), []),
    Case("DiskFull", disk(free="20e6x60", size="100e9x60"), [DISK | {"severity": "page"}]),
    # With a full disk Prometheus stores no samples: the last one is used.
    Case("DiskFull", disk(free="20e6x5 _x55", size="9e9x60"), [DISK | {"severity": "page"}]),
    Case("DiskFull", disk(inodes="0x60"), [DISK | {"severity": "page"}]),
    Case("DiskFull", disk(read_only="1x60"), [DISK | {"severity": "page"}]),
    Case("DiskFull", disk(), []),
)

QUICK = [case for case in CASES if case.at != DAY]
SLOW = [case for case in CASES if case.at == DAY]


def test_each_cluster_rule_fires_and_stays_quiet_as_expected(tmp_path: Path) -> None:
    assert {case.name for case in CASES if case.fires} == NAMES
    assert {case.name for case in CASES if not case.fires} == NAMES
    for every, cases in (("1m", QUICK), ("10m", SLOW)):
        done = judged(tmp_path, bare(), cases, every)
        assert done.returncode == 0, done.stdout + done.stderr


BURST = "0x20 60 120x40"  # counted in two minutes
BURSTS = {
    "AdmissionRejections": vllm("admission_rejections_total", BURST),
    "OffloadFailures": vllm("kv_offload_tiering_cascade_job_failures_total", BURST, TIER),
    "L2ErrorRatio": operations(100, 0)
    | l2("operations_total", BURST, ',op="get",result="timeout"'),
    "RouterErrorRatio": {
        f'emberline_router_requests_total{{{OF_DEMO},code="200"}}': "0+100x60",
        f'emberline_router_requests_total{{{OF_DEMO},code="503"}}': BURST,
    },
}


def test_no_alert_fires_for_a_burst_that_is_over(tmp_path: Path) -> None:
    """It stays within the window for as long as the window: the alert waits for longer."""
    cases = [
        Case(name, series, [], f"{minute}m")
        for name, series in BURSTS.items()
        for minute in range(21, 40)
    ]
    done = judged(tmp_path, bare(), cases)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(NAMES))
def test_checker_detects_a_rule_that_never_fires(tmp_path: Path, name: str) -> None:
    rule = {"alert": name, "expr": f"({BY_NAME[name].expression(Setting())}) and vector(0) > 1"}
    cases = [case for case in CASES if case.name == name]
    every = "10m" if cases[0].at == DAY else "1m"
    alone = {"groups": [{"name": "g", "rules": [rule]}]}
    assert judged(tmp_path, yaml.safe_dump(alone), cases, every).returncode != 0


def test_tier_rules_use_metrics_exported_by_nodes() -> None:
    shown = set(re.findall(r"# TYPE (\S+)", render_metrics(Node(parse(("--memory", "64MiB"))))))
    rules = " ".join(rule.expression(Setting()) for rule in GROUPS["emberline-cache"])
    watched = {name.removesuffix("_bucket") for name in re.findall(r"emberline_l2_\w+", rules)}
    assert len(watched) >= 5
    assert watched - shown == set()


def test_rules_on_foreign_exporters_are_marked() -> None:
    for rule in BY_NAME.values():
        others = re.search(r"\b(kube|DCGM)_", rule.expression(Setting()))
        assert bool(rule.needs) == bool(others), rule.name
