"""Channels to receivers: one module a kind, each with a function `send`.

`send(target, body, mark)` returns when the receiver has accepted the message, or raises
`PostError`, which states whether a retry makes sense. `mark` is the delivery id, equal in every
attempt, so that receivers can deduplicate.
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
