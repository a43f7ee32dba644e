"""Channels to receivers: one function a kind of receiver.

`send(target, body, mark)` returns when the receiver has accepted the message, or raises
`PostError`, which states whether a retry makes sense. `mark` is the delivery id, equal in every
attempt, so that receivers can deduplicate.

A webhook gets Alertmanager's webhook document, signed if a secret is set:

    X-Emberline-Signature: t=1763760000,v1=<hex of HMAC-SHA256(secret, "1763760000." + body)>

The signature covers the time, which prevents replays.
"""

from __future__ import annotations

import hmac
import json
import smtplib
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from dashboards.alerts.notify.models import ReceiverKind
from dashboards.alerts.notify.protocol import http_post, message
from dashboards.alerts.notify.protocol.http_post import PostError

SIGNATURE: Final = "X-Emberline-Signature"
DELIVERY: Final = "X-Emberline-Delivery"
NO_SERVER: Final = "No mail server configured. Set EMBERLINE_SMTP_HOST."
_ANSWER_S: Final = 10
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "emberline"}


@dataclass(frozen=True, slots=True)
class DeliveryTarget:
    """Destination of one delivery attempt, never stored. `url` and `secret` are from the vault;
    `to` holds e-mail addresses.
    """

    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    to: tuple[str, ...] = ()


def send_webhook(target: DeliveryTarget, body: Mapping[str, Any], mark: str) -> None:
    data = json.dumps(body, separators=(",", ":")).encode()
    headers = {**_HEADERS, DELIVERY: mark}
    if target.secret:
        headers[SIGNATURE] = signature(target.secret, data, int(time.time()))
    _post(target.url, data, headers)


def signature(secret: str, body: bytes, at: int) -> str:
    signed = hmac.digest(secret.encode(), f"{at}.".encode() + body, "sha256").hex()
    return f"t={at},v1={signed}"


def send_slack(target: DeliveryTarget, body: Mapping[str, Any], _mark: str) -> None:
    """Send to an incoming webhook of Slack, Mattermost or Rocket.Chat. The URL is the secret."""
    _post(target.url, json.dumps(message.slack_payload(body)).encode(), _HEADERS)


def _post(url: str, data: bytes, headers: Mapping[str, str]) -> None:
    """Raise `PostError` unless the server accepted the message.

    The response body is not repeated: it may contain anything, and many people read the delivery
    log.
    """
    answer = http_post.post(url, data, headers)
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        text = f"The receiver returned a redirect (HTTP {answer.status}), which is not followed."
        raise PostError(f"{text} Enter the target URL.", permanent=True)
    later = answer.status in (408, 425, 429) or answer.status >= 500
    raise PostError(
        f"The receiver returned HTTP {answer.status}.",
        permanent=not later,
        after_s=answer.retry_after_s,
    )


def send_email(target: DeliveryTarget, body: Mapping[str, Any], mark: str) -> None:
    """Send through the console's SMTP server (EMBERLINE_SMTP_*), one message to all addresses."""
    mail = settings.MAIL
    if not mail.host:
        raise PostError(NO_SERVER, permanent=True)
    letter = EmailMessage(
        subject=message.format_title(body),
        body=message.format_text(body),
        from_email=mail.sender,
        to=list(target.to),
        # Equal in each attempt, so that mailboxes deduplicate.
        headers={
            "Message-ID": f"<{mark}@{mail.sender.rpartition('@')[2]}>",
            "Auto-Submitted": "auto-generated",
        },
    )
    try:
        letter.connection = _server(mail)
        letter.send()
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        text = f"{mail.host} rejected the recipients ({', '.join(map(str, codes))})."
        raise PostError(text, permanent=all(code >= 500 for code in codes)) from None
    except smtplib.SMTPAuthenticationError as error:
        # Temporary: the message is still due once the password is corrected.
        raise PostError(f"{mail.host} rejected the login ({error.smtp_code}).") from None
    except smtplib.SMTPResponseException as error:
        text = f"{mail.host} returned {error.smtp_code}."
        raise PostError(text, permanent=error.smtp_code >= 500) from None
    except (smtplib.SMTPException, ssl.SSLError, OSError) as error:
        raise PostError(f"{mail.host} is not reachable ({type(error).__name__}).") from None


def _server(mail: Any) -> EmailBackend:
    return EmailBackend(
        host=mail.host,
        port=mail.port,
        username=mail.user,
        password=mail.password,
        use_tls=mail.security == "starttls",
        use_ssl=mail.security == "tls",
        timeout=_ANSWER_S,
    )


BY_KIND: Final[Mapping[str, Callable[[DeliveryTarget, Mapping[str, Any], str], None]]] = {
    ReceiverKind.WEBHOOK: send_webhook,
    ReceiverKind.EMAIL: send_email,
    ReceiverKind.SLACK: send_slack,
}
