"""A pasted kubeconfig runs no program and reads no file."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.provisioners.kubernetes.api.kubeconfig import (
    MAX_BYTES,
    KubeconfigError,
    parse_kubeconfig,
)
from tests.support.certificates import authority

PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()


def document(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> str:
    return yaml.safe_dump(
        {
            "current-context": "work",
            "clusters": [
                {"name": "one", "cluster": {"server": "https://k.example:6443"} | (cluster or {})},
                {"name": "two", "cluster": {"server": "https://other.example"}},
            ],
            "users": [
                {"name": "me", "user": {"token": "s3cret"} | (user or {})},
                {"name": "you", "user": {"token": "n0ne"}},
            ],
            "contexts": [
                {"name": "work", "context": {"cluster": "one", "user": "me", "namespace": "llm"}},
                {"name": "play", "context": {"cluster": "two", "user": "you"}},
            ],
        }
    )


def test_contexts_are_listed_and_one_is_used() -> None:
    found = parse_kubeconfig(document({"certificate-authority-data": PEM}))
    assert [(one.name, one.server, one.namespace, one.why_not) for one in found.contexts] == [
        ("work", "https://k.example:6443", "llm", ""),
        ("play", "https://other.example", "", ""),
    ]
    login = found.login()
    assert (login.token, login.namespace) == ("s3cret", "llm")
    assert login.ca_pem.startswith("-----BEGIN")
    assert found.login("play").token == "n0ne"


def test_nothing_secret_is_shown() -> None:
    found = parse_kubeconfig(document(user={"password": "hunter2", "client-key-data": PEM}))
    assert "s3cret" not in repr(found)
    login = parse_kubeconfig(document(user={"password": "hunter2", "username": "x"})).login()
    assert "s3cret" not in repr(login)
    assert "hunter2" not in repr(login)


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({}, {"exec": {"command": "aws"}}, "an exec plugin"),
        ({}, {"auth-provider": {"name": "gcp"}}, "an auth-provider plugin"),
        ({}, {"token": "", "tokenFile": "/etc/shadow"}, "tokenFile refers to a file"),
        (
            {},
            {"client-certificate": "/a", "client-key": "/b"},
            "client-certificate refers to a file",
        ),
        ({}, {"client-certificate-data": PEM, "client-key": "/b"}, "client-key refers to a file"),
        ({"certificate-authority": "/etc/passwd"}, {}, "certificate-authority refers to a file"),
        ({"server": "http://k.example:6443"}, {}, "without TLS"),
        ({"server": "file:///etc/passwd"}, {}, "not a URL"),
        ({"certificate-authority-data": "%%%"}, {}, "not base64"),
        ({}, {"client-certificate-data": PEM}, "client-key-data is missing"),
    ],
)
def test_exec_and_file_references_are_rejected(
    cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    found = parse_kubeconfig(document(cluster, user))
    assert message in found.contexts[0].why_not
    assert found.contexts[1].why_not == "", "the other context is still of use"
    with pytest.raises(KubeconfigError, match=message) as refused:
        found.login()
    assert "s3cret" not in str(refused.value)


def test_http_to_localhost_is_allowed() -> None:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        assert (
            parse_kubeconfig(document({"server": f"http://{host}:8001"})).contexts[0].why_not == ""
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1,\n b", "Invalid YAML at line"),
        ("[" * 600, "Invalid YAML"),
        ("just words", "no contexts"),
        ("contexts: []", "empty"),
        ("x" * (MAX_BYTES + 1), "Too large"),
    ],
)
def test_invalid_kubeconfig(text: str, message: str) -> None:
    with pytest.raises(KubeconfigError, match=message):
        parse_kubeconfig(text)


def test_only_the_chosen_context_is_kept() -> None:
    kept = parse_kubeconfig(document()).only("play")
    assert "s3cret" not in kept
    assert parse_kubeconfig(kept).login().token == "n0ne"


def test_unknown_context_lists_the_known_ones() -> None:
    with pytest.raises(KubeconfigError, match="Choose one of: work, play"):
        parse_kubeconfig(document()).login("home")


def token(**claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


def test_expiry_of_a_login(tmp_path: Path) -> None:
    def ends(**user: Any) -> float | None:
        return parse_kubeconfig(document(user=user)).login().ends_at

    assert ends() is None
    assert ends(token=token(exp=1900000000)) == 1900000000
    for odd in (token(sub="x"), token(exp="soon"), "a.b.c", "a.%.c", "a.e30.c"):
        assert ends(token=odd) is None
    cert, key = authority().write(tmp_path, "me")
    pair = {
        "client-certificate-data": base64.b64encode(cert.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    of_certificate = ends(token="", **pair)
    assert of_certificate is not None
    assert ends(token=token(exp=5), **pair) == 5, "what ends first"
