"""Destination of one delivery attempt, with its secrets; never stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from dashboards.alerts.notify.protocol.http_post import PostError, PostReply


@dataclass(frozen=True, slots=True)
class DeliveryTarget:
    """`url` and `secret` are from the vault; `to` holds e-mail addresses."""

    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    to: tuple[str, ...] = ()


def expect_accepted(answer: PostReply) -> None:
    """Raise `PostError` unless the server accepted the message.

    The response body is not repeated: it may contain anything, and many people read the delivery
    log.
    """
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        text = f"It answers with a redirect (HTTP {answer.status}), and none is followed."
        raise PostError(f"{text} Give the address it leads to.", permanent=True)
    later = answer.status in (408, 425, 429) or answer.status >= 500
    raise PostError(
        f"It answered HTTP {answer.status}.", permanent=not later, after_s=answer.retry_after_s
    )
