"""The scrape configuration is accepted by Prometheus."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.alerts.rules import rule_file as alerts_rules
from dashboards.prometheus.config.scrape_config import LMCACHE_NAMES, AlertmanagerTarget, render
from tests.support.prometheus import PROMTOOL


def test_values_reach_prometheus_unchanged() -> None:
    config = yaml.safe_load(render("http://127.0.0.1:8000/", "/var/x y/token", interval_s=15))
    assert config["global"]["scrape_interval"] == "15s"
    job, own = config["scrape_configs"]
    assert (own["metrics_path"], own["scheme"]) == ("/prometheus/console", "http")
    assert own["static_configs"][0]["targets"] == ["127.0.0.1:8000"]
    assert job["metrics_path"] == "/metrics"
    (discovery,) = job["http_sd_configs"]
    assert discovery["url"] == "http://127.0.0.1:8000/prometheus/targets"
    assert discovery["authorization"] == {"type": "Bearer", "credentials_file": "/var/x y/token"}


@pytest.mark.parametrize("path", ["/plain/token", '/a "quoted"/to: ken', "/back\\slash#"])
def test_promtool_accepts_any_path(tmp_path: Path, path: str) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    file = tmp_path / "prometheus.yml"
    file.write_text(render("http://127.0.0.1:8000", path))
    assert (
        yaml.safe_load(file.read_text())["scrape_configs"][0]["http_sd_configs"][0][
            "authorization"
        ]["credentials_file"]
        == path
    )
    file.write_text(render("http://127.0.0.1:8000", str(token)))
    done = subprocess.run([PROMTOOL, "check", "config", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_scrape_config_and_rules(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    rules = tmp_path / 'a "quoted" name.yml'
    rules.write_text(alerts_rules.render())
    file = tmp_path / "prometheus.yml"
    token = str(tmp_path / "token")
    managers = (AlertmanagerTarget("127.0.0.1:9093", "emberline", token),)
    url = "http://127.0.0.1:8000"
    file.write_text(render(url, token, rule_files=(str(rules),), alertmanagers=managers))
    *_, job = yaml.safe_load(file.read_text())["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["127.0.0.1:9093"]
    assert job["basic_auth"] == {"username": "emberline", "password_file": token}
    done = subprocess.run([PROMTOOL, "check", "config", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts_rules.RULES)} rules found" in done.stdout


def test_an_interval_below_a_second_is_refused() -> None:
    with pytest.raises(ValueError, match="interval_s=0"):
        render("http://127.0.0.1:8000", "/token", interval_s=0)


def test_lmcache_names_get_their_colons_and_its_server_is_unchanged() -> None:
    """Prometheus' patterns are anchored at both ends."""
    pattern = re.compile(LMCACHE_NAMES)
    for name in ("num_lookup_hits_total", "request_cache_hit_rate_bucket", "local_cache_usage"):
        assert pattern.fullmatch(f"lmcache_{name}"), name
    for name in (
        "lmcache_mp_lookups_requests_total",
        "lmcache_blend_x",
        "vllm:num_requests_running",
    ):
        assert not pattern.fullmatch(name), name
