"""How a receiver of each kind is told: one module a kind, one function `send`.

`send(target, body, mark)` returns when the receiver has taken the message, or raises `Unsent`,
which says whether another attempt is worth it. `mark` is the delivery's id: the same in each
attempt, so that a receiver can tell a repeated message from a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dashboards.alerts.notify.channels import email, slack, webhook
from dashboards.alerts.notify.channels.target import DeliveryTarget
from dashboards.alerts.notify.models import ReceiverKind
from dashboards.alerts.notify.protocol.http_post import PostError

Send = Callable[[DeliveryTarget, Mapping[str, Any], str], None]
BY_KIND: Mapping[str, Send] = {
    ReceiverKind.WEBHOOK: webhook.send,
    ReceiverKind.EMAIL: email.send,
    ReceiverKind.SLACK: slack.send,
}

__all__ = ["BY_KIND", "DeliveryTarget", "PostError", "Send"]
