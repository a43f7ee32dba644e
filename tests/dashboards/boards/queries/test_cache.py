"""Queries of cache tiers, evaluated by Prometheus."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dashboards.boards import queries
from dashboards.boards.queries import Scope, Times
from dashboards.boards.queries import metric_names as n
from tests.support.prometheus import PROMTOOL

AT = "10m"
# Ten minutes of samples every 5 s.
ALIKE = {"device": "0+3x120", "host": "0+1x120", "local_compute": "0+6x120", "prompt": "0+10x120"}
# Admitted and aborted, or still in prefill: hits are counted, the prompt is not.
AHEAD = {"device": "0+9x120", "host": "0x120", "local_compute": "0+1x120", "prompt": "0+8x120"}
# Half of the callers' tokens; the workers' other hits are those of a benchmark.
BENCHMARK = {**ALIKE, "device": "0+9x120", "host": "0+3x120"}


@pytest.mark.parametrize(
    ("samples", "callers", "worker", "shares"),
    [
        (ALIKE, (4, 6), "", {"device": 0.3, "l1": 0.1, "computed": 0.6}),
        (ALIKE, (), "demo-0", {"device": 0.3, "l1": 0.1, "computed": 0.6}),
        (AHEAD, (), "demo-0", {"device": 0.9, "l1": 0.0, "computed": 0.1}),
        (BENCHMARK, (4, 4), "", {"device": 0.375, "l1": 0.125, "computed": 0.5}),
    ],
    ids=["alike", "worker", "hits-ahead-of-prompts", "benchmark"],
)
def test_shares_of_prompt_tokens_add_up_to_one(
    tmp_path: Path,
    samples: dict[str, str],
    callers: tuple[int, ...],
    worker: str,
    shares: dict[str, float],
) -> None:
    labels = 'job="vllm",namespace="default",endpoint_name="demo",pod="demo-0",instance="a"'
    cached = [
        {"series": f'{n.CACHED}{{{labels},source="{source}"}}', "values": samples[source]}
        for source in ("device", "host")
    ]
    computed = f'{n.BY_SOURCE}{{{labels},source="local_compute"}}'
    given = [
        *cached,
        {"series": computed, "values": samples["local_compute"]},
        {"series": f"{n.PROMPT}{{{labels}}}", "values": samples["prompt"]},
        {"series": f"up{{{labels}}}", "values": "1x120"},
    ]
    for metric, tokens in zip((n.ROUTER_CACHED, n.ROUTER_COMPUTED), callers, strict=False):
        router = 'job="router",namespace="default",endpoint="demo"'
        given += [
            {"series": f"{metric}{{{router}}}", "values": f"0+{tokens}x120"},
            {"series": f'{metric}{{{router},traffic="console"}}', "values": "0+99x120"},
        ]
    scope = Scope("demo", worker=worker)
    query = queries.render_plain("prompt_share_by_source", scope, Times(300, 300))
    wanted = [
        {"labels": f'{{tier="{tier}"}}', "value": share} for tier, share in sorted(shares.items())
    ]
    requested = {"expr": f"round({query}, 0.001)", "eval_time": AT, "exp_samples": wanted}
    test = {"interval": "5s", "input_series": given, "promql_expr_test": [requested]}
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"tests": [test]}))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
