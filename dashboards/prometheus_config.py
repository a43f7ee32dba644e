"""The scrape configuration of the Prometheus that this machine runs for itself.

Promises that what to scrape is asked of the console (http_sd), so nobody edits a file when an
endpoint comes or goes, and that the token is named by its file, never written here. Pure text;
must not know Django.

Two traps are met here. The path is `/metrics` without a slash: with one, vLLM answers OpenMetrics
and its `vllm:` names become `vllm_`. And `instance` is the worker's name rather than its address,
so that a worker which comes back on another port continues its series.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

TARGETS_PATH = "/prometheus/targets"
OWN_PATH = "/prometheus/console"
OWN_S = 30


def render(
    console_url: str, token_file: str, interval_s: int = 5, rule_files: tuple[str, ...] = ()
) -> str:
    """prometheus.yml for a console at `console_url`, whose targets need the token in the file."""
    if interval_s < 1:
        raise ValueError(f"interval_s={interval_s}: a scrape interval is at least 1 second")
    timeout_s = min(interval_s, 10)
    # JSON's quoted texts are valid YAML, whatever a path holds.
    url = json.dumps(console_url.rstrip("/") + TARGETS_PATH)
    parts = urlsplit(console_url)
    token = json.dumps(token_file)
    rules = json.dumps(list(rule_files))
    return f"""\
# Written by Emberline at every start; changes here are lost.
global:
  scrape_interval: {interval_s}s
  scrape_timeout: {timeout_s}s
  evaluation_interval: {interval_s}s
rule_files: {rules}
scrape_configs:
  - job_name: emberline
    metrics_path: /metrics
    # Our exporters name their endpoint and namespace themselves; keep them, without exported_.
    honor_labels: true
    http_sd_configs:
      - url: {url}
        refresh_interval: {interval_s}s
        authorization:
          type: Bearer
          credentials_file: {token}
    relabel_configs:
      - source_labels: [pod]
        regex: (.+)
        target_label: instance
  # What the console itself tells, such as how much of a budget is spent.
  - job_name: console
    metrics_path: {OWN_PATH}
    scheme: {parts.scheme}
    scrape_interval: {max(interval_s, OWN_S)}s
    authorization:
      type: Bearer
      credentials_file: {token}
    static_configs:
      - targets: [{json.dumps(parts.netloc)}]
        labels: {{instance: console}}
"""
