"""Alertmanager webhook document to any server, signed if a secret is set.

    X-Emberline-Signature: t=1763760000,v1=<hex of HMAC-SHA256(secret, "1763760000." + body)>

The signature covers the time, which prevents replays.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from dashboards.alerts.notify.channels.target import DeliveryTarget, expect_accepted
from dashboards.alerts.notify.protocol import http_post

SIGNATURE: Final = "X-Emberline-Signature"
DELIVERY: Final = "X-Emberline-Delivery"


def send(target: DeliveryTarget, body: Mapping[str, Any], mark: str) -> None:
    data = json.dumps(body, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "emberline",
        DELIVERY: mark,
    }
    if target.secret:
        headers[SIGNATURE] = signature(target.secret, data, int(time.time()))
    expect_accepted(http_post.post(target.url, data, headers))


def signature(secret: str, body: bytes, at: int) -> str:
    signed = hmac.digest(secret.encode(), f"{at}.".encode() + body, "sha256").hex()
    return f"t={at},v1={signed}"
