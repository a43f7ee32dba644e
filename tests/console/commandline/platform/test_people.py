"""Users, teams, tokens and the audit log on the console's own machine."""

from __future__ import annotations

import json

import pytest

from console.accounts import credentials
from console.accounts.models import ApiToken, Membership, User
from console.audit.models import AuditEvent
from tests.console.commandline.test_parser import refused, run
from tests.support.console import person

pytestmark = pytest.mark.django_db


def test_people() -> None:
    password = run("user", "create", "ada", "--role", "operator").strip()
    ada = User.objects.get(username="ada")
    assert ada.check_password(password) and ada.role == "operator"
    assert run("user", "list", "-o", "name") == "ada\n"
    assert password not in run("user", "get", "ada", "-o", "json")
    assert "User ada has role viewer" in run("user", "role", "ada", "viewer")
    new = run("user", "reset-password", "ada", "--yes").strip()
    ada.refresh_from_db()
    assert ada.check_password(new) and new != password
    assert "tokens revoked" in run("user", "deactivate", "ada", "--yes")
    assert not User.objects.get(username="ada").is_active
    assert "can log in again" in run("user", "activate", "ada")
    assert refused("user", "get", "bob")[0] == 4
    assert refused("user", "create", "ada")[0] == 3
    assert {event.actor_name for event in AuditEvent.objects.all()} == {"system"}
    assert password not in json.dumps(list(AuditEvent.objects.values("changes", "target")))


def test_last_admin_is_kept() -> None:
    """The user "system" is not in the database and does not count as an admin."""
    person("admin")
    for words in (("role", "one-admin", "viewer"), ("deactivate", "one-admin", "--yes")):
        code, reported = refused("user", *words)
        assert (code, "only active admin" in reported) == (3, True)


def test_teams() -> None:
    person("viewer")
    assert "No teams" in run("team", "list")
    assert "Team west created" in run("team", "create", "West", "--namespace", "llm")
    assert "one-viewer is operator in team west" in run(
        "team", "add", "west", "one-viewer", "operator"
    )
    assert Membership.objects.get().role == "operator"
    shown = run("team", "get", "west")
    assert "llm" in shown and "one-viewer" in shown
    assert json.loads(run("team", "get", "west", "-o", "json"))["members"][0]["role"] == "operator"
    run("team", "update", "west", "--description", "people of the west")
    assert "people of the west" in run("team", "list")
    assert "removed from team west" in run("team", "remove", "west", "one-viewer", "--yes")
    assert "deleted" in run("team", "delete", "west", "--yes")
    assert refused("team", "get", "west")[0] == 4


def test_tokens_are_created_for_another_user() -> None:
    person("operator")
    words = ("token", "create", "ci", "--role", "viewer")
    assert refused(*words)[0] == 3, "whose?"
    clear = run(*words, "--user", "one-operator", "--days", "30").strip()
    found = credentials.find_token(clear)
    assert found is not None and (found.user.username, found.role) == ("one-operator", "viewer")
    listed = run("token", "list", "--user", "one-operator")
    assert "ci" in listed and clear not in listed
    assert "Token ci revoked" in run("token", "revoke", "ci", "--yes")
    assert not ApiToken.objects.exists()
    assert refused("token", "revoke", "999")[0] == 4


def test_audit_log() -> None:
    run("team", "create", "West")
    run("user", "create", "ada")
    assert "team/west" in run("audit", "--target", "team/")
    assert "user/ada" not in run("audit", "--target", "team/")
    assert "user/ada" not in run("audit", "list", "--verb", "team.")
    assert len(json.loads(run("audit", "--limit", "1", "-o", "json"))) == 1
    assert "No matching audit log entries" in run("audit", "--actor", "nobody")
    assert refused("audit", "--since", "yesterday")[0] == 3
    assert refused("audit", "prune", "--actor", "ada", "-y") == (
        2,
        "audit prune has no option --actor.",
    )
