"""AWS Signature Version 4, and the AWS credentials of the console's own machine or pod.

Credentials are searched in the order of the AWS SDKs: environment, shared credentials file, web
identity (IRSA), container agent (EKS Pod Identity, ECS). Temporary ones are cached until shortly
before they expire. The EC2 metadata service is not used: in a cluster it would provide the node's
role, shared by all pods.
"""

from __future__ import annotations

import configparser
import hashlib
import hmac
import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import httpx

from console.core.fetch import fetch

_ALGORITHM = "AWS4-HMAC-SHA256"
_DEADLINE_S = 3.0
_MOST_BYTES = 64 * 1024
_EARLY = timedelta(minutes=5)
_ECS = "http://169.254.170.2"
_AGENTS = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23", "127.0.0.1", "localhost", "::1")
_TOLD = re.compile(r"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration)>([^<]*)<")
_CODE = re.compile(r"<Code>([A-Za-z.]{1,60})</Code>")
_SESSION = "emberline"


@dataclass(frozen=True, slots=True)
class Credentials:
    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Scope:
    region: str
    service: str


def sign(
    credentials: Credentials,
    scope: Scope,
    method: str,
    url: str,
    body: bytes,
    at: datetime,
    more: Mapping[str, str],
) -> dict[str, str]:
    """Return the authentication headers. `more` are further headers to sign; the host is always
    signed.
    """
    moment = at.strftime("%Y%m%dT%H%M%SZ")
    own = {"X-Amz-Date": moment}
    if credentials.token:
        own["X-Amz-Security-Token"] = credentials.token
    headers = {"host": _host(url), **more, **own}
    canonical, signed = _canonical(method, url, headers, body)
    place = f"{moment[:8]}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join((_ALGORITHM, moment, place, _digest(canonical.encode())))
    signature = hmac.new(_key(credentials.secret, place), text.encode(), "sha256").hexdigest()
    own["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.key_id}/{place}, "
        f"SignedHeaders={signed}, Signature={signature}"
    )
    return own


def _host(url: str) -> str:
    """Return the Host header: without the scheme's default port."""
    parts = urlsplit(url)
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return parts.netloc.removesuffix(usual) if usual else parts.netloc


def _canonical(method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    parts = urlsplit(url)
    # The canonical path is encoded once more than the sent path, for every service except S3.
    path = quote(parts.path or "/", safe="/-_.~")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in pairs)
    named = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed = ";".join(sorted(named))
    lines = (
        method,
        path,
        "&".join(f"{name}={value}" for name, value in query),
        *(f"{name}:{named[name]}" for name in sorted(named)),
        "",
        signed,
        _digest(body),
    )
    return "\n".join(lines), signed


def _key(secret: str, place: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in place.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class NoCredentialsError(Exception): ...


@dataclass(frozen=True, slots=True)
class _CachedCredentials:
    credentials: Credentials
    until: datetime


class CredentialsProvider:
    """The process's cached credentials. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent: _CachedCredentials | None = None

    def credentials(self, region: str, env: Mapping[str, str] = os.environ) -> Credentials:
        found = _read_environment(env) or _read_credentials_file(env)
        if found is not None:
            return found
        with self._lock:
            if self._lent is None or datetime.now(UTC) > self._lent.until - _EARLY:
                self._lent = _assume_web_identity(region, env) or _query_container_agent(env)
            if self._lent is None:
                raise NoCredentialsError(
                    "No AWS credentials: enter an access key, or give the console's pod a "
                    "role (IRSA or Pod Identity)."
                )
            return self._lent.credentials


lender = CredentialsProvider()


def _read_environment(env: Mapping[str, str]) -> Credentials | None:
    key_id, secret = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    if not key_id or not secret:
        return None
    return Credentials(key_id, secret, env.get("AWS_SESSION_TOKEN", ""))


def _read_credentials_file(env: Mapping[str, str]) -> Credentials | None:
    named = env.get("AWS_SHARED_CREDENTIALS_FILE", "")
    path = Path(named).expanduser() if named else Path.home() / ".aws" / "credentials"
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
        profile = parser[env.get("AWS_PROFILE", "default")]
        token = profile.get("aws_session_token", "")
        return Credentials(profile["aws_access_key_id"], profile["aws_secret_access_key"], token)
    except (OSError, UnicodeDecodeError, KeyError, configparser.Error):
        return None


def _assume_web_identity(region: str, env: Mapping[str, str]) -> _CachedCredentials | None:
    role, file = env.get("AWS_ROLE_ARN"), env.get("AWS_WEB_IDENTITY_TOKEN_FILE")
    if not role or not file:
        return None
    base = env.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
    params = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": role,
        "RoleSessionName": env.get("AWS_ROLE_SESSION_NAME") or _SESSION,
        "WebIdentityToken": _read(file),
    }
    # In the body: proxies log URLs.
    body = _send_request("POST", base, "STS", form=params)
    words = {name: unescape(value) for name, value in _TOLD.findall(body)}
    return _parse_credentials(words, "SessionToken", "STS")


def _query_container_agent(env: Mapping[str, str]) -> _CachedCredentials | None:
    relative, url = env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), ""
    url = f"{_ECS}{relative}" if relative else env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
    if not url:
        return None
    if urlsplit(url).scheme != "https" and urlsplit(url).hostname not in _AGENTS:
        raise NoCredentialsError(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI is not a container credentials endpoint."
        )
    token = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    file = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    if file:
        token = _read(file)
    body = _send_request(
        "GET", url, "The container credentials endpoint", {"Authorization": token} if token else {}
    )
    try:
        words = {str(name): str(value) for name, value in json.loads(body).items()}
    except (ValueError, AttributeError):
        words = {}
    return _parse_credentials(words, "Token", "The container credentials endpoint")


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is no text"
        raise NoCredentialsError(f"{file} cannot be read ({why}).") from None


def _send_request(
    method: str,
    url: str,
    who: str,
    headers: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
) -> str:
    limits: Any = {"deadline_s": _DEADLINE_S, "max_bytes": _MOST_BYTES}
    try:
        status, body = fetch(method, url, headers=headers, form=form, **limits)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoCredentialsError(f"No response from {who} ({type(error).__name__}).") from None
    text = body.decode("utf-8", "replace")
    if status != 200:
        code = _CODE.search(text)
        raise NoCredentialsError(f"{who} denied access: {code[1] if code else f'HTTP {status}'}.")
    return text


def _parse_credentials(words: Mapping[str, str], token: str, who: str) -> _CachedCredentials:
    try:
        made = Credentials(words["AccessKeyId"], words["SecretAccessKey"], words[token])
        return _CachedCredentials(made, datetime.fromisoformat(words["Expiration"]))
    except (KeyError, ValueError):
        raise NoCredentialsError(f"The response of {who} contains no credentials.") from None
