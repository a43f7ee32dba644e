"""Credentials and TLS settings for a Prometheus or an Alertmanager. No secret appears in a repr."""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from console.core.fetch import system_tls
from dashboards.prometheus.http import aws

TENANT_HEADER = "X-Scope-OrgID"


class Auth(StrEnum):
    NONE = "none"
    BEARER = "bearer"
    BASIC = "basic"
    SIGV4 = "sigv4"
    MTLS = "mtls"


class LoginError(Exception):
    """Reason why no request could be sent, for users, without secrets."""


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials of a metrics source. `username` is also the AWS access key id; `secret` is the
    token, the password or the AWS secret key (without one, the AWS credentials of the console's
    machine or pod are used). `ca`, `certificate` and `key` are PEM; without `ca` the system's CAs
    apply.
    """

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
    # For a URL from the console's settings, which may be local (console/core/outbound.py).
    own: bool = False

    def headers(self, method: str, url: str, body: bytes = b"") -> Mapping[str, str]:
        """Return the authentication headers of one request. Raises `LoginError`."""
        headers = {self.tenant_header: self.tenant} if self.tenant else {}
        if self.auth is Auth.BEARER:
            headers["Authorization"] = f"Bearer {self.secret}"
        elif self.auth is Auth.BASIC:
            pair = f"{self.username}:{self.secret}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif self.auth is Auth.SIGV4:
            key = (self.username, self.secret) if self.secret else None
            try:
                headers |= aws.sign(key, self.region, self.service, method, url, body, headers)
            except aws.SigningError as error:
                raise LoginError(str(error)) from None
        return headers

    def tls(self) -> ssl.SSLContext:
        """Raises `LoginError` naming the invalid certificate or key."""
        if not self.ca and not self.certificate:
            return system_tls()
        try:
            context = ssl.create_default_context(cadata=self.ca or None)
        except (ssl.SSLError, ValueError):
            raise LoginError("The CA is not a PEM certificate.") from None
        if self.certificate:
            self._show_certificate(context)
        return context

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        """Load the client certificate via owner-only temporary files: OpenSSL reads only files."""
        with tempfile.TemporaryDirectory(prefix="emberline-") as folder:
            certificate, key = Path(folder) / "certificate", Path(folder) / "key"
            certificate.write_text(self.certificate)
            key.touch(mode=0o600)
            key.write_text(self.key)
            try:
                # Without it OpenSSL would prompt for a password on the terminal.
                context.load_cert_chain(certificate, key, password=lambda: b"")
            except (ssl.SSLError, ValueError, OSError):
                text = (
                    "The certificate and key are not a matching PEM pair, or the key is encrypted."
                )
                raise LoginError(text) from None
