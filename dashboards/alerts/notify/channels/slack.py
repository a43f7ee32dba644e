"""Incoming webhook of Slack, Mattermost and Rocket.Chat. The URL is the secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dashboards.alerts.notify.channels.target import DeliveryTarget, expect_accepted
from dashboards.alerts.notify.protocol import http_post, message


def send(target: DeliveryTarget, body: Mapping[str, Any], _mark: str) -> None:
    data = json.dumps(message.slack_payload(body)).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "emberline"}
    expect_accepted(http_post.post(target.url, data, headers))
