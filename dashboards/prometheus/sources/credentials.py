"""Build logins from source rows or the environment.

Secret files are confined to the console's folder and read each time, so that a replaced token takes
effect at once.
"""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from console.core import confined_files
from console.core.confined_files import FileRefused
from console.core.environment import PrometheusLogin
from console.vault import encryption
from dashboards.prometheus.http.login import Auth, Login, LoginError
from dashboards.prometheus.sources.models import MetricsSource

FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_MOST_BYTES = 64 * 1024


def get_folder() -> Path:
    return Path(settings.EMBERLINE.metrics_secrets)


def make_login(source: MetricsSource) -> Login:
    auth = Auth(source.auth)
    return Login(
        auth=auth,
        username=source.username,
        secret=_secret(source, "secret", source.secret_file),
        tenant=source.tenant,
        tenant_header=source.tenant_header,
        ca=source.ca,
        certificate=source.certificate,
        key=_secret(source, "key", source.key_file),
        region=source.region,
        service=source.service,
    )


def make_own_login(said: PrometheusLogin) -> Login:
    """Build the login of PROMETHEUS_URL. Raises `LoginError` when a file cannot be read."""
    return Login(
        auth=Auth(said.auth),
        username=said.username,
        secret=said.secret or _content(said.secret_file),
        tenant=said.tenant,
        ca=_content(said.ca_file),
        certificate=_content(said.certificate_file),
        key=_content(said.key_file),
        region=said.region,
        own=True,
    )


def _secret(source: MetricsSource, field: str, file: str) -> str:
    if file:
        return _read(file)
    sealed = source.sealed.get(field, "")
    if not sealed:
        return ""
    try:
        return encryption.unseal(sealed, source.purpose(field))
    except encryption.Unreadable:
        text = f"The {field} of {source.name} cannot be read with the present encryption key: "
        raise LoginError(f"{text}give it anew, or give the console its earlier key.") from None


def _read(name: str) -> str:
    if not FILE_NAME.fullmatch(name):
        raise LoginError(f"{name!r} is no name of a file in the console's folder of secrets.")
    try:
        return confined_files.read_text(str(get_folder() / name), get_folder()).strip()
    except FileRefused as refused:
        raise LoginError(f"The file {name} cannot be read: {refused}.") from None


def _content(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_MOST_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is no text"
        raise LoginError(f"The file {path.name} cannot be read ({why}).") from None
