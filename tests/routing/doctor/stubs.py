"""Healthy worker and router responses for `http_stub`."""

from __future__ import annotations

from typing import Any

from routing.doctor.checks.availability import METRICS

CONFIG = 'vllm:cache_config_info{block_size="16",prefix_caching_hash_algo="xxhash"} 1.0\n'
TOKENS = {"count": 2, "tokens": [1, 2]}
WORKER: dict[str, Any] = {
    "/version": (200, {"version": "0.32.0"}),
    "/v1/models": (200, {"data": [{"id": "demo", "root": "r", "max_model_len": 64}]}),
    "/metrics": (200, CONFIG),
    "/kv_event_sources": (200, {"0": {"endpoint": "tcp://*:1", "buffer_steps": 5}}),
    "/tokenize": (200, TOKENS),
}


def router_of(*urls: str, **more: Any) -> dict[str, Any]:
    listed = [{"id": f"w{i}", "url": url, "state": "up"} for i, url in enumerate(urls)]
    answers: dict[str, Any] = {
        "/workers": (200, {"workers": listed}),
        "/config": (200, {"config": {"strategy": "kvaware"}, "needs_restart": []}),
        "/index": (200, {"kv": {"telling": True}}),
        "/decisions": (200, {"decisions": []}),
        "/metrics": (200, "".join(f"{name} 1\n" for name in METRICS)),
    }
    return answers | more
