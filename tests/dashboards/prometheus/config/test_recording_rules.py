"""Recording rules, evaluated by Prometheus."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from dashboards.prometheus.config import recording_rules
from tests.support.prometheus import PROMTOOL

OF_A_SERVER = 'namespace="default",endpoint_name="served",job="lmcache",model_name="m"'
OF_A_WORKER = 'namespace="default",endpoint_name="served",job="vllm",pod="served-0"'
IN_PROCESS = 'namespace="default",endpoint_name="own",job="lmcache",worker_id="0"'
PLAIN = 'namespace="default",endpoint_name="plain",job="vllm",pod="plain-0"'
SERIES = {
    f"lmcache_mp_lookup_hit_tokens_total{{{OF_A_SERVER}}}": "0+60x30",
    f"lmcache_mp_lookup_requested_tokens_total{{{OF_A_SERVER}}}": "0+120x30",
    f"lmcache_mp_lookups_requests_total{{{OF_A_SERVER}}}": "0+6x30",
    f"vllm:external_prefix_cache_hits_total{{{OF_A_WORKER}}}": "0+30x30",
    f"vllm:prefix_cache_hits_total{{{OF_A_WORKER}}}": "0+12x30",
    f"vllm:prompt_tokens_total{{{OF_A_WORKER}}}": "0+240x30",
    f"lmcache_num_lookup_hits_total{{{IN_PROCESS}}}": "0+6x30",
    f"lmcache_num_vllm_hit_tokens_total{{{IN_PROCESS}}}": "0+15x30",
    f"vllm:prompt_tokens_total{{{PLAIN}}}": "0+600x30",
    f"vllm:prefix_cache_hits_total{{{PLAIN}}}": "0+600x30",
    f"vllm:external_prefix_cache_hits_total{{{PLAIN}}}": "0+600x30",
}


def promtool(
    folder: Path, *tests: dict[str, Any], rules: str = "recording.yml"
) -> subprocess.CompletedProcess[str]:
    (folder / "recording.yml").write_text(recording_rules.render(recording_rules.groups()))
    data = {"rule_files": [rules], "evaluation_interval": "1m", "tests": tests}
    file = folder / "tests.json"
    file.write_text(json.dumps(data))
    return subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True)


def expression_test(expr: str, *samples: tuple[str, float], at: str = "20m") -> dict[str, Any]:
    found = [{"labels": labels, "value": value} for labels, value in samples]
    return {"expr": expr, "eval_time": at, "exp_samples": found}


def of(series: dict[str, str], *questions: dict[str, Any]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": list(questions),
    }


def test_documented_recording_rules_keep_their_meaning(tmp_path: Path) -> None:
    done = promtool(
        tmp_path,
        of(
            SERIES,
            # The documentation's own hit rate, of a server and of a process.
            expression_test(
                "rate(lmcache:num_lookup_hits_total[5m])"
                " / rate(lmcache:num_lookup_tokens_total[5m])",
                (f"{{{OF_A_SERVER}}}", 0.5),
            ),
            expression_test(
                "rate(lmcache:num_lookup_hits_total[5m])",
                (f"{{{OF_A_SERVER}}}", 1),
                (f"{{{IN_PROCESS}}}", 0.1),
            ),
            expression_test(
                "rate(lmcache:num_lookup_requests_total[5m])", (f"{{{OF_A_SERVER}}}", 0.1)
            ),
            # What LMCache gave, and what vLLM had: the documentation takes one for the other.
            expression_test("rate(lmcache:num_hit_tokens_total[5m])", (f"{{{OF_A_WORKER}}}", 0.5)),
            expression_test(
                "rate(lmcache:num_vllm_hit_tokens_total[5m])",
                (f"{{{OF_A_WORKER}}}", 0.2),
                (f"{{{IN_PROCESS}}}", 0.25),
            ),
            # No worker without LMCache looks as if it had one.
            expression_test("rate(lmcache:num_prompt_tokens_total[5m])", (f"{{{OF_A_WORKER}}}", 4)),
        ),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_restarted_server_loses_no_count(tmp_path: Path) -> None:
    """Added up first and counted afterwards, a restart of one of two would look like a gap."""
    other = OF_A_SERVER.replace('model_name="m"', 'model_name="n"')
    series = {
        f"lmcache_mp_lookup_hit_tokens_total{{{OF_A_SERVER}}}": "0+60x10 0+60x20",
        f"lmcache_mp_lookup_hit_tokens_total{{{other}}}": "6000+60x30",
    }
    hits = expression_test("sum(rate(lmcache:num_lookup_hits_total[5m]))", ("{}", 1.8), at="13m")
    done = promtool(tmp_path, of(series, hits))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_description() -> None:
    for records in recording_rules.GROUPS.values():
        assert len({record.name for record in records}) == len(records)
        assert all(record.meaning.endswith(".") for record in records)
