"""Single sign-on configuration, and errors that stop the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.core.environment import SettingError
from console.signon.core import configuration
from console.signon.core.configuration import Provider

ONE = """
providers:
  - id: acme
    issuer: https://id.example
    client_id: emberline
    client_secret_file: /run/secrets/oidc
    groups_claim: realm_access.roles
    roles: {admin: [bosses], viewer: [staff]}
    teams: {search: {operator: [search]}}
"""


def test_default_is_password_login() -> None:
    policy = configuration.load_policy({})
    assert (policy.local_login, policy.second_factor) == ("everybody", "optional")
    assert (policy.idle.total_seconds(), policy.longest.days) == (12 * 3600, 7)
    assert configuration.load_providers({}) == ()


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({"EMBERLINE_LOCAL_LOGIN": "off"}, "everybody, break-glass"),
        ({"EMBERLINE_LOCAL_LOGIN": "break-glass"}, "EMBERLINE_BREAK_GLASS"),
        ({"EMBERLINE_SECOND_FACTOR": "yes"}, "optional, admins, everybody"),
        ({"EMBERLINE_SESSION_IDLE_MINUTES": "1"}, "from 5"),
        ({"EMBERLINE_SESSION_HOURS": "many"}, "an integer"),
        ({"EMBERLINE_CONFIRM_MINUTES": "-3"}, "an integer"),
    ],
)
def test_contradictory_policy_stops_the_start(env: dict[str, str], word: str) -> None:
    with pytest.raises(SettingError) as refused:
        configuration.load_policy(env)
    assert word in str(refused.value)


def test_several_providers_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "oidc.yaml"
    file.write_text(ONE)
    (found,) = configuration.load_providers({"EMBERLINE_OIDC_FILE": str(file)})
    assert (found.id, found.name, found.default_role) == ("acme", "acme", "refuse")
    assert found.roles == {"admin": ("bosses",), "viewer": ("staff",)}
    assert found.teams == {"search": {"operator": ("search",)}}


def test_one_provider_from_variables(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    (found,) = configuration.load_providers(
        {
            "EMBERLINE_OIDC_ISSUER": "https://id.example",
            "EMBERLINE_OIDC_CLIENT_ID": "emberline",
            "EMBERLINE_OIDC_CLIENT_SECRET_FILE": str(secret),
            "EMBERLINE_OIDC_ADMIN_GROUPS": "bosses, owners",
        }
    )
    assert (found.secret, found.roles) == ("s3cret", {"admin": ("bosses", "owners")})
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("id: acme", "id: Acme!", "lower-case"),
        ("https://id.example", "http://id.example", "https://"),
        ("https://id.example", "https://[", "https://"),
        ("client_id: emberline", "client_id: ''", "client_id"),
        ("client_id: emberline", "client_id: 7", "use a string"),
        ("client_secret_file: /run/secrets/oidc", "secret: s3cret", "client_secret_file"),
        ("{admin: [bosses], viewer: [staff]}", "{root: [bosses]}", "viewer, operator, admin"),
        ("{admin: [bosses], viewer: [staff]}", "{admin: bosses}", "list of strings"),
        ("groups_claim:", "group_claim:", "unknown field"),
        ("teams: {search: {operator: [search]}}", "teams: [search]", "map team slugs"),
        ("roles: {admin: [bosses], viewer: [staff]}", "scopes: [email]", "add openid"),
        ("providers:", "provider:", "providers:"),
        ("- id: acme", "- id: [", "invalid YAML"),
    ],
)
def test_error_is_named_without_secrets(old: str, new: str, word: str) -> None:
    with pytest.raises(SettingError) as refused:
        configuration.parse_providers(ONE.replace(old, new))
    assert word in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_policy_without_a_possible_login() -> None:
    text = "providers: [{id: a, issuer: 'https://id.example', client_id: b}]"
    with pytest.raises(SettingError, match="default_role"):
        configuration.parse_providers(text)


def test_duplicate_ids_are_rejected() -> None:
    with pytest.raises(SettingError, match="a unique id"):
        configuration.parse_providers(ONE + ONE.replace("providers:\n", ""))


def test_localhost_provider_needs_no_tls() -> None:
    assert configuration.is_safe_url("http://localhost:8080/realm")
    assert not configuration.is_safe_url("http://localhost.evil.example/")
    assert not configuration.is_safe_url("file:///etc/passwd")
    assert not configuration.is_safe_url(None)


ACME = Provider(
    "acme",
    "ACME",
    "https://id.example",
    "emberline",
    groups_claim="realm_access.roles",
    roles={"admin": ("bosses",), "viewer": ("staff",)},
    teams={"search": {"operator": ("search",), "admin": ("leads",)}},
)


@pytest.mark.parametrize(
    ("groups", "role", "teams"),
    [
        (["staff", "bosses"], "admin", {}),
        (["staff"], "viewer", {}),
        (["search", "leads"], "member", {"search": "admin"}),
        ([], "", {}),
        ("staff", "viewer", {}),
        ([7, None, "staff"], "viewer", {}),
        ({"staff": 1}, "", {}),
    ],
)
def test_highest_role_of_all_groups_applies(
    groups: object, role: str, teams: dict[str, str]
) -> None:
    found = configuration.rights_of(ACME, {"realm_access": {"roles": groups}})
    assert (found.role, found.teams) == (role, teams)


def test_user_without_a_group_gets_the_default_role() -> None:
    assert configuration.rights_of(replace(ACME, default_role="viewer"), {}).role == "viewer"
    assert configuration.rights_of(replace(ACME, default_role="member"), {}).role == "member"
    found = configuration.rights_of(ACME, {})
    assert (found.role, found.claimed) == ("", False)


def test_literal_claim_name_precedes_a_path() -> None:
    claims = {"https://x.example/groups": ["a"], "x": {"y": 1}}
    assert configuration.read_claim(claims, "https://x.example/groups") == ["a"]
    assert configuration.read_claim(claims, "x.y") == 1
    assert configuration.read_claim(claims, "x.y.z") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_malformed_claim_grants_nothing(value: object) -> None:
    found = configuration.rights_of(ACME, {"realm_access": {"roles": value}})
    if "bosses" not in str(value) and "staff" not in str(value):
        assert found.role in ("", "member")


@given(JSON)
def test_no_document_crashes_the_start(value: object) -> None:
    import yaml

    with pytest.raises(SettingError):
        configuration.parse_providers(yaml.safe_dump({"providers": [value]}))
