"""kvaware without usable KV events in the complete product: reported, Degraded, recovered.
(The form rejects misconfigured workers; tests/routing covers those.)
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.product.product import Product, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SPEC = {
    "name": "seer",
    "model": "smollm2-135m-instruct",
    "engine": "simulated",
    "replicas": 2,
    "cache": {"l1": {"enabled": False}, "l2": {"enabled": False}},
    "routing": {"enabled": True, "strategy": "kvaware"},
}
STORY = "Tell me a story of a lighthouse, long and slow. " * 30
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def findings(product: Product) -> dict[str, Any]:
    answer = product.api("GET", "/endpoints/seer/doctor/")
    assert answer.status_code == 200, answer.text
    return {finding["code"]: finding for finding in answer.json()["findings"]}


def send_pictures(product: Product, times: int) -> None:
    url, key = product.endpoint("seer")["url"], product.key("seer")
    parts = [{"type": "text", "text": "What is this?"}, PICTURE]
    for _ in range(times):
        body = {"model": "seer", "max_tokens": 1, "messages": [{"role": "user", "content": parts}]}
        headers = {"Authorization": f"Bearer {key}"}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=120)
        assert answer.status_code == 200, answer.text


def follows_both(product: Product) -> bool:
    """Return whether the router uses the KV events of both workers: a moment after Ready."""
    kv = product.api("GET", "/endpoints/seer/kv-index/").json()["kv"]
    states = [source["state"] for source in kv["sources"]]
    return bool(kv["telling"]) and states == ["following"] * 2


def test_silent_fallback_is_detected_degrades_and_recovers(simulated: Product) -> None:
    assert simulated.api("POST", "/endpoints/", SPEC).status_code == 201
    simulated.wait_phase("seer", "Ready", 90)
    eventually("events of both workers", lambda: follows_both(simulated))
    assert not {"KvEventsOff", "KvEventsNotFollowed", "RoutingFallback"} & set(findings(simulated))
    send_pictures(simulated, 40)
    content = findings(simulated)
    assert "multimodal: 40 of" in " ".join(content["RoutingFallback"]["evidence"])
    assert "prefixaware" in content["RequestFormUnsupported"]["fix"]
    words = ("emberline", "endpoint", "doctor", "seer", "-o", "json")
    assert json.loads(simulated.manage(*words, code=2))["verdict"] == "error"
    client = simulated.sign_in()
    page = client.get("/routing/endpoints/seer/doctor/?run=1").text
    assert 'data-finding="RoutingFallback"' in page
    assert "seer-worker-1" in client.get("/routing/endpoints/seer/kv/").text

    degraded = simulated.wait_phase("seer", "Degraded", 90)
    assert degraded["reason"] == "RoutingFallback"
    assert "multimodal" in degraded["message"]
    assert "emberline endpoint doctor seer" in degraded["remedy"]
    assert degraded["ready_replicas"] == 2, "every request is answered all the same"

    def healed() -> bool:
        for number in range(15):
            assert simulated.ask("seer", f"{number} {STORY}").status_code == 200
        return bool(simulated.endpoint("seer")["phase"] == "Ready")

    eventually("it is Ready again by itself", healed)
    assert "RoutingFallback" not in findings(simulated)
    assert simulated.api("DELETE", "/endpoints/seer/").status_code in (202, 204)
    eventually("gone", lambda: simulated.api("GET", "/endpoints/seer/").status_code == 404)


def test_embedded_prometheus_has_the_product_rules(simulated: Product) -> None:
    port = json.loads((simulated.var / "launcher.json").read_text())["prometheus_port"]
    data = httpx.get(f"http://127.0.0.1:{port}/api/v1/rules", timeout=60).json()["data"]
    rules = {rule["name"]: rule for group in data["groups"] for rule in group["rules"]}
    assert {"RoutingFallback", "IndexStale", "KvProbeFailing"} <= set(rules)
    assert not [name for name, rule in rules.items() if rule["health"] == "err"], rules
