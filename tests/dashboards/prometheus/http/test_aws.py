"""AWS: signatures against published vectors, and the sources of credentials."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.auth
import pytest

from dashboards.prometheus.http import aws
from dashboards.prometheus.http.aws import SigningError, sign
from tests.support.http_stub import http_stub

AT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
KEY = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
HOST = "https://example.amazonaws.com"
TOKEN = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"
LETTERS = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# Of AWS' test suite for Signature Version 4: name, method, URL, headers, body, signature.
VECTORS: list[tuple[str, str, str, Mapping[str, str], bytes, str]] = [
    (
        *("get-vanilla", "GET", "/", {}, b""),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    (
        *("post-vanilla", "POST", "/", {}, b""),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    (
        *("get-unreserved", "GET", f"/{LETTERS}", {}, b""),
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
    ),
    (
        *("get-vanilla-query-order-key-case", "GET", "/?Param2=value2&Param1=value1", {}, b""),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        *("get-vanilla-query-order-value", "GET", "/?Param1=value2&Param1=value1", {}, b""),
        "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694",
    ),
    (
        *("get-vanilla-utf8-query", "GET", "/?%E1%88%B4=bar", {}, b""),
        "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
    ),
    (
        *("get-header-value-trim", "GET", "/"),
        *({"My-Header1": " value1", "My-Header2": '"a   b   c"'}, b""),
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    (
        *("post-x-www-form-urlencoded", "POST", "/", FORM, b"Param1=value1"),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
]


@pytest.fixture
def at_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock of botocore to that of the published vectors."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: AT)


@pytest.mark.usefixtures("at_that_time")
@pytest.mark.parametrize("vector", VECTORS, ids=[one[0] for one in VECTORS])
def test_signatures_equal_the_published_vectors(
    vector: tuple[str, str, str, Mapping[str, str], bytes, str],
) -> None:
    _, method, path, headers, body, signature = vector
    for host in (HOST, f"{HOST}:443"):
        made = sign(KEY, "us-east-1", "service", method, f"{host}{path}", body, headers)
        assert made["Authorization"].rpartition("Signature=")[2] == signature


def test_space_in_a_query_is_signed_as_servers_read_it() -> None:
    plus, percent = (
        sign(KEY, "r", "aps", "GET", f"{HOST}/?query=a{space}b", b"", {}) for space in ("+", "%20")
    )
    assert plus["Authorization"] == percent["Authorization"]


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Begin without any source of credentials, cached ones included."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    aws._session.cache_clear()
    yield
    aws._session.cache_clear()


def signed() -> dict[str, str]:
    return sign(None, "eu-central-1", "aps", "GET", f"{HOST}/", b"", {})


def key_id(headers: Mapping[str, str]) -> str:
    return headers["Authorization"].split("Credential=")[1].split("/")[0]


@pytest.mark.usefixtures("no_credentials")
def test_environment_precedes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SigningError, match="enter an access key"):
        signed()
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = F\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    aws._session.cache_clear()
    assert key_id(signed()) == "F"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    aws._session.cache_clear()
    assert key_id(signed()) == "E"


def test_metadata_service_of_the_machine_is_not_used() -> None:
    providers = aws._session("eu-central-1").get_component("credential_provider").providers
    assert "iam-role" not in [one.METHOD for one in providers]
    assert "container-role" in [one.METHOD for one in providers]


def sts_response(minutes: int) -> str:
    until = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        "<AssumeRoleWithWebIdentityResult><Credentials><SessionToken>t&#x2b;</SessionToken>"
        f"<SecretAccessKey>s</SecretAccessKey><Expiration>{until}</Expiration>"
        "<AccessKeyId>ASIA</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>"
        "</AssumeRoleWithWebIdentityResponse>"
    )


@pytest.fixture
def web_identity(
    no_credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> pytest.MonkeyPatch:
    (tmp_path / "token").write_text("jwt-of-the-pod")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/emberline")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    return monkeypatch


def test_web_identity_is_cached_until_it_expires(web_identity: pytest.MonkeyPatch) -> None:
    with http_stub({"/": (200, sts_response(60))}) as stub:
        web_identity.setenv("AWS_ENDPOINT_URL_STS", stub.url)
        for _ in range(2):
            headers = signed()
            assert (key_id(headers), headers["X-Amz-Security-Token"]) == ("ASIA", "t+")
        ((method, path, body),) = stub.seen
        assert (method, path, b"WebIdentityToken=jwt-of-the-pod" in body) == ("POST", "/", True)


def test_sts_error_is_reported_without_its_token(web_identity: pytest.MonkeyPatch) -> None:
    denied = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
    with http_stub({"/": (403, denied)}) as stub:
        web_identity.setenv("AWS_ENDPOINT_URL_STS", stub.url)
        with pytest.raises(SigningError, match=r"^AWS denied access: AccessDenied\.$"):
            signed()
    web_identity.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere")
    aws._session.cache_clear()
    with pytest.raises(SigningError, match="cannot be read"):
        signed()


@pytest.mark.usefixtures("no_credentials")
def test_container_agent_is_queried_with_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    made = {"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": until}
    with http_stub({"/v1/credentials": (200, json.dumps(made))}) as stub:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{stub.url}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        assert key_id(signed()) == "A"
        assert stub.headers[0]["Authorization"] == "of-the-pod"
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/")
    aws._session.cache_clear()
    with pytest.raises(SigningError, match="cannot be read"):
        signed()
