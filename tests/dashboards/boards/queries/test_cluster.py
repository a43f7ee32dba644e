"""Queries of cluster exporters read only the pods of an endpoint."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.boards.queries import QUERIES, Scope, Times, growth
from tests.dashboards.prometheus.config.test_recording_rules import expression_test, of
from tests.support.prometheus import PROMTOOL

LABELS = '{pod="demo-0"}'
DEMO = Scope("demo")
KNOWN = replace(DEMO, pods=("demo-0",))
WORKER = 'job="vllm",namespace="default",endpoint_name="demo",pod="demo-0"'
KEPT = 'namespace="default",pod="{}",container="vllm"'
EXPORTED = 'namespace="gpu",pod="exporter-1",exported_namespace="default",exported_pod="{}"'


@pytest.mark.parametrize("labels", [KEPT, EXPORTED])
def test_known_pods_do_not_change_the_values(tmp_path: Path, labels: str) -> None:
    """With the exporter's own pod labels kept, and without."""
    metric = "DCGM_FI_DEV_GPU_UTIL" if labels == EXPORTED else "container_memory_working_set_bytes"
    name = "gpu_util_by_worker" if labels == EXPORTED else "pod_memory_by_worker"
    series = {f"up{{{WORKER}}}": "1x30"}
    # The second begins like the first, and belongs to another endpoint.
    for number, pod in enumerate(("demo-0", "demo-0-other"), 1):
        series[f"{metric}{{{labels.format(pod)}}}"] = f"{number}00x30"
    value = 1.0 if labels == EXPORTED else 100.0
    questions = [
        expression_test(growth.render_for_chart(name, scope, Times(5, 900)), (LABELS, value))
        for scope in (DEMO, KNOWN)
    ]
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [of(series, *questions)]}))
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_query_by_pod_selects_the_known_ones() -> None:
    by_worker = [
        name for name in QUERIES if "by_worker" in name and name.startswith(("gpu", "pod"))
    ]
    assert len(by_worker) >= 9
    for name in (*by_worker, "restarts_by_worker", "pods_ready", "gpu_faults"):
        text = QUERIES[name](KNOWN, Times(5, 900))
        assert 'pod=~"demo\\\\-0"' in text, name
        assert 'exported_pod=~"demo\\\\-0"' in text, name
