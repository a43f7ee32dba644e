"""E-mail through the console's SMTP server (EMBERLINE_SMTP_*), one message to all addresses."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from dashboards.alerts.notify.channels.target import DeliveryTarget
from dashboards.alerts.notify.protocol import message
from dashboards.alerts.notify.protocol.http_post import PostError

_ANSWER_S: Final = 10
NO_SERVER: Final = "This console has no mail server: set EMBERLINE_SMTP_HOST."


def send(target: DeliveryTarget, body: Mapping[str, Any], mark: str) -> None:
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
        text = f"{mail.host} refuses its addresses ({', '.join(map(str, codes))})."
        raise PostError(text, permanent=all(code >= 500 for code in codes)) from None
    except smtplib.SMTPAuthenticationError as error:
        # Temporary: the message is still due once the password is corrected.
        raise PostError(f"{mail.host} does not know us ({error.smtp_code}).") from None
    except smtplib.SMTPResponseException as error:
        text = f"{mail.host} answered {error.smtp_code}."
        raise PostError(text, permanent=error.smtp_code >= 500) from None
    except (smtplib.SMTPException, ssl.SSLError, OSError) as error:
        raise PostError(f"{mail.host} cannot be used ({type(error).__name__}).") from None


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
