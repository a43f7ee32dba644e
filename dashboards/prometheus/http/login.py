"""How the console is let in by a Prometheus or an Alertmanager: what it sends, whom it trusts.

Promises that no secret is in a repr, and that what is signed is what is sent. Pure but for the
credentials of AWS, which are asked for when they are needed; must not know Django or requests.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from dashboards.prometheus.http import aws_credentials, sigv4

TENANT_HEADER = "X-Scope-OrgID"


class Auth(StrEnum):
    NONE = "none"
    BEARER = "bearer"
    BASIC = "basic"
    SIGV4 = "sigv4"
    MTLS = "mtls"


class LoginError(Exception):
    """A sentence for people, without a secret: why nothing could be sent."""


@dataclass(frozen=True, slots=True)
class Login:
    """`username` is also AWS' access key id; `secret` the token, the password, or AWS' secret key
    (without one, AWS' credentials are those of the console's own machine or pod). `ca`,
    `certificate` and `key` are PEM; without `ca` the system's authorities are trusted."""

    auth: Auth = Auth.NONE
    username: str = ""
    secret: str = field(default="", repr=False)
    tenant: str = ""
    tenant_header: str = TENANT_HEADER
    ca: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    region: str = ""
    service: str = "aps"
    # For a URL of the console's own settings, which may lead to this machine (console/core/outbound.py).
    own: bool = False

    def headers(self, method: str, url: str, body: bytes = b"") -> Mapping[str, str]:
        """What this one request carries; `LoginError` where that cannot be made."""
        found = {self.tenant_header: self.tenant} if self.tenant else {}
        if self.auth is Auth.BEARER:
            found["Authorization"] = f"Bearer {self.secret}"
        elif self.auth is Auth.BASIC:
            pair = f"{self.username}:{self.secret}".encode()
            found["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif self.auth is Auth.SIGV4:
            scope = sigv4.Scope(self.region, self.service)
            found |= sigv4.sign(self._aws(), scope, method, url, body, datetime.now(UTC), found)
        return found

    def tls(self) -> ssl.SSLContext:
        """`LoginError` names the text that is no certificate or no key."""
        try:
            context = ssl.create_default_context(cadata=self.ca or None)
        except (ssl.SSLError, ValueError):
            raise LoginError("The CA is no certificate in PEM.") from None
        if self.certificate:
            self._show_certificate(context)
        return context

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        """OpenSSL reads it from files only: they are the owner's alone and gone at once."""
        with tempfile.TemporaryDirectory(prefix="emberline-") as folder:
            certificate, key = Path(folder) / "certificate", Path(folder) / "key"
            certificate.write_text(self.certificate)
            key.touch(mode=0o600)
            key.write_text(self.key)
            try:
                # A password would be asked for on the terminal, where nobody sits.
                context.load_cert_chain(certificate, key, password=lambda: b"")
            except (ssl.SSLError, ValueError, OSError):
                text = "The certificate and its key are no pair in PEM (a key with a password?)."
                raise LoginError(text) from None

    def _aws(self) -> sigv4.Credentials:
        if self.secret:
            return sigv4.Credentials(self.username, self.secret)
        try:
            return aws_credentials.lender.credentials(self.region)
        except aws_credentials.NoCredentialsError as error:
            raise LoginError(str(error)) from None
