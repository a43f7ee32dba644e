"""AWS: the signer against published vectors, and the sources of credentials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dashboards.prometheus.http.aws import (
    Credentials,
    CredentialsProvider,
    NoCredentialsError,
    Scope,
    sign,
)
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


@pytest.mark.parametrize("vector", VECTORS, ids=[one[0] for one in VECTORS])
def test_signatures_equal_the_published_vectors(
    vector: tuple[str, str, str, Mapping[str, str], bytes, str],
) -> None:
    _, method, path, headers, body, signature = vector
    scope = Scope("us-east-1", "service")
    for host in (HOST, f"{HOST}:443"):
        found = sign(Credentials(*KEY), scope, method, f"{host}{path}", body, AT, headers)
        assert found["Authorization"].rpartition("Signature=")[2] == signature


def test_session_token_is_signed_too() -> None:
    scope = Scope("us-east-1", "service")
    found = sign(Credentials(*KEY, TOKEN), scope, "GET", f"{HOST}/", b"", AT, {})
    assert found["X-Amz-Security-Token"] == TOKEN
    assert found["Authorization"].endswith(
        "SignedHeaders=host;x-amz-date;x-amz-security-token, "
        "Signature=07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"
    )


def get_credentials(env: Mapping[str, str]) -> Credentials:
    quiet = {"AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    return CredentialsProvider().credentials("eu-central-1", {**quiet, **env})


def test_environment_precedes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[work]\naws_access_key_id = F\naws_secret_access_key = %s\n")
    of_file = {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_PROFILE": "work"}
    assert get_credentials(of_file) == Credentials("F", "%s")
    of_both = {**of_file, "AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "s"}
    assert get_credentials(of_both) == Credentials("E", "s")
    with pytest.raises(NoCredentialsError, match="enter an access key"):
        get_credentials({})


def sts_response(minutes: int) -> str:
    until = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        "<AssumeRoleWithWebIdentityResult><Credentials><SessionToken>t&#x2b;</SessionToken>"
        f"<SecretAccessKey>s</SecretAccessKey><Expiration>{until}</Expiration>"
        "<AccessKeyId>ASIA</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>"
        "</AssumeRoleWithWebIdentityResponse>"
    )


@pytest.mark.parametrize(("minutes", "questions"), [(60, 1), (4, 2)])
def test_web_identity_is_cached_until_shortly_before_it_expires(
    tmp_path: Path, minutes: int, questions: int
) -> None:
    (tmp_path / "token").write_text("jwt-of-the-pod\n")
    with http_stub({"/": (200, sts_response(minutes))}) as stub:
        env = {
            "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/emberline",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ENDPOINT_URL_STS": stub.url,
        }
        lender = CredentialsProvider()
        for _ in range(2):
            assert lender.credentials("eu-central-1", env) == Credentials("ASIA", "s", "t+")
        method, path, body = stub.seen[0]
        assert (method, path, b"WebIdentityToken=jwt-of-the-pod" in body) == ("POST", "/", True)
        assert len(stub.seen) == questions


def test_sts_error_is_reported_without_its_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("jwt-of-the-pod")
    env = {"AWS_ROLE_ARN": "r", "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
    with http_stub({"/": (403, "<Error><Code>AccessDenied</Code></Error>")}) as stub:
        with pytest.raises(NoCredentialsError, match=r"^STS denied access: AccessDenied\.$"):
            get_credentials({**env, "AWS_ENDPOINT_URL_STS": stub.url})
    with pytest.raises(NoCredentialsError, match="cannot be read"):
        get_credentials({**env, "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere"})


def test_container_agent_is_queried_with_its_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    found = {"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": until}
    with http_stub({"/v1/credentials": (200, json.dumps(found))}) as stub:
        env = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{stub.url}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
        }
        assert get_credentials(env) == Credentials("A", "s", "t")
        assert stub.headers[0]["Authorization"] == "of-the-pod"
    with pytest.raises(NoCredentialsError, match="not a container credentials endpoint"):
        get_credentials({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/"})
